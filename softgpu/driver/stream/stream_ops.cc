// SPDX-License-Identifier: Apache-2.0
// Host functions, callbacks and memory operations on streams.

#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory/memory_map.h"
#include "softgpu/driver/stream/work.h"

namespace tendril::softgpu {
namespace {

constexpr unsigned kMaxBatch = 256;  // as documented for cuStreamBatchMemOp
constexpr unsigned kWaitFlags = 3u | CU_STREAM_WAIT_VALUE_FLUSH;

CUresult check(const CUstreamBatchMemOpParams& op) {
  uint64_t align;
  uint64_t address;
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      align = op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ? 8 : 4;
      address = op.waitValue.address;
      if ((op.waitValue.flags & ~kWaitFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
      if ((op.waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
      break;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      align = op.operation == CU_STREAM_MEM_OP_WRITE_VALUE_64 ? 8 : 4;
      address = op.writeValue.address;
      if (op.writeValue.flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
        return CUDA_ERROR_INVALID_VALUE;
      break;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_ERROR_NOT_SUPPORTED;
    case CU_STREAM_MEM_OP_BARRIER:
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  if (address % align != 0 || MemoryMap::instance().resolve(address, align) == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult one_op(CUstream stream, CUstreamBatchMemOpType type, CUdeviceptr address, uint64_t value,
                unsigned flags) {
  CUstreamBatchMemOpParams op = {};
  op.operation = type;
  op.waitValue.address = address;  // both kinds have the same layout
  op.waitValue.value64 = value;
  op.waitValue.flags = flags;
  return soft_cuStreamBatchMemOp_v2(stream, 1, &op, 0);
}

}  // namespace

SOFT(cuStreamBatchMemOp_v2)
(CUstream stream, unsigned int count, CUstreamBatchMemOpParams* paramArray, unsigned int flags) {
  if (count > kMaxBatch || (count != 0 && paramArray == nullptr) || flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  auto work = std::make_shared<MemOpWork>();
  for (unsigned i = 0; i < count; ++i) {
    if (CUresult bad = check(paramArray[i])) return bad;
    work->ops.push_back(paramArray[i]);
  }
  return submit_work(stream, std::move(work));
}

SOFT(cuStreamWaitValue32_v2)
(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  return one_op(stream, CU_STREAM_MEM_OP_WAIT_VALUE_32, addr, value, flags);
}
SOFT(cuStreamWaitValue64_v2)
(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  return one_op(stream, CU_STREAM_MEM_OP_WAIT_VALUE_64, addr, value, flags);
}
SOFT(cuStreamWriteValue32_v2)
(CUstream stream, CUdeviceptr addr, cuuint32_t value, unsigned int flags) {
  return one_op(stream, CU_STREAM_MEM_OP_WRITE_VALUE_32, addr, value, flags);
}
SOFT(cuStreamWriteValue64_v2)
(CUstream stream, CUdeviceptr addr, cuuint64_t value, unsigned int flags) {
  return one_op(stream, CU_STREAM_MEM_OP_WRITE_VALUE_64, addr, value, flags);
}
// The first version is off, as in drivers and as the device's attribute says.
SOFT(cuStreamWaitValue32)(CUstream, CUdeviceptr, cuuint32_t, unsigned int) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
SOFT(cuStreamWaitValue64)(CUstream, CUdeviceptr, cuuint64_t, unsigned int) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
SOFT(cuStreamWriteValue32)(CUstream, CUdeviceptr, cuuint32_t, unsigned int) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
SOFT(cuStreamWriteValue64)(CUstream, CUdeviceptr, cuuint64_t, unsigned int) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
SOFT(cuStreamBatchMemOp)(CUstream, unsigned int, CUstreamBatchMemOpParams*, unsigned int) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

SOFT(cuLaunchHostFunc)(CUstream hStream, CUhostFn fn, void* userData) {
  if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto work = std::make_shared<HostWork>();
  work->params = {fn, userData};
  return submit_work(hStream, std::move(work));
}

SOFT(cuStreamAddCallback)
(CUstream hStream, CUstreamCallback callback, void* userData, unsigned int flags) {
  if (callback == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  if (CUresult bad = refuse_capturing(stream)) return bad;
  // Unlike host functions, a callback also runs after an error and receives it.
  QueuedOp op;
  op.run = [=] {
    in_host_function() = true;
    callback(hStream, context->error(), userData);
    in_host_function() = false;
  };
  context->submit(stream, std::move(op));
  return CUDA_SUCCESS;
}

SOFT(cuStreamAttachMemAsync)
(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags) {
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(hStream, &stream, &context)) return bad;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  auto found = MemoryMap::instance().find(dptr);
  if (!found || found->kind != MemoryKind::kManaged || (length != 0 && length != found->bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;  // managed memory is coherent at all times here
}

}  // namespace tendril::softgpu

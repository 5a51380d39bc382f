// SPDX-License-Identifier: Apache-2.0
// Handlers of the two- and three-dimensional copies of api/cuda/memory.spec. The client's end is a
// packed block in staging memory. Exception: for graphs, the peer may name host memory that it has
// mirrored.
#include <cstring>

#include "api/cuda_handlers.gen.h"
#include "worker/cuda/executor/scope.h"
#include "worker/cuda/executor/waits.h"
#include "worker/cuda/memory/mirror.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kPieceBytesMax = 8u << 20;  // what the client puts into one message at most

CUarray array_in(Scope& scope, CUarray field) {
  return scope.get<CUarray>(Kind::kArray, Scope::id_in(field));
}

// If the kind of memory is not given, the address must be the client's: on a GPU or in a mirror.
bool is_clients(Executor& executor, CUmemorytype type, CUdeviceptr address, uint64_t bytes) {
  return type == CU_MEMORYTYPE_DEVICE ||
         (type == CU_MEMORYTYPE_UNIFIED && !is_workers_own(executor, address, bytes));
}

void resolve_source(Executor& executor, Scope& scope, CUDA_MEMCPY3D* parameters) {
  if (parameters->srcMemoryType == CU_MEMORYTYPE_ARRAY)
    parameters->srcArray = array_in(scope, parameters->srcArray);
  else if (!is_clients(executor, parameters->srcMemoryType, parameters->srcDevice,
                       bytes_spanned(parameters->srcXInBytes, parameters->srcY, parameters->srcZ,
                                     parameters->srcPitch, parameters->srcHeight, *parameters)))
    scope.fail(CUDA_ERROR_INVALID_VALUE);
  parameters->srcHost = nullptr;
}

void resolve_destination(Executor& executor, Scope& scope, CUDA_MEMCPY3D* parameters) {
  if (parameters->dstMemoryType == CU_MEMORYTYPE_ARRAY)
    parameters->dstArray = array_in(scope, parameters->dstArray);
  else if (!is_clients(executor, parameters->dstMemoryType, parameters->dstDevice,
                       bytes_spanned(parameters->dstXInBytes, parameters->dstY, parameters->dstZ,
                                     parameters->dstPitch, parameters->dstHeight, *parameters)))
    scope.fail(CUDA_ERROR_INVALID_VALUE);
  parameters->dstHost = nullptr;
}

// Reads the shape's image. Returns its bytes when packed. Fails if that is more than one piece may
// have.
uint64_t read_shape(Scope& scope, const wire::Bytes& image, CUDA_MEMCPY3D* parameters) {
  if (!scope.image(image, parameters)) return 0;
  parameters->reserved0 = nullptr;
  parameters->reserved1 = nullptr;
  const bool small = parameters->WidthInBytes <= kPieceBytesMax &&
                     parameters->Height <= kPieceBytesMax && parameters->Depth <= kPieceBytesMax;
  const uint64_t row = parameters->WidthInBytes;
  if (!small || row == 0 || parameters->Height == 0 || parameters->Depth == 0 ||
      row * parameters->Height > kPieceBytesMax ||
      row * parameters->Height * parameters->Depth > kPieceBytesMax) {
    scope.fail(CUDA_ERROR_INVALID_VALUE);
    return 0;
  }
  return row * parameters->Height * parameters->Depth;
}

void source_is(CUDA_MEMCPY3D* parameters, const uint8_t* packed) {
  parameters->srcMemoryType = CU_MEMORYTYPE_HOST;
  parameters->srcHost = packed;
  parameters->srcDevice = 0;
  parameters->srcArray = nullptr;
  parameters->srcXInBytes = parameters->srcY = parameters->srcZ = parameters->srcLOD = 0;
  parameters->srcPitch = parameters->WidthInBytes;
  parameters->srcHeight = parameters->Height;
}

void destination_is(CUDA_MEMCPY3D* parameters, uint8_t* packed) {
  parameters->dstMemoryType = CU_MEMORYTYPE_HOST;
  parameters->dstHost = packed;
  parameters->dstDevice = 0;
  parameters->dstArray = nullptr;
  parameters->dstXInBytes = parameters->dstY = parameters->dstZ = parameters->dstLOD = 0;
  parameters->dstPitch = parameters->WidthInBytes;
  parameters->dstHeight = parameters->Height;
}

// Gathers a whole bulk transfer in one block.
CUresult gather(Executor& executor, uint64_t transfer, const Block& block, uint64_t bytes) {
  for (uint64_t left = bytes; left != 0;) {
    session::Piece piece;
    if (!executor.service().take(transfer, &piece))
      return CUDA_ERROR_UNKNOWN;  // the session is over
    const bool inside = piece.offset <= bytes && piece.bytes <= bytes - piece.offset &&
                        piece.bytes <= left && piece.bytes != 0;
    if (inside) std::memcpy(block.data + piece.offset, piece.data, piece.bytes);
    executor.service().release(piece);
    if (!inside) {
      executor.service().end("a bulk transfer does not fit the copy that announced it");
      return CUDA_ERROR_INVALID_VALUE;
    }
    left -= piece.bytes;
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult handle(Executor& executor, const wire::cuda::copy_shape_to_device_request& request) {
  Scope scope(executor);
  if (executor.context() == nullptr) scope.fail(CUDA_ERROR_INVALID_CONTEXT);
  CUstream stream = scope.stream(request.stream);
  CUDA_MEMCPY3D parameters;
  const uint64_t bytes = read_shape(scope, request.shape, &parameters);
  if (scope.ok()) resolve_destination(executor, scope, &parameters);
  if (scope.ok() && request.transfer == 0 && request.data.count != bytes)
    scope.fail(CUDA_ERROR_INVALID_VALUE);
  Block block;
  if (scope.ok()) block = executor.waiters().staging().take(bytes);
  if (scope.ok() && block.data == nullptr) scope.fail(CUDA_ERROR_OUT_OF_MEMORY);
  if (!scope.ok()) {
    if (request.transfer != 0) executor.service().discard(request.transfer);
    return scope.error();
  }
  CUresult result = CUDA_SUCCESS;
  if (request.transfer != 0)
    result = gather(executor, request.transfer, block, bytes);
  else
    std::memcpy(block.data, request.data.data, bytes);
  source_is(&parameters, block.data);
  if (result == CUDA_SUCCESS) result = executor.driver().cuMemcpy3DAsync_v2(&parameters, stream);
  InFlight item;
  item.context = executor.context()->context;
  item.block = block;
  executor.waiters().in_flight(stream, item);
  return executor.streams().copy_given(request.stream, result);
}

CUresult handle(Executor& executor, const wire::cuda::copy_shape_from_device_request& request,
                wire::cuda::copy_shape_from_device_reply&) {
  Scope scope(executor);
  if (executor.context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUstream stream = scope.stream(request.stream);
  CUDA_MEMCPY3D parameters;
  const uint64_t bytes = read_shape(scope, request.shape, &parameters);
  if (scope.ok()) resolve_source(executor, scope, &parameters);
  if (scope.ok() && request.transfer == 0 && bytes > wire::kReplyInlineMax)
    scope.fail(CUDA_ERROR_INVALID_VALUE);
  if (!scope.ok()) return scope.error();
  Staging& staging = executor.waiters().staging();
  const Block block = staging.take(bytes);
  if (block.data == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  destination_is(&parameters, block.data);
  const CUresult result = executor.driver().cuMemcpy3DAsync_v2(&parameters, stream);
  if (result != CUDA_SUCCESS) {
    staging.give_back(block);
    return result;
  }
  if (request.transfer == 0) return executor.waiters().answer_after_copy(stream, block, bytes);
  Delivery delivery;
  delivery.context = executor.context()->context;
  delivery.block = block;
  delivery.bytes = bytes;
  delivery.transfer = request.transfer;
  const CUresult added = executor.waiters().add_delivery(stream, delivery);
  return added == CUDA_SUCCESS ? executor.waiters().answer_after_copy(stream, Block{}, 0) : added;
}

CUresult handle(Executor& executor, const wire::cuda::copy_shape_device_request& request) {
  Scope scope(executor);
  CUstream stream = scope.stream(request.stream);
  CUDA_MEMCPY3D parameters;
  if (!scope.image(request.shape, &parameters)) return scope.error();
  parameters.reserved0 = nullptr;
  parameters.reserved1 = nullptr;
  resolve_source(executor, scope, &parameters);
  resolve_destination(executor, scope, &parameters);
  if (parameters.srcMemoryType == CU_MEMORYTYPE_UNIFIED)
    parameters.srcDevice = executor.mirrors().place_of(parameters.srcDevice);
  if (parameters.dstMemoryType == CU_MEMORYTYPE_UNIFIED)
    parameters.dstDevice = executor.mirrors().place_of(parameters.dstDevice);
  if (!scope.ok()) return scope.error();
  const uint64_t bytes = parameters.WidthInBytes * parameters.Height * parameters.Depth;
  if (!executor.gate().may_work(executor.context(), stream,
                                static_cast<uint64_t>(wire::cuda::copy_shape_device_request::kOp),
                                bytes))
    return CUDA_ERROR_UNKNOWN;
  return executor.streams().copy_given(request.stream,
                                       executor.driver().cuMemcpy3DAsync_v2(&parameters, stream));
}

}  // namespace tendril::worker::cuda

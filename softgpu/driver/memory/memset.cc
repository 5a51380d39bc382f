// SPDX-License-Identifier: Apache-2.0
// The cuMemset* calls. They are asynchronous towards the host, as on a device.

#include "softgpu/driver/memory/memset.h"

#include <cstring>

#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory/memory_map.h"
#include "softgpu/driver/stream/device_work.h"

namespace tendril::softgpu {
namespace {

template <typename T>
void fill(uint8_t* row, T value, size_t count) {
  auto* at = reinterpret_cast<T*>(row);
  for (size_t i = 0; i < count; ++i) at[i] = value;
}

uint64_t extent(const CUDA_MEMSET_NODE_PARAMS& p) {
  return (p.height - 1) * p.pitch + p.width * p.elementSize;
}

CUresult check_shape(const CUDA_MEMSET_NODE_PARAMS& p) {
  constexpr uint64_t kMost = 1ull << 46;
  if (p.elementSize != 1 && p.elementSize != 2 && p.elementSize != 4)
    return CUDA_ERROR_INVALID_VALUE;
  if (p.width == 0 || p.height == 0) return CUDA_SUCCESS;
  if (p.dst % p.elementSize != 0 || p.width > kMost || p.height > kMost || p.pitch > kMost)
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t row = p.width * p.elementSize;
  if (p.height > 1 && (p.pitch < row || p.pitch % p.elementSize != 0))
    return CUDA_ERROR_INVALID_VALUE;
  const auto bytes = static_cast<unsigned __int128>(p.height - 1) * p.pitch + row;
  return bytes > kMost ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

bool is_captured(const Stream& stream) {
  const std::lock_guard<std::recursive_mutex> locked(capture_lock());
  return stream.capture != nullptr;
}

CUresult memset_call(CUstream stream, bool synchronous, uint64_t address, size_t pitch,
                     unsigned value, unsigned element, size_t width, size_t height) {
  auto work = std::make_shared<MemsetWork>();
  work->params = {address, pitch, value, element, width, height};
  StreamPtr found;
  ContextPtr context;
  if (CUresult bad = find_stream(stream, &found, &context)) return bad;
  const bool captured = is_captured(*found);  // addresses are checked when the graph runs
  if (CUresult bad = captured ? check_shape(work->params) : check_memset(work->params)) return bad;
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  SubmitOptions options;
  options.allow_capture = !synchronous;
  auto target = MemoryMap::instance().find(address);
  options.wait =
      synchronous && target && !target->on_device();  // documented exception: pinned host memory
  return submit_work(found, context, std::move(work), options);
}

}  // namespace

CUresult check_memset(const CUDA_MEMSET_NODE_PARAMS& p) {
  if (CUresult bad = check_shape(p)) return bad;
  if (p.width == 0 || p.height == 0) return CUDA_SUCCESS;
  return MemoryMap::instance().resolve(p.dst, extent(p)) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                                    : CUDA_SUCCESS;
}

CUresult MemsetWork::run(Context& context) {
  if (params.width == 0 || params.height == 0) return CUDA_SUCCESS;
  DeviceWork device(context, Engine::kCompute);
  if (device.refusal() != CUDA_SUCCESS) return device.refusal();
  device.took_bytes(params.width * params.elementSize * params.height);
  if (!device.executes()) return CUDA_SUCCESS;
  std::shared_lock running(MemoryMap::instance().execution());
  uint8_t* at = MemoryMap::instance().resolve(params.dst, extent(params));
  if (at == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (size_t y = 0; y < params.height; ++y, at += params.pitch) {
    if (params.elementSize == 1) memset(at, static_cast<int>(params.value), params.width);
    if (params.elementSize == 2)
      fill<uint16_t>(at, static_cast<uint16_t>(params.value), params.width);
    if (params.elementSize == 4) fill<uint32_t>(at, params.value, params.width);
  }
  return CUDA_SUCCESS;
}

SOFT(cuMemsetD8_v2)(CUdeviceptr dst, unsigned char value, size_t n) {
  return memset_call(nullptr, true, dst, 0, value, 1, n, 1);
}
SOFT(cuMemsetD2D8_v2)
(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height) {
  return memset_call(nullptr, true, dst, pitch, value, 1, width, height);
}
SOFT(cuMemsetD8)(CUdeviceptr_v1 dst, unsigned char value, unsigned int n) {
  return memset_call(nullptr, true, dst, 0, value, 1, n, 1);
}
SOFT(cuMemsetD2D8)
(CUdeviceptr_v1 dst, unsigned int pitch, unsigned char value, unsigned int width,
 unsigned int height) {
  return memset_call(nullptr, true, dst, pitch, value, 1, width, height);
}
SOFT(cuMemsetD8Async)(CUdeviceptr dst, unsigned char value, size_t n, CUstream s) {
  return memset_call(s, false, dst, 0, value, 1, n, 1);
}
SOFT(cuMemsetD2D8Async)
(CUdeviceptr dst, size_t pitch, unsigned char value, size_t width, size_t height, CUstream s) {
  return memset_call(s, false, dst, pitch, value, 1, width, height);
}
SOFT(cuMemsetD16_v2)(CUdeviceptr dst, unsigned short value, size_t n) {
  return memset_call(nullptr, true, dst, 0, value, 2, n, 1);
}
SOFT(cuMemsetD2D16_v2)
(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height) {
  return memset_call(nullptr, true, dst, pitch, value, 2, width, height);
}
SOFT(cuMemsetD16)(CUdeviceptr_v1 dst, unsigned short value, unsigned int n) {
  return memset_call(nullptr, true, dst, 0, value, 2, n, 1);
}
SOFT(cuMemsetD2D16)
(CUdeviceptr_v1 dst, unsigned int pitch, unsigned short value, unsigned int width,
 unsigned int height) {
  return memset_call(nullptr, true, dst, pitch, value, 2, width, height);
}
SOFT(cuMemsetD16Async)(CUdeviceptr dst, unsigned short value, size_t n, CUstream s) {
  return memset_call(s, false, dst, 0, value, 2, n, 1);
}
SOFT(cuMemsetD2D16Async)
(CUdeviceptr dst, size_t pitch, unsigned short value, size_t width, size_t height, CUstream s) {
  return memset_call(s, false, dst, pitch, value, 2, width, height);
}
SOFT(cuMemsetD32_v2)(CUdeviceptr dst, unsigned int value, size_t n) {
  return memset_call(nullptr, true, dst, 0, value, 4, n, 1);
}
SOFT(cuMemsetD2D32_v2)
(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height) {
  return memset_call(nullptr, true, dst, pitch, value, 4, width, height);
}
SOFT(cuMemsetD32)(CUdeviceptr_v1 dst, unsigned int value, unsigned int n) {
  return memset_call(nullptr, true, dst, 0, value, 4, n, 1);
}
SOFT(cuMemsetD2D32)
(CUdeviceptr_v1 dst, unsigned int pitch, unsigned int value, unsigned int width,
 unsigned int height) {
  return memset_call(nullptr, true, dst, pitch, value, 4, width, height);
}
SOFT(cuMemsetD32Async)(CUdeviceptr dst, unsigned int value, size_t n, CUstream s) {
  return memset_call(s, false, dst, 0, value, 4, n, 1);
}
SOFT(cuMemsetD2D32Async)
(CUdeviceptr dst, size_t pitch, unsigned int value, size_t width, size_t height, CUstream s) {
  return memset_call(s, false, dst, pitch, value, 4, width, height);
}

}  // namespace tendril::softgpu

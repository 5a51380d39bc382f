// SPDX-License-Identifier: Apache-2.0
// The memset family: one record without reply, whatever the width and shape.
#include "client/cuda/memory/memory.h"
#include "client/cuda/memory/mirror.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {
namespace {

struct Shape {
  uint64_t pitch_bytes, width, height;  // width in elements
};

CUresult set(CUdeviceptr destination, uint32_t value, uint32_t element, Shape shape, bool async,
             CUstream hStream) {
  Context* context = nullptr;
  Stream* stream = nullptr;
  TENDRIL_TRY(require_context(&context));
  TENDRIL_TRY(require_stream(context, hStream, &stream));
  if (stream != nullptr) context = stream->context;
  if (shape.width == 0 || shape.height == 0) return CUDA_SUCCESS;
  if (destination == 0 || destination % element != 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t row = shape.width * element;
  const uint64_t bytes = shape.height > 1 ? (shape.height - 1) * shape.pitch_bytes + row : row;
  if (shape.height > 1 && shape.pitch_bytes < row) return CUDA_ERROR_INVALID_VALUE;
  Range range;
  const bool holds =
      process()->ranges.find(destination, &range) && range.reaches(destination, bytes);
  // A capture does not look at addresses: cuDNN records its plans with numbers in their place.
  if (!holds && !is_capturing(stream)) return CUDA_ERROR_INVALID_VALUE;
  TENDRIL_TRY(check_work(context, stream, !async));
  wire::cuda::memory_set_request request;
  request.destination = destination;
  request.pitch = shape.pitch_bytes;
  request.value = value;
  request.element = element;
  request.width = shape.width;
  request.height = shape.height;
  request.stream = async || stream != nullptr ? stream_wire_id(stream) : 0;
  Context* at =
      range.context != nullptr && range.session != context->session ? range.context : context;
  if (range.host()) TENDRIL_TRY(map_host_range(at, range));
  mirror_before_work(at->session, at);
  TENDRIL_TRY(at->session->enqueue(at, request));
  if (async || !range.host()) return CUDA_SUCCESS;
  TENDRIL_TRY(synchronize_stream(at, stream));  // the program may look at once
  mirror_after_wait(at->session, at);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemsetD8_v2(CUdeviceptr d, unsigned char v, size_t n) {
  return set(d, v, 1, {0, n, 1}, false, nullptr);
}
CUresult cuMemsetD16_v2(CUdeviceptr d, unsigned short v, size_t n) {
  return set(d, v, 2, {0, n, 1}, false, nullptr);
}
CUresult cuMemsetD32_v2(CUdeviceptr d, unsigned int v, size_t n) {
  return set(d, v, 4, {0, n, 1}, false, nullptr);
}
CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char v, size_t n, CUstream stream) {
  return set(d, v, 1, {0, n, 1}, true, stream);
}
CUresult cuMemsetD16Async(CUdeviceptr d, unsigned short v, size_t n, CUstream stream) {
  return set(d, v, 2, {0, n, 1}, true, stream);
}
CUresult cuMemsetD32Async(CUdeviceptr d, unsigned int v, size_t n, CUstream stream) {
  return set(d, v, 4, {0, n, 1}, true, stream);
}

CUresult cuMemsetD2D8_v2(CUdeviceptr d, size_t pitch, unsigned char v, size_t w, size_t h) {
  return set(d, v, 1, {pitch, w, h}, false, nullptr);
}
CUresult cuMemsetD2D16_v2(CUdeviceptr d, size_t pitch, unsigned short v, size_t w, size_t h) {
  return set(d, v, 2, {pitch, w, h}, false, nullptr);
}
CUresult cuMemsetD2D32_v2(CUdeviceptr d, size_t pitch, unsigned int v, size_t w, size_t h) {
  return set(d, v, 4, {pitch, w, h}, false, nullptr);
}
CUresult cuMemsetD2D8Async(CUdeviceptr d, size_t pitch, unsigned char v, size_t w, size_t h,
                           CUstream stream) {
  return set(d, v, 1, {pitch, w, h}, true, stream);
}
CUresult cuMemsetD2D16Async(CUdeviceptr d, size_t pitch, unsigned short v, size_t w, size_t h,
                            CUstream stream) {
  return set(d, v, 2, {pitch, w, h}, true, stream);
}
CUresult cuMemsetD2D32Async(CUdeviceptr d, size_t pitch, unsigned int v, size_t w, size_t h,
                            CUstream stream) {
  return set(d, v, 4, {pitch, w, h}, true, stream);
}

}  // namespace tendril::client::cuda

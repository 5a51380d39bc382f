// SPDX-License-Identifier: Apache-2.0
// torch_extension.py's extension: an operator `tendril_check::scale` with a CUDA kernel behind it.
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <ATen/ATen.h>

cudaError_t launch_scale(const float* in, float* out, float factor, float add, long count,
                         cudaStream_t stream);

namespace {

at::Tensor scale(const at::Tensor& in, double factor, double add) {
  TORCH_CHECK(in.is_cuda() && in.scalar_type() == at::kFloat && in.is_contiguous(),
              "a contiguous float tensor on a GPU");
  at::Tensor out = at::empty_like(in);
  const cudaError_t status =
      launch_scale(in.const_data_ptr<float>(), out.mutable_data_ptr<float>(), float(factor),
                   float(add), in.numel(), c10::cuda::getCurrentCUDAStream());
  TORCH_CHECK(status == cudaSuccess, cudaGetErrorString(status));
  return out;
}

}  // namespace

TORCH_LIBRARY(tendril_check, library) {
  library.def("scale(Tensor input, float factor, float add) -> Tensor", &scale);
}

// SPDX-License-Identifier: Apache-2.0
// cuBLAS: sgemm, dgemm, bf16 gemm with float accumulation, and a batched strided gemm. Prints
// checksums of whole results (the same library on the same GPU repeats them bit by bit) and checks
// some elements against the host.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "check.h"

namespace {

cublasHandle_t handle;

template <typename T>
T* upload(const std::vector<T>& data) {
  T* out;
  CHECK(cudaMalloc(&out, data.size() * sizeof(T)));
  CHECK(cudaMemcpy(out, data.data(), data.size() * sizeof(T), cudaMemcpyHostToDevice));
  return out;
}

// Column-major a (n x n) times b; `pick` elements against the host.
template <typename T, typename Out>
bool close_enough(const std::vector<T>& a, const std::vector<T>& b, const std::vector<Out>& c,
                  int n, double tolerance) {
  Numbers numbers(17);
  bool good = true;
  for (int pick = 0; pick < 64; pick++) {
    const int row = static_cast<int>((numbers.next() + 1) / 2 * n),
              column = static_cast<int>((numbers.next() + 1) / 2 * n);
    double sum = 0;
    for (int k = 0; k < n; k++)
      sum += static_cast<double>(static_cast<float>(a[row + static_cast<size_t>(k) * n])) *
             static_cast<double>(static_cast<float>(b[k + static_cast<size_t>(column) * n]));
    const double got = static_cast<double>(c[row + static_cast<size_t>(column) * n]);
    good = good && std::fabs(got - sum) < tolerance * std::sqrt(static_cast<double>(n));
  }
  return good;
}

template <typename T, typename Out>
bool multiply(const char* what, int n, cudaDataType_t type, cudaDataType_t out_type,
              cublasComputeType_t compute, const void* one, const void* zero, double tolerance) {
  Numbers numbers(n);
  std::vector<T> a, b;
  for (double value : numbers.many<double>(static_cast<size_t>(n) * n))
    a.push_back(T(float(value)));
  for (double value : numbers.many<double>(static_cast<size_t>(n) * n))
    b.push_back(T(float(value)));
  std::vector<Out> c(static_cast<size_t>(n) * n);
  T *da = upload(a), *db = upload(b);
  Out* dc = upload(c);
  CHECK(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, one, da, type, n, db, type, n, zero,
                     dc, out_type, n, compute, CUBLAS_GEMM_DEFAULT));
  CHECK(cudaMemcpy(c.data(), dc, c.size() * sizeof(Out), cudaMemcpyDeviceToHost));
  const bool good = close_enough(a, b, c, n, tolerance);
  std::printf("%s %d: checksum %016llx, %s\n", what, n,
              static_cast<unsigned long long>(checksum(c)), good ? "right" : "WRONG");
  CHECK(cudaFree(da));
  CHECK(cudaFree(db));
  CHECK(cudaFree(dc));
  return good;
}

bool batched() {
  const int n = 64, batch = 100;
  Numbers numbers(5);
  const size_t each = static_cast<size_t>(n) * n;
  const std::vector<float> a = numbers.many<float>(each * batch),
                           b = numbers.many<float>(each * batch);
  std::vector<float> c(each * batch);
  float *da = upload(a), *db = upload(b), *dc = upload(c);
  const float one = 1, zero = 0;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cublasSetStream(handle, stream));
  CHECK(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_T, n, n, n, &one, da, n, each, db,
                                  n, each, &zero, dc, n, each, batch));
  CHECK(cudaMemcpyAsync(c.data(), dc, c.size() * 4, cudaMemcpyDeviceToHost, stream));
  CHECK(cudaStreamSynchronize(stream));
  std::printf("batched: checksum %016llx\n", static_cast<unsigned long long>(checksum(c)));
  return true;
}

}  // namespace

int main() {
  CHECK(cublasCreate(&handle));
  const float one = 1, zero = 0;
  const double done = 1, dzero = 0;
  bool good = true;
  for (int n : {256, 1024, 2048}) {
    good &= multiply<float, float>("sgemm", n, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, &one,
                                   &zero, 1e-4);
    good &= multiply<__nv_bfloat16, float>("bf16 gemm", n, CUDA_R_16BF, CUDA_R_32F,
                                           CUBLAS_COMPUTE_32F, &one, &zero, 1e-3);
  }
  good &= multiply<double, double>("dgemm", 512, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, &done,
                                   &dzero, 1e-4);
  good &= batched();
  CHECK(cublasDestroy(handle));
  return finish(good);
}

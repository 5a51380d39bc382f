// SPDX-License-Identifier: Apache-2.0
// cuSOLVER: factors a dense matrix and solves with it. The host checks the residual.
#include <cuda_runtime.h>
#include <cusolverDn.h>

#include "check.h"

int main() {
  const int n = 512;
  Numbers numbers(23);
  std::vector<double> a = numbers.many<double>(static_cast<size_t>(n) * n),
                      b = numbers.many<double>(n);
  for (int i = 0; i < n; i++) a[i + static_cast<size_t>(i) * n] += n;
  std::vector<double> x(n);
  double *da, *db, *work;
  int *pivots, *info, bytes = 0, failed = -1;
  CHECK(cudaMalloc(&da, a.size() * 8));
  CHECK(cudaMalloc(&db, n * 8));
  CHECK(cudaMalloc(&pivots, n * sizeof(int)));
  CHECK(cudaMalloc(&info, sizeof(int)));
  CHECK(cudaMemcpy(da, a.data(), a.size() * 8, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(db, b.data(), n * 8, cudaMemcpyHostToDevice));
  cusolverDnHandle_t handle;
  CHECK(cusolverDnCreate(&handle));
  CHECK(cusolverDnDgetrf_bufferSize(handle, n, n, da, n, &bytes));
  CHECK(cudaMalloc(&work, static_cast<size_t>(bytes) * 8));
  CHECK(cusolverDnDgetrf(handle, n, n, da, n, work, pivots, info));
  CHECK(cusolverDnDgetrs(handle, CUBLAS_OP_N, n, 1, da, n, pivots, db, n, info));
  CHECK(cudaMemcpy(&failed, info, sizeof failed, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(x.data(), db, n * 8, cudaMemcpyDeviceToHost));
  double worst = 0;
  for (int row = 0; row < n; row++) {
    double sum = 0;
    for (int k = 0; k < n; k++) sum += a[row + static_cast<size_t>(k) * n] * x[k];
    worst = std::fmax(worst, std::fabs(sum - b[row]));
  }
  const bool good = failed == 0 && worst < 1e-9;
  std::printf("solution %016llx, %s\n", static_cast<unsigned long long>(checksum(x)),
              good ? "right" : "WRONG");
  CHECK(cusolverDnDestroy(handle));
  return finish(good);
}

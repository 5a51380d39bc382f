// SPDX-License-Identifier: Apache-2.0
// The ordinary runtime-API program, linked with the static CUDA runtime as nvcc does by default:
// copies, a kernel, an event, constant and device variables, memset, an error and its clearing.
#include <cuda_runtime.h>

#include "check.h"

__constant__ float scale;
__device__ unsigned long long visits;

__global__ void add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    c[i] = scale * (a[i] + b[i]);
    atomicAdd(&visits, 1ull);
  }
}

int main() {
  const int n = 1'000'003;
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s, compute %d.%d, %d multiprocessors\n", properties.name, properties.major,
              properties.minor, properties.multiProcessorCount);
  Numbers numbers(1);
  const std::vector<float> a = numbers.many<float>(n), b = numbers.many<float>(n);
  std::vector<float> c(n);
  float *da, *db, *dc;
  CHECK(cudaMalloc(&da, n * sizeof(float)));
  CHECK(cudaMalloc(&db, n * sizeof(float)));
  CHECK(cudaMalloc(&dc, n * sizeof(float)));
  CHECK(cudaMemcpy(da, a.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(db, b.data(), n * sizeof(float), cudaMemcpyHostToDevice));
  CHECK(cudaMemset(dc, 0xff, n * sizeof(float)));
  const float two = 2.0f;
  CHECK(cudaMemcpyToSymbol(scale, &two, sizeof two));
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaEventRecord(begin));
  add<<<(n + 255) / 256, 256>>>(da, db, dc, n);
  CHECK(cudaGetLastError());
  CHECK(cudaEventRecord(end));
  CHECK(cudaEventSynchronize(end));
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, begin, end));
  std::printf("time of the kernel %.3f ms\n", ms);
  CHECK(cudaMemcpy(c.data(), dc, n * sizeof(float), cudaMemcpyDeviceToHost));
  unsigned long long counted = 0;
  CHECK(cudaMemcpyFromSymbol(&counted, visits, sizeof counted));
  bool good = ms >= 0 && counted == n;
  for (int i = 0; i < n; i++) good = good && c[i] == 2.0f * (a[i] + b[i]);
  std::printf("sum %016llx, %llu threads counted\n", static_cast<unsigned long long>(checksum(c)),
              counted);
  // Too many threads in a block: the launch is refused, and asking clears the error.
  add<<<1, 4096>>>(da, db, dc, n);
  const cudaError_t refused = cudaGetLastError();
  std::printf("%s; then %s\n", cudaGetErrorName(refused), cudaGetErrorName(cudaGetLastError()));
  CHECK(cudaFree(da));
  CHECK(cudaFree(db));
  CHECK(cudaFree(dc));
  return finish(good && refused != cudaSuccess);
}

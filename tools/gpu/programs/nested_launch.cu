// SPDX-License-Identifier: Apache-2.0
// Dynamic parallelism: kernels that launch kernels, to some depth and into the device-side streams;
// device-side memory; and printf from both levels in a fixed order.
#include <cuda_runtime.h>

#include "check.h"

namespace {

constexpr int kWords = 1 << 14;

__global__ void leaf(uint32_t* data, uint32_t add) {
  atomicAdd(&data[blockIdx.x * blockDim.x + threadIdx.x], add);
}

__global__ void say(int who) { printf("child %d\n", who); }

// Halves the range until it is small. The leaves write.
__global__ void divide(uint32_t* data, int words, uint32_t depth) {
  if (words <= 1024) {
    leaf<<<words / 128, 128>>>(data, depth);
    return;
  }
  divide<<<1, 1>>>(data, words / 2, depth + 1);
  divide<<<1, 1>>>(data + words / 2, words / 2, depth + 1);
}

__global__ void parent(uint32_t* data) {
  if (threadIdx.x != 0) return;
  leaf<<<kWords / 256, 256>>>(data, 1);
  leaf<<<kWords / 256, 256, 0, cudaStreamTailLaunch>>>(data, 10);
  leaf<<<kWords / 256, 256, 0, cudaStreamFireAndForget>>>(data, 100);
}

__global__ void speaking_parent() {
  printf("parent\n");
  say<<<1, 1, 0, cudaStreamTailLaunch>>>(1);
}

__global__ void takes_memory(uint32_t* out) {
  auto* mine = static_cast<uint32_t*>(malloc(64));
  if (mine == nullptr) return;
  for (int i = 0; i < 16; i++) mine[i] = threadIdx.x * i;
  uint32_t sum = 0;
  for (int i = 0; i < 16; i++) sum += mine[i];
  out[threadIdx.x] = sum;
  free(mine);
}

__global__ void asks(int* answers) {
  answers[0] = cudaGetDevice(&answers[1]);
  leaf<<<1, 4096>>>(nullptr, 0);  // too many threads
  answers[2] = cudaGetLastError();
  cudaDeviceGetAttribute(&answers[3], cudaDevAttrComputeCapabilityMajor, 0);
}

void show(const char* what, const uint32_t* device, int words) {
  std::vector<uint32_t> host(words);
  CHECK(cudaMemcpy(host.data(), device, words * 4, cudaMemcpyDeviceToHost));
  std::printf("%s: %016llx\n", what, static_cast<unsigned long long>(checksum(host)));
  std::fflush(stdout);
}

}  // namespace

int main() {
  uint32_t* data;
  int *answers, seen[4] = {};
  size_t limit = 0;
  CHECK(cudaMalloc(&data, kWords * 4));
  CHECK(cudaMalloc(&answers, sizeof seen));
  CHECK(cudaMemset(data, 0, kWords * 4));
  CHECK(cudaMemset(answers, 0, sizeof seen));
  CHECK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
  CHECK(cudaDeviceSetLimit(cudaLimitDevRuntimePendingLaunchCount, 4096));
  CHECK(cudaDeviceGetLimit(&limit, cudaLimitDevRuntimePendingLaunchCount));
  std::printf("pending launches %zu\n", limit);
  parent<<<1, 32>>>(data);
  CHECK(cudaDeviceSynchronize());
  show("children", data, kWords);
  divide<<<1, 1>>>(data, kWords, 0);
  CHECK(cudaDeviceSynchronize());
  show("to some depth", data, kWords);
  takes_memory<<<1, 256>>>(data);
  CHECK(cudaDeviceSynchronize());
  show("device-side malloc", data, 256);
  speaking_parent<<<1, 1>>>();
  CHECK(cudaDeviceSynchronize());
  std::fflush(stdout);
  asks<<<1, 1>>>(answers);
  std::printf("asked on the device: %s;", cudaGetErrorName(cudaDeviceSynchronize()));
  CHECK(cudaMemcpy(seen, answers, sizeof seen, cudaMemcpyDeviceToHost));
  std::printf(" %d %d %d %d\n", seen[0], seen[1], seen[2], seen[3]);
  return finish(true);
}

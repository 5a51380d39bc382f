// SPDX-License-Identifier: Apache-2.0
// Compiled with --default-stream per-thread: <<<>>> and copies without a stream belong to the
// calling thread's own stream, which does not wait for another thread's. cudaStreamLegacy still
// waits for them all.
#include <cuda_runtime.h>

#include <thread>

#include "check.h"

namespace {

constexpr int kThreads = 6, kPart = 1 << 16;
uint32_t* device;
uint32_t* seen[kThreads];

__global__ void step(uint32_t* data) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  data[i] = data[i] * 3 + 1;
}

__global__ void delay(long long cycles) {
  const long long begun = clock64();
  while (clock64() - begun < cycles) {
  }
}

void work(int number) {
  uint32_t* mine = device + number * kPart;
  std::vector<uint32_t> host(kPart, number);
  CHECK(cudaMemcpyAsync(mine, host.data(), kPart * 4, cudaMemcpyHostToDevice));
  for (int round = 0; round < 50; round++) step<<<kPart / 256, 256>>>(mine);
  CHECK(cudaMemcpyAsync(seen[number], mine, kPart * 4, cudaMemcpyDeviceToHost));
  CHECK(cudaStreamSynchronize(cudaStreamPerThread));
}

// A thread's default stream finishes while another's is still busy.
bool independent() {
  delay<<<1, 1>>>(2'000'000'000);
  cudaError_t mine = cudaSuccess;
  std::thread other([] { work(0); });
  other.join();
  mine = cudaStreamQuery(cudaStreamPerThread);
  std::printf("this thread's stream when the other is done: %s\n", cudaGetErrorName(mine));
  CHECK(cudaStreamSynchronize(0));
  return mine == cudaErrorNotReady;
}

// The legacy stream waits for per-thread streams, which are blocking ones.
bool legacy_waits() {
  CHECK(cudaMemsetAsync(device, 0, kPart * 4));
  delay<<<1, 1>>>(20'000'000);
  step<<<kPart / 256, 256>>>(device);
  step<<<kPart / 256, 256, 0, cudaStreamLegacy>>>(device);
  step<<<kPart / 256, 256>>>(device);
  CHECK(cudaMemcpyAsync(seen[0], device, kPart * 4, cudaMemcpyDeviceToHost));
  CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  std::printf("three steps: %u\n", seen[0][kPart - 1]);
  return seen[0][0] == 13 && seen[0][kPart - 1] == 13;
}

}  // namespace

int main() {
  CHECK(cudaMalloc(&device, kThreads * kPart * 4));
  for (auto& each : seen) CHECK(cudaMallocHost(&each, kPart * 4));
  std::vector<std::thread> threads;
  for (int number = 0; number < kThreads; number++) threads.emplace_back(work, number);
  for (std::thread& thread : threads) thread.join();
  for (uint32_t* each : seen)
    std::printf("checksum %016llx\n", static_cast<unsigned long long>(checksum(each, kPart * 4)));
  const bool apart = independent(), waits = legacy_waits();
  return finish(apart && waits);
}

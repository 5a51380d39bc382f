// SPDX-License-Identifier: Apache-2.0
// Variables that host and device share by name: `__managed__`, with a first value, an array, and
// changes from both sides in turns. The runtime asks for them before it has a context.
#include <cuda_runtime.h>

#include "check.h"

namespace {

constexpr int kWords = 5000;
__managed__ uint32_t counter = 5;
__managed__ uint32_t table[kWords];
__managed__ uint32_t* pointer;

__global__ void count() { atomicAdd(&counter, 1u); }

__global__ void step() {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < kWords) table[i] = table[i] * 3 + *pointer;
}

}  // namespace

int main() {
  std::printf("before any kernel %u\n", counter);
  count<<<4, 64>>>();
  CHECK(cudaDeviceSynchronize());
  std::printf("counted %u\n", counter);
  bool good = counter == 5 + 4 * 64;
  counter = 1;
  count<<<1, 32>>>();
  CHECK(cudaDeviceSynchronize());
  std::printf("counted %u\n", counter);
  good = good && counter == 33;
  pointer = &counter;
  for (uint32_t round = 0; round < 5; round++) {
    for (int i = 0; i < kWords; i += 7) table[i] = i + round;
    step<<<(kWords + 255) / 256, 256>>>();
    CHECK(cudaDeviceSynchronize());
  }
  good = good && table[7] == (7 + 4) * 3 + 33;
  std::printf("table %016llx\n", static_cast<unsigned long long>(checksum(table, sizeof table)));
  uint32_t* there = nullptr;
  size_t bytes = 0;
  CHECK(cudaGetSymbolAddress(reinterpret_cast<void**>(&there), table));
  CHECK(cudaGetSymbolSize(&bytes, table));
  std::printf("%zu bytes, at the same address: %s\n", bytes, there == table ? "yes" : "no");
  return finish(good && there == table);
}

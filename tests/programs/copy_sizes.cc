// SPDX-License-Identifier: Apache-2.0
// Copies of pageable memory to the device and back, small and middle-sized, each compared. For
// counting their cost without time (tests/cost). Argument: rounds (default 4).
#include "tests/programs/program.h"

int main(int argc, char** argv) {
  const long rounds = program::argument(argc, argv, 1, 4);
  constexpr size_t kMost = 1 << 20;
  program::use_device(0);
  CUdeviceptr memory;
  CHECK(cuMemAlloc(&memory, kMost));
  std::vector<uint8_t> there(kMost), back(kMost);
  bool good = true;
  for (long i = 0; i < rounds; ++i) {
    for (const size_t bytes : {size_t{4096}, size_t{65536}, size_t{262144}, kMost}) {
      std::memset(there.data(), static_cast<int>(i + 1), bytes);
      CHECK(cuMemcpyHtoD(memory, there.data(), bytes));
      CHECK(cuMemcpyDtoH(back.data(), memory, bytes));
      good = good && std::memcmp(there.data(), back.data(), bytes) == 0;
    }
  }
  return program::finish(good);
}

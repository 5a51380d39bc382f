// SPDX-License-Identifier: Apache-2.0
// Temporary memory in the order of a stream, as array libraries use it: each step needs blocks of
// several sizes with overlapping lives, and waits for nothing. For counting the cost of allocating
// (tests/cost). Argument: steps (default 10).
#include "tests/programs/program.h"

namespace {

constexpr size_t kWords = 4096;

CUdeviceptr filled(size_t words, uint32_t value, CUstream stream) {
  CUdeviceptr block;
  CHECK(cuMemAllocAsync(&block, words * 4, stream));
  CHECK(cuMemsetD32Async(block, value, words, stream));
  return block;
}

}  // namespace

int main(int argc, char** argv) {
  const long steps = program::argument(argc, argv, 1, 10);
  program::use_device(0);
  CUstream stream;
  CUdeviceptr sums;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemAlloc(&sums, steps * 4));
  for (long i = 0; i < steps; ++i) {
    const CUdeviceptr large = filled(4 * kWords, 1, stream);
    const CUdeviceptr small = filled(kWords, static_cast<uint32_t>(i), stream);
    CHECK(cuMemFreeAsync(large, stream));
    const CUdeviceptr middle = filled(2 * kWords, 7, stream);
    CHECK(cuMemcpyDtoDAsync(sums + i * 4, small + (kWords - 1) * 4, 4, stream));
    CHECK(cuMemFreeAsync(small, stream));
    CHECK(cuMemFreeAsync(middle, stream));
  }
  CHECK(cuStreamSynchronize(stream));
  const std::vector<uint32_t> seen = program::download<uint32_t>(sums, static_cast<size_t>(steps));
  bool good = true;
  for (long i = 0; i < steps; ++i)
    good = good && seen[static_cast<size_t>(i)] == static_cast<uint32_t>(i);
  std::printf("checksum %016llx\n", static_cast<unsigned long long>(program::checksum(seen)));
  return program::finish(good);
}

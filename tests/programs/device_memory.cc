// SPDX-License-Identifier: Apache-2.0
// Temporary device memory as simple programs use it: each step allocates blocks of several sizes
// with overlapping lives, works on them in two streams, frees them, and waits for nothing. What one
// step leaves in its memory must not reach another. For counting the cost of allocating
// (tests/cost). Argument: steps (default 10).
#include "tests/programs/program.h"

namespace {

constexpr size_t kWords[] = {1000, 40'000, 900'000};

}  // namespace

int main(int argc, char** argv) {
  const long steps = program::argument(argc, argv, 1, 10);
  program::use_device(0);
  CUstream streams[2];
  for (CUstream& stream : streams) CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CUdeviceptr sums;
  CHECK(cuMemAlloc(&sums, static_cast<size_t>(steps) * 12));
  for (long i = 0; i < steps; ++i) {
    CUdeviceptr blocks[3];
    for (int k = 0; k < 3; ++k) {
      const CUstream stream = streams[(i + k) % 2];
      CHECK(cuMemAlloc(&blocks[k], kWords[k] * 4));
      CHECK(cuMemsetD32Async(blocks[k], static_cast<uint32_t>(3 * i + k), kWords[k], stream));
      CHECK(cuMemcpyDtoDAsync(sums + (3 * i + k) * 4, blocks[k] + (kWords[k] - 1) * 4, 4, stream));
      if (k == 1) CHECK(cuMemFree(blocks[0]));
    }
    CHECK(cuMemFree(blocks[1]));
    CHECK(cuMemFree(blocks[2]));
  }
  CHECK(cuCtxSynchronize());
  const std::vector<uint32_t> seen =
      program::download<uint32_t>(sums, static_cast<size_t>(steps) * 3);
  bool good = true;
  for (size_t i = 0; i < seen.size(); ++i) good = good && seen[i] == i;
  std::printf("checksum %016llx\n", static_cast<unsigned long long>(program::checksum(seen)));
  return program::finish(good);
}

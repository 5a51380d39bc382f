// SPDX-License-Identifier: Apache-2.0
// Histogram of bytes by atomics in shared and global memory. Argument: number of bytes (default
// 200000).
#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

int main(int argc, char** argv) {
  const uint32_t n = static_cast<uint32_t>(program::argument(argc, argv, 1, 200000));
  program::use_device(0);
  CUfunction histogram = program::load(kKernelsPtx, "histogram");
  std::vector<uint8_t> in(n);
  std::vector<uint32_t> expected(256);
  uint32_t state = 12345;
  for (uint8_t& byte : in) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<uint8_t>((state >> 16) * (state >> 24) >> 8);
    expected[byte]++;
  }
  CUdeviceptr din = program::upload(in), dbins;
  CHECK(cuMemAlloc(&dbins, 256 * sizeof(uint32_t)));
  CHECK(cuMemsetD32(dbins, 0, 256));
  CHECK(program::launch(histogram, 16, 256, nullptr, din, n, dbins));
  const std::vector<uint32_t> bins = program::download<uint32_t>(dbins, 256);
  std::printf("histogram: %u bytes, bin 0 %u, bin 255 %u, checksum %016llx\n", n, bins[0],
              bins[255], static_cast<unsigned long long>(program::checksum(bins)));
  return program::finish(bins == expected);
}

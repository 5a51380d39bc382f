// SPDX-License-Identifier: Apache-2.0
// Sum of a vector: warp shuffles, shared memory between warps, partial sums added on the host.
// Argument: elements (default 200000).
#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

int main(int argc, char** argv) {
  const uint32_t n = static_cast<uint32_t>(program::argument(argc, argv, 1, 200000));
  constexpr uint32_t kBlocks = 32;
  program::use_device(0);
  CUfunction reduce = program::load(kKernelsPtx, "reduce");
  std::vector<uint32_t> in(n);
  uint32_t expected = 0;
  for (uint32_t i = 0; i < n; i++) {
    in[i] = i * 2654435761u >> 20;
    expected += in[i];
  }
  CUdeviceptr din = program::upload(in), dpartial;
  CHECK(cuMemAlloc(&dpartial, kBlocks * sizeof(uint32_t)));
  CHECK(program::launch(reduce, kBlocks, 256, nullptr, din, dpartial, n));
  uint32_t sum = 0;
  for (uint32_t partial : program::download<uint32_t>(dpartial, kBlocks)) sum += partial;
  std::printf("reduction: %u elements, sum %u, expected %u\n", n, sum, expected);
  return program::finish(sum == expected);
}

// SPDX-License-Identifier: Apache-2.0
// Times of a few kernels by the device's clock: prints the milliseconds between events, round by
// round, and their sum. On the software GPU's simulated clock the lines repeat exactly. Elsewhere
// they are timings. Arguments: rounds (default 10), kernels per round (default 4).
#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

int main(int argc, char** argv) {
  const long rounds = program::argument(argc, argv, 1, 10),
             kernels = program::argument(argc, argv, 2, 4);
  constexpr uint32_t kWords = 1 << 14;
  program::use_device(0);
  CUfunction affine = program::load(kKernelsPtx, "affine");
  CUdeviceptr data = program::upload(std::vector<uint32_t>(kWords, 1));
  CUevent begin, end;
  CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
  CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
  double sum_ms = 0;
  for (long round = 0; round < rounds; round++) {
    CHECK(cuEventRecord(begin, nullptr));
    for (long i = 0; i < kernels; i++)
      CHECK(program::launch(affine, kWords / 256, 256, nullptr, data, 3u, 1u, kWords));
    CHECK(cuEventRecord(end, nullptr));
    CHECK(cuEventSynchronize(end));
    float ms = 0;
    CHECK(cuEventElapsedTime(&ms, begin, end));
    std::printf("round %ld: %.4f ms\n", round, static_cast<double>(ms));
    sum_ms += static_cast<double>(ms);
  }
  std::printf("sum: %.4f ms\n", sum_ms);
  uint32_t expected = 1;
  for (long i = 0; i < rounds * kernels; i++) expected = expected * 3 + 1;
  return program::finish(program::download<uint32_t>(data, kWords)[kWords - 1] == expected);
}

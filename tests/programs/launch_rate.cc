// SPDX-License-Identifier: Apache-2.0
// The cost of a launch: enqueueing alone, launch and wait, and the sustained rate with a full
// queue. Prints times, so transcripts differ. The count of launches that ran is checked. Argument:
// launches (default 5000).
#include <algorithm>

#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

int main(int argc, char** argv) {
  const uint32_t n = static_cast<uint32_t>(program::argument(argc, argv, 1, 5000));
  program::use_device(0);
  CUfunction nothing = program::load(kKernelsPtx, "nothing");
  CUfunction affine = program::load(kKernelsPtx, "affine");
  CUdeviceptr counter;
  CHECK(cuMemAlloc(&counter, 4));
  CHECK(cuMemsetD32(counter, 0, 1));
  auto launch_nothing = [&] {
    CHECK(cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  };
  for (int i = 0; i < 20; i++) launch_nothing();
  CHECK(cuCtxSynchronize());

  // Few enough that no queue fills up.
  const uint32_t burst = std::min<uint32_t>(n, 200);
  double best = 1e30;
  for (int round = 0; round < 5; round++) {
    const double start = program::seconds_now();
    for (uint32_t i = 0; i < burst; i++) launch_nothing();
    best = std::min(best, (program::seconds_now() - start) / burst);
    CHECK(cuCtxSynchronize());
  }
  std::printf("enqueue        %8.2f us\n", best * 1e6);

  std::vector<double> latencies;
  for (uint32_t i = 0; i < std::min<uint32_t>(n, 1000); i++) {
    const double start = program::seconds_now();
    launch_nothing();
    CHECK(cuCtxSynchronize());
    latencies.push_back(program::seconds_now() - start);
  }
  std::sort(latencies.begin(), latencies.end());
  std::printf("launch + sync  %8.2f us median, %8.2f us at 99 %%\n",
              latencies[latencies.size() / 2] * 1e6, latencies[latencies.size() * 99 / 100] * 1e6);

  const double start = program::seconds_now();
  for (uint32_t i = 0; i < n; i++)
    CHECK(program::launch(affine, 1, 32, nullptr, counter, 1u, 1u, 1u));
  CHECK(cuCtxSynchronize());
  std::printf("sustained      %8.0f launches/s\n", n / (program::seconds_now() - start));
  const uint32_t counted = program::download<uint32_t>(counter, 1)[0];
  return program::finish(counted == n);
}

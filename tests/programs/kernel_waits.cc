// SPDX-License-Identifier: Apache-2.0
// Kernels that are each waited for: what a program pays that looks at every result before it goes
// on. Prints times, so transcripts differ. Arguments: kernels (default 2000), rounds of a kernel's
// loop (default 100: about half a millisecond of the software GPU on two processors).
#include <time.h>

#include <algorithm>

#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

constexpr unsigned kBlocks = 8, kThreads = 256;

double processor_seconds() {
  timespec spent;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) * 1e-9;
}

}  // namespace

int main(int argc, char** argv) {
  const auto kernels = static_cast<uint32_t>(program::argument(argc, argv, 1, 2000));
  const auto rounds = static_cast<uint32_t>(program::argument(argc, argv, 2, 100));
  program::use_device(0);
  CUfunction work = program::load(kKernelsPtx, "share_short");
  CUdeviceptr out;
  CHECK(cuMemAlloc(&out, 4));
  CHECK(cuMemsetD32(out, 0, 1));
  auto launch_and_wait = [&] {
    CHECK(program::launch(work, kBlocks, kThreads, nullptr, out, rounds));
    CHECK(cuCtxSynchronize());
  };
  for (int i = 0; i < 20; i++) launch_and_wait();

  std::vector<double> times;
  const double start = program::seconds_now(), spent = processor_seconds();
  for (uint32_t i = 0; i < kernels; i++) {
    const double before = program::seconds_now();
    launch_and_wait();
    times.push_back(program::seconds_now() - before);
  }
  const double all = program::seconds_now() - start, processor = processor_seconds() - spent;
  std::sort(times.begin(), times.end());
  std::printf("launch + wait  %8.1f us median, %8.1f us at 99 %%, %.3f s in all\n",
              times[times.size() / 2] * 1e6, times[times.size() * 99 / 100] * 1e6, all);
  std::printf("processor      %8.1f us each\n", processor / kernels * 1e6);
  return program::finish(program::download<uint32_t>(out, 1)[0] == 0);
}

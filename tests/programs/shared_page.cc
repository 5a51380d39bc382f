// SPDX-License-Identifier: Apache-2.0
// A kernel and this program take turns through a word of pinned memory while the kernel runs, then
// the same in managed memory. This needs a page that GPU and program both reach: natively, or
// through Tendril when the server is on this host. Arguments: turns (default 100), looks that the
// kernel takes before it gives up (default 1000 million).
#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

bool take_turns(CUfunction kernel, volatile uint32_t* word, CUdeviceptr address, uint32_t turns,
                uint32_t patience) {
  *word = 0;
  CHECK(program::launch(kernel, 1, 1, nullptr, address, turns, patience));
  CUevent done;
  CHECK(cuEventCreate(&done, CU_EVENT_DISABLE_TIMING));
  CHECK(cuEventRecord(done, nullptr));
  for (uint32_t turn = 0; turn < turns; ++turn) {
    *word = 2 * turn + 1;
    while (*word != 2 * turn + 2) {
      if (cuEventQuery(done) == CUDA_ERROR_NOT_READY || *word == 2 * turn + 2) continue;
      std::printf("the kernel gave up at turn %u\n", turn);
      return false;
    }
  }
  CHECK(cuEventSynchronize(done));
  CHECK(cuEventDestroy(done));
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const auto turns = static_cast<uint32_t>(program::argument(argc, argv, 1, 100));
  const auto patience = static_cast<uint32_t>(program::argument(argc, argv, 2, 1'000'000'000));
  program::use_device(0);
  CUfunction kernel = program::load(kKernelsPtx, "take_turns");
  void* pinned = nullptr;
  CUdeviceptr address = 0, managed = 0;
  CHECK(cuMemHostAlloc(&pinned, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  CHECK(cuMemHostGetDevicePointer(&address, pinned, 0));
  const bool first = take_turns(kernel, static_cast<uint32_t*>(pinned), address, turns, patience);
  CHECK(cuMemFreeHost(pinned));
  int concurrent = 0;
  CHECK(cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0));
  bool second = true;
  if (concurrent != 0) {
    CHECK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
    second = take_turns(kernel, reinterpret_cast<uint32_t*>(managed), managed, turns, patience);
    CHECK(cuMemFree(managed));
  }
  std::printf("%u turns in pinned memory%s\n", turns,
              concurrent != 0 ? ", and in managed memory" : "");
  return program::finish(first && second);
}

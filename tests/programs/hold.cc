// SPDX-License-Identifier: Apache-2.0
// Keeps memory and the slice busy for a while and prints one line a second: something to kill, list
// and watch. Checks at the end that its memory is intact. Arguments: MiB (default 64), seconds
// (default 5).
#include <time.h>

#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

int main(int argc, char** argv) {
  const size_t bytes = static_cast<size_t>(program::argument(argc, argv, 1, 64)) << 20;
  const long seconds = program::argument(argc, argv, 2, 5);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  program::use_device(0);
  CUfunction affine = program::load(kKernelsPtx, "affine");
  CUdeviceptr data;
  CHECK(cuMemAlloc(&data, bytes));
  CHECK(cuMemsetD32(data, 7, bytes / 4));
  CHECK(cuCtxSynchronize());
  std::printf("holding %zu MiB\n", bytes >> 20);
  uint32_t expected = 7;
  for (long second = 1; second <= seconds; second++) {
    CHECK(program::launch(affine, 4, 256, nullptr, data, 3u, 1u, 1024u));
    CHECK(cuCtxSynchronize());
    expected = expected * 3 + 1;
    const timespec one_second = {1, 0};
    nanosleep(&one_second, nullptr);
    std::printf("held for %ld s\n", second);
  }
  const std::vector<uint32_t> words = program::download<uint32_t>(data, 1024);
  uint32_t last = 0;
  CHECK(cuMemcpyDtoH(&last, data + bytes - 4, 4));
  return program::finish(words[0] == expected && words[1023] == expected && last == 7);
}

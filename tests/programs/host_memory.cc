// SPDX-License-Identifier: Apache-2.0
// Pinned and managed memory that comes and goes with each step, used by copies and a
// memset, with one wait. For counting the cost of allocating it (tests/cost). Argument: steps
// (default 10).
#include "tests/programs/program.h"

namespace {

constexpr size_t kWords = 20'000;

}  // namespace

int main(int argc, char** argv) {
  const long steps = program::argument(argc, argv, 1, 10);
  program::use_device(0);
  CUstream stream;
  CUdeviceptr data;
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemAlloc(&data, kWords * 4));
  bool good = true;
  for (long i = 0; i < steps; ++i) {
    uint32_t *out = nullptr, *back = nullptr;
    CUdeviceptr managed = 0;
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&out), kWords * 4));
    CHECK(cuMemAllocHost(reinterpret_cast<void**>(&back), kWords * 4));
    CHECK(cuMemAllocManaged(&managed, kWords * 4, CU_MEM_ATTACH_GLOBAL));
    for (size_t k = 0; k < kWords; ++k) out[k] = static_cast<uint32_t>(i + k);
    CHECK(cuMemcpyHtoDAsync(data, out, kWords * 4, stream));
    CHECK(cuMemcpyDtoHAsync(back, data, kWords * 4, stream));
    CHECK(cuMemsetD32Async(managed, static_cast<uint32_t>(i), kWords, stream));
    CHECK(cuCtxSynchronize());
    const auto* words = reinterpret_cast<const uint32_t*>(managed);
    good = good && back[kWords - 1] == static_cast<uint32_t>(i + kWords - 1) &&
           words[kWords - 1] == static_cast<uint32_t>(i);
    CHECK(cuMemFreeHost(out));
    CHECK(cuMemFreeHost(back));
    CHECK(cuMemFree(managed));
  }
  return program::finish(good);
}

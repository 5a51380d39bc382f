// SPDX-License-Identifier: Apache-2.0
// Large copies both ways, pinned and pageable, at odd places, before and after kernels of the same
// stream, into memory that is freed and comes again. Each word is compared. Argument: rounds
// (default 6).
#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

constexpr size_t kMostWords = 3u << 20;
constexpr uint32_t kFactor = 1664525;

uint32_t wrong = 0;
uint64_t sum = 0;

void compare(const uint32_t* words, size_t count, uint32_t seed, uint32_t factor, uint32_t add) {
  for (size_t i = 0; i < count; i++) {
    wrong += words[i] != (static_cast<uint32_t>(i) * 7 + seed) * factor + add;
    sum += words[i];
  }
}

void fill(uint32_t* words, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; i++) words[i] = static_cast<uint32_t>(i) * 7 + seed;
}

struct Bench {
  CUfunction affine;
  CUstream stream;
  void work(CUdeviceptr at, size_t words, uint32_t factor, uint32_t add, CUstream where) {
    const unsigned grid = static_cast<unsigned>((words + 255) / 256);
    CHECK(program::launch(affine, grid, 256, where, at, factor, add, static_cast<uint32_t>(words)));
  }

  // Nothing runs before the copies, and what comes after waits for them.
  void one_by_one(CUdeviceptr at, uint32_t* there, uint32_t* back, size_t words, uint32_t seed) {
    fill(there, words, seed);
    CHECK(cuMemcpyHtoD(at, there, words * 4));
    std::memset(there, 0xee, words * 4);
    CHECK(cuMemcpyDtoH(back, at, words * 4));
    compare(back, words, seed, 1, 0);
    work(at, words, kFactor, seed, nullptr);
    CHECK(cuMemcpyDtoH(back, at, words * 4));
    compare(back, words, seed, kFactor, seed);
  }

  // A copy comes after the kernel before it, and before the kernel after it.
  void in_order(CUdeviceptr at, uint32_t* there, uint32_t* back, size_t words, uint32_t seed,
                CUstream where) {
    fill(there, words, seed);
    work(at, words, 3, 1, where);
    CHECK(cuMemcpyHtoDAsync(at, there, words * 4, where));
    work(at, words, kFactor, seed, where);
    CHECK(cuMemcpyDtoHAsync(back, at, words * 4, where));
    work(at, words, 5, 2, where);
    CHECK(cuStreamSynchronize(where));
    compare(back, words, seed, kFactor, seed);
    CHECK(cuMemcpyHtoDAsync(at, there, words * 4, where));  // nothing is before it
    work(at, words, kFactor, 1, where);
    CHECK(cuStreamSynchronize(where));
    CHECK(cuMemcpyDtoHAsync(back, at, words * 4, where));
    CHECK(cuStreamSynchronize(where));
    compare(back, words, seed, kFactor, 1);
  }
};

}  // namespace

int main(int argc, char** argv) {
  const long rounds = program::argument(argc, argv, 1, 6);
  program::use_device(0);
  Bench bench;
  bench.affine = program::load(kKernelsPtx, "affine");
  CHECK(cuStreamCreate(&bench.stream, CU_STREAM_NON_BLOCKING));
  std::vector<uint32_t> there(kMostWords), back(kMostWords);
  void *pinned = nullptr, *pinned_back = nullptr;
  CHECK(cuMemAllocHost(&pinned, kMostWords * 4));
  CHECK(cuMemAllocHost(&pinned_back, kMostWords * 4));
  auto* const from = static_cast<uint32_t*>(pinned);
  auto* const to = static_cast<uint32_t*>(pinned_back);
  for (long round = 0; round < rounds; round++) {
    const auto seed = static_cast<uint32_t>(round * 101 + 1);
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, kMostWords * 4));
    size_t words = kMostWords;
    for (uint32_t i = 0; i < 4; i++) {
      const CUdeviceptr at = memory + (i == 0 ? 0 : 4 * (1000 + i));
      bench.one_by_one(at, from, to, words, seed + i);
      bench.one_by_one(at, there.data(), back.data(), words, seed + 10 + i);
      bench.in_order(at, from, to, words, seed + 20 + i, bench.stream);
      bench.in_order(at, from, to, words, seed + 30 + i, nullptr);
      words = words / 4 - 7 * i;
    }
    CHECK(cuMemFree(memory));
  }
  std::printf("large_copies: %ld rounds, %u wrong, sum %llu\n", rounds, wrong,
              static_cast<unsigned long long>(sum));
  return program::finish(wrong == 0);
}

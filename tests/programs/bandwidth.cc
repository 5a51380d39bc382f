// SPDX-License-Identifier: Apache-2.0
// Copy bandwidth, best of several rounds, pinned and pageable. Prints times, so transcripts differ.
// Argument: MiB (default 64).
#include "kernels.ptx.gen.h"
#include "tests/programs/program.h"

namespace {

constexpr int kRounds = 5;

template <typename Copy>
void measure(const char* what, size_t bytes, Copy copy) {
  double best = 1e30;
  for (int round = 0; round < kRounds; round++) {
    CHECK(cuCtxSynchronize());
    const double start = program::seconds_now();
    copy();
    CHECK(cuCtxSynchronize());
    const double took = program::seconds_now() - start;
    if (took < best) best = took;
  }
  std::printf("%-14s %8.2f GB/s\n", what, static_cast<double>(bytes) / best / 1e9);
}

}  // namespace

int main(int argc, char** argv) {
  const size_t bytes = static_cast<size_t>(program::argument(argc, argv, 1, 64)) << 20;
  program::use_device(0);
  std::vector<uint8_t> pageable(bytes);
  // Incompressible, so that no transport looks better than it is.
  uint64_t state = 88172645463325252u;
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(&pageable[i], &state, 8);
  }
  void* pinned;
  CUdeviceptr a, b;
  CHECK(cuMemAllocHost(&pinned, bytes));
  std::memcpy(pinned, pageable.data(), bytes);
  CHECK(cuMemAlloc(&a, bytes));
  CHECK(cuMemAlloc(&b, bytes));
  std::printf("bandwidth: %zu MiB\n", bytes >> 20);
  measure("HtoD pinned", bytes, [&] { CHECK(cuMemcpyHtoDAsync(a, pinned, bytes, nullptr)); });
  measure("DtoH pinned", bytes, [&] { CHECK(cuMemcpyDtoHAsync(pinned, a, bytes, nullptr)); });
  measure("HtoD pageable", bytes, [&] { CHECK(cuMemcpyHtoD(a, pageable.data(), bytes)); });
  std::vector<uint8_t> back(bytes);
  measure("DtoH pageable", bytes, [&] { CHECK(cuMemcpyDtoH(back.data(), a, bytes)); });
  measure("DtoD", bytes, [&] { CHECK(cuMemcpyDtoDAsync(b, a, bytes, nullptr)); });
  return program::finish(back == pageable && std::memcmp(pinned, back.data(), bytes) == 0);
}

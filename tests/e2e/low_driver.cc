// SPDX-License-Identifier: Apache-2.0
// The software GPU's driver, but for addresses of device memory: they are ones that a process could have for itself, as
// NVIDIA's are, given out one block after the other from kFirst on, without those where this process has something.
// Nothing lies behind them. For test_memory.py, which has something of its own at these addresses in the client.
#include <sys/mman.h>

#include <cstdint>

namespace {
constexpr uint64_t kFirst = 0x6f00'0000'0000, kBlock = 2 << 20;
uint64_t next = kFirst;
}  // namespace

extern "C" int cuMemAlloc_v2(unsigned long long* address, size_t) {
  for (;; next += kBlock) {
    void* const wanted = reinterpret_cast<void*>(next);
    void* const got = mmap(wanted, kBlock, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == wanted) break;
    if (got != MAP_FAILED) munmap(got, kBlock);
  }
  *address = next;
  next += kBlock;
  return 0;
}

extern "C" int cuMemFree_v2(unsigned long long) { return 0; }

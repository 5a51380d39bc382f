// SPDX-License-Identifier: Apache-2.0
// See client_room.h. Linux gives out addresses from the top. It begins below the stack, at a random
// place: within 1 TiB on most machines, within 16 TiB where vm.mmap_rnd_bits is 32 (Ubuntu 24.04).
#include "worker/core/client_room.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>

namespace tendril::worker {
namespace {

constexpr uint64_t kTebibyte = uint64_t{1} << 40;
#if defined(__x86_64__)
// Below these 20 TiB, of 128, the executables and their heaps begin within 102.
constexpr uint64_t kClientsBegin = 108 * kTebibyte;
#else
constexpr uint64_t kClientsBegin = 208 * kTebibyte;  // of 256
#endif
constexpr uint64_t kRandomBytes = 4 * kTebibyte;

ClientRoom g_room;

// The lowest mapping above `from`. 0: there is none.
uint64_t lowest_mapping(uint64_t from) {
  FILE* const maps = fopen("/proc/self/maps", "re");
  if (maps == nullptr) return 0;
  char line[512];
  uint64_t lowest = 0;
  unsigned long begin = 0, end = 0;
  while (lowest == 0 && fgets(line, sizeof(line), maps) != nullptr)
    if (sscanf(line, "%lx-%lx ", &begin, &end) == 2 && end > from) lowest = begin;
  fclose(maps);
  return lowest;
}

}  // namespace

void leave_room_for_clients() {
#if !defined(__SANITIZE_THREAD__)  // it wants all memory in the part that is taken here
  uint64_t random = 0;
  if (getrandom(&random, sizeof(random), 0) != sizeof(random)) return;
  const uint64_t begin = kClientsBegin - random % kRandomBytes / 4096 * 4096;
  const uint64_t end = lowest_mapping(begin);
  if (end <= begin) return;
  void* const wanted = reinterpret_cast<void*>(begin);
  void* const got = mmap(wanted, end - begin, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  // An old kernel takes the flag for a hint.
  if (got != MAP_FAILED && got != wanted) munmap(got, end - begin);
  if (got == wanted) g_room = {begin, end};
#endif
}

ClientRoom room_for_clients() { return g_room; }

}  // namespace tendril::worker

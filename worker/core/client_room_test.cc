// SPDX-License-Identifier: Apache-2.0
// Tests where a process maps after it has left room. Each case runs in its own child.
#include "worker/core/client_room.h"

#include <gtest/gtest.h>
#include <stdint.h>
#include <sys/mman.h>

#include <set>

#include "worker/core/testing/in_child.h"

namespace tendril::worker {
namespace {

uint64_t mapped(size_t bytes) {
  return reinterpret_cast<uint64_t>(
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

// What a process maps afterwards lies farther from here than any program's memory does.
TEST(ClientRoom, LiesAboveWhatIsMappedAfterwards) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer wants all memory near the stack";
#endif
  const uint64_t here = mapped(1 << 20);
  EXPECT_EQ(0, in_child([here] {
              leave_room_for_clients();
              for (const size_t bytes : {size_t{1} << 20, size_t{1} << 30, size_t{8} << 20}) {
                const uint64_t at = mapped(bytes);
                if (at > here || here - at < uint64_t{4} << 40) return 1;
                if (at + bytes > room_for_clients().begin) return 2;
              }
              return room_for_clients().begin < room_for_clients().end ? 0 : 3;
            }));
}

TEST(ClientRoom, BeginsAtARandomPlace) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer wants all memory near the stack";
#endif
  std::set<int> seen;
  for (int i = 0; i < 8; ++i)
    seen.insert(in_child([] {
      leave_room_for_clients();
      return static_cast<int>(mapped(1 << 20) >> 34 & 0xff);
    }));
  EXPECT_GT(seen.size(), 4u);
}

}  // namespace
}  // namespace tendril::worker

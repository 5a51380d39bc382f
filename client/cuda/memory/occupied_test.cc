// SPDX-License-Identifier: Apache-2.0
// Tests of the neighbourhood of an address, from lines as /proc has them.
#include "client/cuda/memory/occupied.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace tendril::client::cuda {
namespace {

constexpr uint64_t kGiB = 1ull << 30;

bool around(const std::string& text, uint64_t base, uint64_t bytes, uint64_t* first,
            uint64_t* end) {
  const int file = memfd_create("maps", MFD_CLOEXEC);
  EXPECT_EQ(write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  lseek(file, 0, SEEK_SET);
  const bool found = occupied_around(file, base, bytes, first, end);
  close(file);
  return found;
}

TEST(Occupied, IsTheNeighbourhoodAndWhereItGrows) {
  const std::string text =
      "10000000-10001000 r-xp 00000000 fe:00 1   /bin/x\n"
      "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \n"
      "7f0020000000-7f0030000000 r-xp 00000000 fe:00 1   /lib/y\n"
      "7fff00000000-7fff00021000 rw-p 00000000 00:00 0   [stack]\n";
  uint64_t first = 0, end = 0;
  ASSERT_TRUE(around(text, 0x7f0024000000, 0x1000, &first, &end));
  EXPECT_EQ(first, 0x7f0000000000 - 4 * kGiB);
  EXPECT_EQ(end, 0x7f0030000000u);
  EXPECT_FALSE(around(text, 0x7f0010000000, 0x1000, &first, &end))
      << "nothing is at the very place";
  EXPECT_FALSE(around("nonsense\n", 0x1000, 0x1000, &first, &end));
  EXPECT_FALSE(around("", 0x1000, 0x1000, &first, &end));
}

TEST(Occupied, FindsWhatThisProcessHas) {
  void* memory = mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto at = reinterpret_cast<uint64_t>(memory);
  uint64_t first = 0, end = 0;
  ASSERT_TRUE(occupied_around(at, 1 << 20, &first, &end));
  EXPECT_LE(first, at);
  EXPECT_GE(end, at + (1 << 20));
  munmap(memory, 1 << 20);
}

}  // namespace
}  // namespace tendril::client::cuda

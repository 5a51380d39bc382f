// SPDX-License-Identifier: Apache-2.0
// Which freed host memory is taken again, and when the GPU is known to be done with it.
#include "client/cuda/memory/kept_pages.h"

#include <gtest/gtest.h>

namespace tendril::client::cuda {
namespace {

Context* const kMine = reinterpret_cast<Context*>(0x1000);
Context* const kOthers = reinterpret_cast<Context*>(0x2000);

KeptPages::Block kept_block(uint64_t base, uint64_t bytes, Context* context, uint64_t calls) {
  KeptPages::Block block;
  block.range.base = base;
  block.range.bytes = bytes;
  block.range.context = context;
  block.calls = calls;
  return block;
}
bool any(const KeptPages::Block&) { return true; }

TEST(KeptPages, TakesTheYoungestOfThatManyPages) {
  KeptPages kept;
  kept.keep(kept_block(0x10000, 5000, kMine, 1));
  kept.keep(kept_block(0x20000, 8192, kMine, 2));
  kept.keep(kept_block(0x30000, 5000, kOthers, 3));
  EXPECT_EQ(kept.take(kMine, 4096, any).range.base, 0u);
  EXPECT_EQ(kept.take(kMine, 6000, any).range.base, 0x20000u);
  EXPECT_EQ(kept.take(kMine, 6000, any).range.base, 0x10000u);
  EXPECT_EQ(kept.take(kMine, 6000, any).range.base, 0u);
  EXPECT_EQ(kept.take_any(kOthers).range.base, 0x30000u);
  EXPECT_EQ(kept.take_any(kOthers).range.base, 0u);
}

TEST(KeptPages, KeepsWithinItsBounds) {
  KeptPages kept;
  for (uint64_t i = 1; i <= KeptPages::kBlocksMost; ++i)
    kept.keep(kept_block(i << 20, 10, kMine, i));
  EXPECT_FALSE(kept.full());
  kept.keep(kept_block(0x500000000, KeptPages::kBytesMost, kMine, 0));
  EXPECT_TRUE(kept.full());
  EXPECT_EQ(kept.oldest().range.base, 1u << 20);
  EXPECT_TRUE(kept.full()) << "too many bytes";
}

TEST(KeptPages, AWaitCoversWhatWasSentBeforeIt) {
  // Freed after 10 calls. A wait that began after 10 or more covers it.
  EXPECT_TRUE(KeptPages::covered(10, 10));
  EXPECT_TRUE(KeptPages::covered(10, 12));
  EXPECT_TRUE(KeptPages::covered(10, 9)) << "the tenth call was the wait itself";
  EXPECT_FALSE(KeptPages::covered(10, 8)) << "another call came after the wait";
}

}  // namespace
}  // namespace tendril::client::cuda

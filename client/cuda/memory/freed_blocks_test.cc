// SPDX-License-Identifier: Apache-2.0
// What is kept, what fits, and what has to go.
#include "client/cuda/memory/freed_blocks.h"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace tendril::client::cuda {
namespace {

constexpr uint64_t kStream = 7, kPool = 5;

class FreedBlocksTest : public ::testing::Test {
 protected:
  static FreedBlock block(uint64_t bytes, uint64_t address = 0, uint64_t stream = kStream) {
    return {nullptr, stream, kPool, bytes, address};
  }
  bool keep(const FreedBlock& block, bool allowed = true) {
    return blocks_.keep(
        block, [allowed] { return allowed; }, send_);
  }
  FreedBlocks blocks_;
  std::vector<uint64_t> sent_;
  std::function<void(const FreedBlock&)> send_ = [this](const FreedBlock& b) {
    sent_.push_back(b.address);
  };
};

TEST_F(FreedBlocksTest, GivesTheLatestOfTheSameKind) {
  ASSERT_TRUE(keep(block(100, 1)));
  ASSERT_TRUE(keep(block(100, 2)));
  ASSERT_TRUE(keep(block(200, 3)));
  ASSERT_TRUE(keep(block(100, 4, kStream + 1)));
  EXPECT_EQ(blocks_.take(block(100)), 2u);
  EXPECT_EQ(blocks_.take(block(100)), 1u);
  EXPECT_EQ(blocks_.take(block(100)), 0u) << "of another size, or of another stream";
  EXPECT_EQ(blocks_.take({nullptr, kStream, kPool + 1, 200, 0}), 0u) << "of another pool";
  EXPECT_EQ(blocks_.take({reinterpret_cast<Context*>(8), kStream, kPool, 200, 0}), 0u)
      << "of another context";
  EXPECT_EQ(blocks_.take(block(200)), 3u);
  EXPECT_FALSE(blocks_.empty());
  EXPECT_EQ(blocks_.take(block(100, 0, kStream + 1)), 4u);
  EXPECT_TRUE(blocks_.empty());
  EXPECT_TRUE(sent_.empty());
}

TEST_F(FreedBlocksTest, KeepsNothingThatItMayNot) {
  EXPECT_FALSE(keep(block(100, 1), false));
  EXPECT_FALSE(keep(block(FreedBlocks::kBytesMax + 1, 1)));
  EXPECT_TRUE(blocks_.empty());
  EXPECT_TRUE(sent_.empty());
}

TEST_F(FreedBlocksTest, TheOldestGoFirst) {
  for (uint64_t i = 0; i < FreedBlocks::kBlocksMax; ++i) ASSERT_TRUE(keep(block(8, i + 1)));
  EXPECT_TRUE(sent_.empty());
  ASSERT_TRUE(keep(block(8, 1000)));
  EXPECT_EQ(sent_, std::vector<uint64_t>{1});
  sent_.clear();
  ASSERT_TRUE(keep(block(FreedBlocks::kBytesMax - 16, 2000)));
  EXPECT_EQ(sent_.size(), FreedBlocks::kBlocksMax - 2u) << "all but the two that there is room for";
  EXPECT_EQ(blocks_.take(block(8)), 1000u);
}

TEST_F(FreedBlocksTest, GivesBackByStreamAndSize) {
  for (uint64_t i = 1; i <= 4; ++i) ASSERT_TRUE(keep(block(i * 100, i, kStream + i % 2)));
  blocks_.give_back(kStream, 0, send_);
  EXPECT_EQ(sent_, (std::vector<uint64_t>{2, 4}));
  blocks_.give_back(FreedBlocks::kAnyStream, 300, send_);
  EXPECT_EQ(sent_, (std::vector<uint64_t>{2, 4, 3}));
  blocks_.give_back(FreedBlocks::kAnyStream, 0, send_);
  EXPECT_EQ(sent_, (std::vector<uint64_t>{2, 4, 3, 1}));
  EXPECT_TRUE(blocks_.empty());
}

}  // namespace
}  // namespace tendril::client::cuda

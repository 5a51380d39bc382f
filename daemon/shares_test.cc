// SPDX-License-Identifier: Apache-2.0
// The table of what workers share: who may open, and who pays when the owner does not.
#include "daemon/shares.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace tendril::daemon {
namespace {

using wire::ShareAnswer;
using wire::ShareKind;

constexpr uint32_t kGpu = 3, kUser = 7;

wire::ShareRecord record_of(ShareKind kind, uint64_t bytes = 0) {
  wire::ShareRecord record = {};
  record.kind = kind;
  record.gpu_index = kGpu;
  record.bytes = bytes;
  record.content[5] = 42;
  return record;
}

base::Fd descriptor() { return base::Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

class SharesTest : public ::testing::Test {
 protected:
  wire::ShareRecord publish(uint64_t session, ShareKind kind, uint64_t bytes = 0) {
    wire::ShareRecord record = record_of(kind, bytes);
    base::Fd fd = kind == ShareKind::kAllocation ? descriptor() : base::Fd();
    EXPECT_EQ(shares_.publish(session, kUser, &record, std::move(fd)), ShareAnswer::kDone);
    return record;
  }
  ShareAnswer fetch(uint64_t session, wire::ShareRecord record, uint32_t user = kUser) {
    fetched_ = record;
    return shares_.fetch(session, user, &fetched_, &fd_);
  }
  Shares shares_;
  wire::ShareRecord fetched_ = {};
  int fd_ = -1;
};

TEST_F(SharesTest, TokenOpensWhatItNames) {
  const wire::ShareRecord memory = publish(1, ShareKind::kMemory, 100);
  wire::ShareRecord asked = {};
  asked.kind = ShareKind::kMemory;
  memcpy(asked.token, memory.token, sizeof asked.token);
  EXPECT_EQ(fetch(2, asked), ShareAnswer::kDone);
  EXPECT_EQ(fetched_.content[5], 42);
  EXPECT_EQ(fetched_.bytes, 100u);
  EXPECT_EQ(fd_, -1);
  asked.kind = ShareKind::kEvent;
  EXPECT_EQ(fetch(2, asked), ShareAnswer::kUnknown) << "of another kind";
  asked.kind = ShareKind::kMemory;
  asked.token[0] ^= 1;
  EXPECT_EQ(fetch(2, asked), ShareAnswer::kUnknown);
}

TEST_F(SharesTest, HandlesAreForOneUserAndDescriptorsForAll) {
  EXPECT_EQ(fetch(2, publish(1, ShareKind::kMemory), kUser + 1), ShareAnswer::kOtherUser);
  EXPECT_EQ(fetch(2, publish(1, ShareKind::kEvent), kUser + 1), ShareAnswer::kOtherUser);
  EXPECT_EQ(fetch(2, publish(1, ShareKind::kAllocation), kUser + 1), ShareAnswer::kDone);
  EXPECT_GE(fd_, 0);
}

TEST_F(SharesTest, OnlyTheOwnerWithdraws) {
  const wire::ShareRecord event = publish(1, ShareKind::kEvent);
  shares_.withdraw(2, event, true);
  EXPECT_EQ(fetch(2, event), ShareAnswer::kDone);
  shares_.withdraw(1, event, true);
  EXPECT_EQ(fetch(2, event), ShareAnswer::kUnknown);
  EXPECT_EQ(shares_.size(), 0u);
}

TEST_F(SharesTest, OpenersPayForMemoryThatItsOwnerFreed) {
  const wire::ShareRecord memory = publish(1, ShareKind::kMemory, 100);
  EXPECT_EQ(fetch(2, memory), ShareAnswer::kDone);
  EXPECT_EQ(fetch(2, memory), ShareAnswer::kDone);
  EXPECT_EQ(fetch(3, memory), ShareAnswer::kDone);
  EXPECT_EQ(shares_.orphaned_bytes(2, kGpu), 0u) << "the owner pays";
  EXPECT_TRUE(shares_.withdraw(1, memory, true));
  EXPECT_EQ(shares_.orphaned_bytes(2, kGpu), 100u) << "once, however often it is open";
  EXPECT_EQ(shares_.orphaned_bytes(3, kGpu), 0u);
  EXPECT_EQ(shares_.orphaned_bytes(2, kGpu + 1), 0u);
  shares_.release(2, memory);
  EXPECT_EQ(shares_.orphaned_bytes(2, kGpu), 100u);
  EXPECT_TRUE(shares_.release(2, memory));
  EXPECT_EQ(shares_.orphaned_bytes(3, kGpu), 100u) << "the next one pays";
  EXPECT_TRUE(shares_.end(3));
  EXPECT_EQ(shares_.size(), 0u);
}

TEST_F(SharesTest, ClosedDescriptorLeavesTheChargeWithTheOwner) {
  const wire::ShareRecord allocation = publish(1, ShareKind::kAllocation, 100);
  EXPECT_EQ(fetch(2, allocation), ShareAnswer::kDone);
  EXPECT_FALSE(shares_.withdraw(1, allocation, false));
  EXPECT_EQ(fetch(3, allocation), ShareAnswer::kUnknown);
  EXPECT_EQ(shares_.orphaned_bytes(2, kGpu), 0u);
  EXPECT_TRUE(shares_.withdraw(1, allocation, true));
  EXPECT_EQ(shares_.orphaned_bytes(2, kGpu), 100u);
}

TEST_F(SharesTest, EndOfTheOwnerLeavesOrphans) {
  const wire::ShareRecord kept = publish(1, ShareKind::kMemory, 100);
  publish(1, ShareKind::kMemory, 50);
  EXPECT_EQ(fetch(2, kept), ShareAnswer::kDone);
  EXPECT_TRUE(shares_.end(1));
  EXPECT_EQ(shares_.size(), 1u);
  EXPECT_EQ(shares_.orphaned_bytes(2, kGpu), 100u);
  EXPECT_EQ(fetch(3, kept), ShareAnswer::kUnknown);
}

TEST_F(SharesTest, IsBounded) {
  wire::ShareRecord record = {};
  ShareAnswer answer = ShareAnswer::kDone;
  size_t count = 0;
  for (; answer == ShareAnswer::kDone && count <= kSharesPerSessionMax; ++count) {
    record = record_of(ShareKind::kEvent);
    answer = shares_.publish(1, kUser, &record, {});
  }
  EXPECT_EQ(answer, ShareAnswer::kFull);
  EXPECT_EQ(shares_.size(), kSharesPerSessionMax);
  record = record_of(ShareKind::kEvent);
  EXPECT_EQ(shares_.publish(2, kUser, &record, {}), ShareAnswer::kDone);
  record = record_of(ShareKind::kMemory);
  EXPECT_EQ(shares_.publish(2, kUser, &record, descriptor()), ShareAnswer::kUnknown);
  record = record_of(ShareKind::kPool);
  EXPECT_EQ(shares_.publish(2, kUser, &record, {}), ShareAnswer::kUnknown);
  record = record_of(static_cast<ShareKind>(99));
  EXPECT_EQ(shares_.publish(2, kUser, &record, {}), ShareAnswer::kUnknown);
}

}  // namespace
}  // namespace tendril::daemon

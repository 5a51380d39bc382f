// SPDX-License-Identifier: Apache-2.0
// The table of what workers share: who may open, and who pays when the owner does not.
#include "daemon/exports.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace tendril::daemon {
namespace {

using wire::ExportAnswer;
using wire::ExportKind;

constexpr uint32_t kGpu = 3, kUser = 7;
constexpr uint64_t kLease = 10, kOtherLease = 11;

Exports::Peer peer(uint64_t session, uint64_t lease = kLease) { return {session, lease, kUser}; }

wire::ExportRecord record_of(ExportKind kind, uint64_t bytes = 0) {
  wire::ExportRecord record = {};
  record.kind = kind;
  record.gpu_index = kGpu;
  record.bytes = bytes;
  record.content[5] = 42;
  return record;
}

base::Fd descriptor() { return base::Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

class ExportsTest : public ::testing::Test {
 protected:
  wire::ExportRecord publish(uint64_t session, ExportKind kind, uint64_t bytes = 0) {
    wire::ExportRecord record = record_of(kind, bytes);
    base::Fd fd = kind == ExportKind::kAllocation ? descriptor() : base::Fd();
    EXPECT_EQ(exports_.publish(peer(session), &record, std::move(fd)), ExportAnswer::kDone);
    return record;
  }
  ExportAnswer fetch(uint64_t session, wire::ExportRecord record, uint32_t user = kUser) {
    fetched_ = record;
    return exports_.fetch({session, kLease, user}, &fetched_, &fd_, &charges_);
  }
  Exports exports_{16};
  wire::ExportRecord fetched_ = {};
  int fd_ = -1;
  bool charges_ = false;
};

TEST_F(ExportsTest, TokenOpensWhatItNames) {
  const wire::ExportRecord memory = publish(1, ExportKind::kMemory, 100);
  wire::ExportRecord asked = {};
  asked.kind = ExportKind::kMemory;
  memcpy(asked.token, memory.token, sizeof asked.token);
  EXPECT_EQ(fetch(2, asked), ExportAnswer::kDone);
  EXPECT_EQ(fetched_.content[5], 42);
  EXPECT_EQ(fetched_.bytes, 100u);
  EXPECT_EQ(fd_, -1);
  asked.kind = ExportKind::kEvent;
  EXPECT_EQ(fetch(2, asked), ExportAnswer::kUnknown) << "of another kind";
  asked.kind = ExportKind::kMemory;
  asked.token[0] ^= 1;
  EXPECT_EQ(fetch(2, asked), ExportAnswer::kUnknown);
}

TEST_F(ExportsTest, HandlesAreForOneUserAndDescriptorsForAll) {
  EXPECT_EQ(fetch(2, publish(1, ExportKind::kMemory), kUser + 1), ExportAnswer::kOtherUser);
  EXPECT_EQ(fetch(2, publish(1, ExportKind::kEvent), kUser + 1), ExportAnswer::kOtherUser);
  EXPECT_EQ(fetch(2, publish(1, ExportKind::kAllocation), kUser + 1), ExportAnswer::kDone);
  EXPECT_GE(fd_, 0);
}

TEST_F(ExportsTest, OnlyTheOwnerWithdraws) {
  const wire::ExportRecord event = publish(1, ExportKind::kEvent);
  exports_.withdraw(2, event, true);
  EXPECT_EQ(fetch(2, event), ExportAnswer::kDone);
  exports_.withdraw(1, event, true);
  EXPECT_EQ(fetch(2, event), ExportAnswer::kUnknown);
  EXPECT_EQ(exports_.size(), 0u);
}

TEST_F(ExportsTest, TheLeasePaysForMemoryThatItsOwnerFreed) {
  const wire::ExportRecord memory = publish(1, ExportKind::kMemory, 100);
  EXPECT_EQ(fetch(2, memory), ExportAnswer::kDone);
  EXPECT_EQ(fetch(2, memory), ExportAnswer::kDone);
  EXPECT_EQ(fetch(3, memory), ExportAnswer::kDone);
  EXPECT_FALSE(charges_);
  EXPECT_EQ(exports_.charged_bytes(kLease, kGpu), 0u) << "the owner pays";
  EXPECT_TRUE(exports_.withdraw(1, memory, true));
  EXPECT_EQ(exports_.charged_bytes(kLease, kGpu), 100u) << "once, however often it is open";
  EXPECT_EQ(exports_.charged_bytes(kLease, kGpu + 1), 0u);
  EXPECT_EQ(exports_.charged_bytes(kOtherLease, kGpu), 0u);
  EXPECT_FALSE(exports_.release(2, memory));
  EXPECT_FALSE(exports_.release(2, memory));
  EXPECT_EQ(exports_.charged_bytes(kLease, kGpu), 100u) << "the next one has it open";
  EXPECT_TRUE(exports_.end(3));
  EXPECT_EQ(exports_.charged_bytes(kLease, kGpu), 0u);
  EXPECT_EQ(exports_.size(), 0u);
}

TEST_F(ExportsTest, AnotherLeasePaysFromTheOpeningOn) {
  const wire::ExportRecord memory = publish(1, ExportKind::kMemory, 100);
  const wire::ExportRecord block = publish(1, ExportKind::kPoolPointer, 100);
  wire::ExportRecord asked = memory;
  EXPECT_EQ(exports_.fetch(peer(4, kOtherLease), &asked, &fd_, &charges_), ExportAnswer::kDone);
  EXPECT_TRUE(charges_);
  EXPECT_EQ(exports_.fetch(peer(5, kOtherLease), &asked, &fd_, &charges_), ExportAnswer::kDone);
  EXPECT_FALSE(charges_) << "the lease pays already";
  EXPECT_EQ(exports_.charged_bytes(kOtherLease, kGpu), 100u);
  EXPECT_EQ(exports_.charged_bytes(kLease, kGpu), 0u);
  exports_.end(1);
  EXPECT_EQ(exports_.charged_bytes(kOtherLease, kGpu), 100u)
      << "it had room for that from the start";
  EXPECT_FALSE(exports_.release(4, memory));
  EXPECT_TRUE(exports_.release(5, memory));
  EXPECT_EQ(exports_.charged_bytes(kOtherLease, kGpu), 0u);
  EXPECT_EQ(exports_.release(4, block), false) << "nobody had it open";
  EXPECT_EQ(exports_.size(), 0u);
}

TEST_F(ExportsTest, MemoryMayHaveADescriptorAndAnEventMayNot) {
  wire::ExportRecord memory = record_of(ExportKind::kMemory, 100);
  EXPECT_EQ(exports_.publish(peer(1), &memory, descriptor()), ExportAnswer::kDone);
  EXPECT_EQ(fetch(2, memory), ExportAnswer::kDone);
  EXPECT_GE(fd_, 0);
  wire::ExportRecord event = record_of(ExportKind::kEvent, 0);
  EXPECT_EQ(exports_.publish(peer(1), &event, descriptor()), ExportAnswer::kUnknown);
}

TEST_F(ExportsTest, ABlockOfAPoolKeepsItsPages) {
  wire::ExportRecord block = publish(1, ExportKind::kPoolPointer, 100);
  EXPECT_EQ(exports_.fetch(peer(4, kOtherLease), &block, &fd_, &charges_), ExportAnswer::kDone);
  EXPECT_EQ(exports_.charged_bytes(kOtherLease, kGpu), 2u << 20);
}

TEST_F(ExportsTest, ClosedDescriptorLeavesTheChargeWithTheOwner) {
  const wire::ExportRecord allocation = publish(1, ExportKind::kAllocation, 100);
  EXPECT_EQ(fetch(2, allocation), ExportAnswer::kDone);
  EXPECT_FALSE(exports_.withdraw(1, allocation, false));
  EXPECT_EQ(fetch(3, allocation), ExportAnswer::kUnknown);
  EXPECT_EQ(exports_.charged_bytes(kLease, kGpu), 0u);
  EXPECT_TRUE(exports_.withdraw(1, allocation, true));
  EXPECT_EQ(exports_.charged_bytes(kLease, kGpu), 100u);
}

TEST_F(ExportsTest, EndOfTheOwnerLeavesOrphans) {
  const wire::ExportRecord kept = publish(1, ExportKind::kMemory, 100);
  publish(1, ExportKind::kMemory, 50);
  EXPECT_EQ(fetch(2, kept), ExportAnswer::kDone);
  EXPECT_TRUE(exports_.end(1));
  EXPECT_EQ(exports_.size(), 1u);
  EXPECT_EQ(exports_.charged_bytes(kLease, kGpu), 100u);
  EXPECT_EQ(fetch(3, kept), ExportAnswer::kUnknown);
}

TEST_F(ExportsTest, DescriptorsAreFewForEachSession) {
  wire::ExportRecord first = {};
  for (int i = 0; i < 4; ++i) first = publish(1, ExportKind::kAllocation);
  wire::ExportRecord record = record_of(ExportKind::kAllocation);
  EXPECT_EQ(exports_.publish(peer(1), &record, descriptor()), ExportAnswer::kFull);
  publish(2, ExportKind::kAllocation);
  exports_.withdraw(1, first, false);
  publish(1, ExportKind::kAllocation);
  for (uint64_t session = 3; session <= 5; ++session) {
    for (int i = 0; i < 4 && (session != 5 || i < 3); ++i)
      publish(session, ExportKind::kAllocation);
  }
  EXPECT_EQ(exports_.publish(peer(6), &record, descriptor()), ExportAnswer::kFull)
      << "all 16 in use";
  exports_.end(1);
  EXPECT_EQ(exports_.publish(peer(6), &record, descriptor()), ExportAnswer::kDone);
}

// A hostile worker may claim any size for what it exports.
TEST_F(ExportsTest, SizesThatAreNoneDoNoHarm) {
  const wire::ExportRecord one = publish(1, ExportKind::kMemory),
                           two = publish(1, ExportKind::kMemory);
  EXPECT_EQ(fetch(2, one), ExportAnswer::kDone);
  EXPECT_EQ(fetch(2, two), ExportAnswer::kDone);
  exports_.end(1);
  exports_.release(2, one);
  exports_.release(2, two);
  EXPECT_EQ(exports_.size(), 0u);
  wire::ExportRecord record = record_of(ExportKind::kMemory, UINT64_MAX);
  EXPECT_EQ(exports_.publish(peer(1), &record, {}), ExportAnswer::kUnknown);
}

TEST_F(ExportsTest, IsBounded) {
  wire::ExportRecord record = {};
  ExportAnswer answer = ExportAnswer::kDone;
  size_t count = 0;
  for (; answer == ExportAnswer::kDone && count <= kExportsPerSessionMax; ++count) {
    record = record_of(ExportKind::kEvent);
    answer = exports_.publish(peer(1), &record, {});
  }
  EXPECT_EQ(answer, ExportAnswer::kFull);
  EXPECT_EQ(exports_.size(), kExportsPerSessionMax);
  record = record_of(ExportKind::kEvent);
  EXPECT_EQ(exports_.publish(peer(2), &record, {}), ExportAnswer::kDone);
  record = record_of(ExportKind::kEvent);
  EXPECT_EQ(exports_.publish(peer(2), &record, descriptor()), ExportAnswer::kUnknown);
  record = record_of(ExportKind::kMemory);  // mapped memory has a descriptor, other memory none
  EXPECT_EQ(exports_.publish(peer(2), &record, descriptor()), ExportAnswer::kDone);
  record = record_of(ExportKind::kPool);
  EXPECT_EQ(exports_.publish(peer(2), &record, {}), ExportAnswer::kUnknown);
  record = record_of(static_cast<ExportKind>(99));
  EXPECT_EQ(exports_.publish(peer(2), &record, {}), ExportAnswer::kUnknown);
}

}  // namespace
}  // namespace tendril::daemon

// SPDX-License-Identifier: Apache-2.0
// Copies into pinned memory count as pending until a wait covers them or their data has come.
#include "client/cuda/copy/pending_reads.h"

#include <gtest/gtest.h>

#include "client/cuda/state.h"

namespace tendril::client::cuda {
namespace {

// Addresses of records that nobody looks into.
Stream* stream(uintptr_t number) { return reinterpret_cast<Stream*>(number); }
Context* context(uintptr_t number) { return reinterpret_cast<Context*>(number); }

TEST(PendingReads, AreForgottenByStreamContextAndMemory) {
  PendingReads reads;
  EXPECT_FALSE(reads.pending(0, ~uint64_t{0}));
  reads.add({stream(1), context(1), 1000, 100});
  reads.add({stream(2), context(1), 2000, 100});
  reads.add({nullptr, context(2), 3000, 100});
  reads.add({stream(4), context(2), 4000, 100});
  EXPECT_TRUE(reads.pending(1099, 1));
  EXPECT_FALSE(reads.pending(1100, 900));
  reads.forget_stream(stream(1));
  EXPECT_FALSE(reads.pending(1000, 100));
  reads.forget_context(context(1));
  EXPECT_FALSE(reads.pending(2000, 100));
  reads.forget_memory(3050, 10);
  EXPECT_FALSE(reads.pending(3000, 100));
  EXPECT_TRUE(reads.pending(4000, 100));
}

TEST(PendingReads, OneArrivalEndsOneCopy) {
  PendingReads reads;
  auto* at = new Context;
  static std::vector<Context*>* const kept = new std::vector<Context*>;  // for leak checkers
  kept->push_back(at);
  reads.add({stream(1), at, 1000, 100, true});
  reads.add({stream(2), at, 1000, 100, true});
  reads.add({stream(1), at, 5000, 100, false});
  reads.arrived(nullptr, 1000, 100);
  EXPECT_TRUE(reads.pending(1000, 100));
  reads.arrived(nullptr, 1000, 100);
  EXPECT_FALSE(reads.pending(1000, 100));
  reads.arrived(nullptr, 5000, 100);  // does not come by itself: only a wait ends it
  EXPECT_TRUE(reads.pending(5000, 100));
}

}  // namespace
}  // namespace tendril::client::cuda

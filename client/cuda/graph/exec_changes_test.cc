// SPDX-License-Identifier: Apache-2.0
// Which changes of an instantiated graph may go without waiting for the answer: only what the
// driver has taken before.
#include "client/cuda/graph/exec_changes.h"

#include <gtest/gtest.h>

namespace tendril::client::cuda {
namespace {

ChangeShape shape(uint64_t function, uint64_t width) {
  ChangeShape out;
  out.add(function);
  out.add(width);
  return out;
}

TEST(ExecChanges, OnlyTheShapeThatWasTakenLastIsKnown) {
  ExecChanges changes;
  EXPECT_FALSE(changes.taken(1, shape(7, 256)));
  changes.note(1, shape(7, 256), true);
  EXPECT_TRUE(changes.taken(1, shape(7, 256)));
  EXPECT_FALSE(changes.taken(1, shape(7, 128)));
  EXPECT_FALSE(changes.taken(2, shape(7, 256)));
  changes.note(1, shape(7, 128), true);
  EXPECT_FALSE(changes.taken(1, shape(7, 256)));
}

TEST(ExecChanges, ARefusedChangeIsForgotten) {
  ExecChanges changes;
  changes.note(1, shape(7, 256), true);
  changes.note(1, shape(7, 9999), false);
  EXPECT_FALSE(changes.taken(1, shape(7, 256)));
  EXPECT_FALSE(changes.taken(1, shape(7, 9999)));
}

TEST(ExecChanges, WhatIsNotJudgedHereIsNeverTaken) {
  ExecChanges changes;
  changes.note(1, ChangeShape(), true);
  EXPECT_FALSE(changes.taken(1, ChangeShape()));
  changes.note(1, shape(7, 256), true);
  changes.note(1, ChangeShape(), true);  // the node has another shape now
  EXPECT_FALSE(changes.taken(1, shape(7, 256)));
}

TEST(ExecChanges, AShapeThatIsTooLongIsNeverTaken) {
  ChangeShape longer;
  for (unsigned i = 0; i <= ChangeShape::kWords; ++i) longer.add(0);
  ExecChanges changes;
  changes.note(1, longer, true);
  EXPECT_FALSE(changes.taken(1, longer));
}

TEST(ExecChanges, AnotherInstanceKnowsNothing) {
  ExecChanges changes;
  changes.note(1, shape(7, 256), true);
  changes.clear();
  EXPECT_FALSE(changes.taken(1, shape(7, 256)));
}

}  // namespace
}  // namespace tendril::client::cuda

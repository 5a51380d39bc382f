// SPDX-License-Identifier: Apache-2.0
// What the estimates learn from the times of markers behind work.
#include "worker/core/work_estimates.h"

#include <gtest/gtest.h>

namespace tendril::worker {
namespace {

TEST(WorkEstimates, LearnsFromBatches) {
  WorkEstimates estimates;
  const WorkKind small = work_kind(1, 1), large = work_kind(2, 1);
  EXPECT_EQ(estimates.of(small), WorkEstimates::kUnknown);
  WorkEstimates::Batch batch;
  for (int i = 0; i < 10; ++i) batch.add(small);
  estimates.learn(batch, 100'000, true);
  EXPECT_EQ(estimates.of(small), 10'000u);
  batch.add(large);
  estimates.learn(batch, 600'000, true);
  EXPECT_EQ(estimates.of(small), 10'000u) << "what is left over is the other's";
  EXPECT_EQ(estimates.of(large), 500'000u);
  for (int i = 0; i < 30; ++i) estimates.learn(batch, 300'000, true);
  EXPECT_NEAR(static_cast<double>(estimates.of(large) + 10 * estimates.of(small)), 300'000, 6'000);
  const uint64_t before = estimates.of(large);
  estimates.learn(batch, 900'000, false);
  EXPECT_EQ(estimates.of(large), before) << "an upper bound raises nothing";
}

TEST(WorkEstimates, GuessesFromTheFamily) {
  WorkEstimates estimates;
  WorkEstimates::Batch batch;
  batch.add(work_kind(1, 1000));
  estimates.learn(batch, 70'000, true);
  EXPECT_EQ(estimates.of(work_kind(1, 2000)), 70'000u);
  EXPECT_EQ(estimates.of(work_kind(2, 1000)), WorkEstimates::kUnknown);
}

TEST(WorkEstimates, RemembersAllKindsOfALargeProgram) {
  WorkEstimates estimates;
  size_t forgotten = 0;
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 1; i <= 500; ++i) {
      const WorkKind kind = work_kind(i, i % 7 * 1024 + 1);
      if (round == 1 && estimates.of(kind) == WorkEstimates::kUnknown) ++forgotten;
      WorkEstimates::Batch batch;
      batch.add(kind);
      estimates.learn(batch, 10'000, true);
    }
  }
  EXPECT_EQ(forgotten, 0u);
}

TEST(WorkEstimates, ForgetsWhatIsTooMuchToRemember) {
  WorkEstimates estimates;
  for (uint64_t i = 1; i <= 100'000; ++i) {
    WorkEstimates::Batch batch;
    batch.add(work_kind(i, 1));
    estimates.learn(batch, 1'000'000, true);
    EXPECT_EQ(estimates.of(work_kind(i, 1)), 1'000'000u);
  }
  WorkEstimates::Batch many;
  for (uint64_t i = 1; i <= 100; ++i) many.add(work_kind(i, 2));
  EXPECT_EQ(many.pieces(), 100u);
  estimates.learn(many, 100'000'000, true);
  EXPECT_NEAR(static_cast<double>(estimates.of(work_kind(1, 2))), 1e6, 1e3);
}

}  // namespace
}  // namespace tendril::worker

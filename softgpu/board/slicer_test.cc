// SPDX-License-Identifier: Apache-2.0
// Sharing of a device's time, compared with a walk slice by slice and with measurements on an H200.

#include "softgpu/board/slicer.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

namespace tendril::softgpu {
namespace {

constexpr int64_t kUs = 1000, kMs = 1'000'000;

Share share_of(uint64_t context, int64_t left_ns, int64_t slice_ns = 2048 * kUs) {
  Share share;
  share.context = context;
  share.left_ns = left_ns;
  share.slice_ns = slice_ns;
  return share;
}

std::unique_ptr<SliceRing> ring_of(std::vector<Share> shares, int64_t switch_ns = 200 * kUs) {
  auto ring = std::make_unique<SliceRing>();
  ring->switch_ns = switch_ns;
  for (const Share& share : shares) EXPECT_TRUE(add_share(*ring, share));
  return ring;
}

TEST(Slicer, OneContextHasTheDeviceToItself) {
  auto ring = ring_of({share_of(1, 10 * kMs)});
  EXPECT_EQ(10 * kMs, next_end_ns(*ring));
  EXPECT_EQ(kMaxShares, run_until(*ring, 4 * kMs));
  EXPECT_EQ(6 * kMs, ring->shares[0].left_ns);
  EXPECT_EQ(0u, run_until(*ring, kNever - 1));
  EXPECT_EQ(10 * kMs, ring->at_ns);
}

TEST(Slicer, TwoContextsTakeTurns) {
  auto ring = ring_of({share_of(1, 3 * kMs, kMs), share_of(2, kMs, kMs)}, 0);
  // Context 1 runs; 2 runs and is done; then 1 runs on.
  EXPECT_EQ(2 * kMs, next_end_ns(*ring));
  uint32_t done = run_until(*ring, kNever - 1);
  ASSERT_LT(done, ring->count);
  EXPECT_EQ(2u, ring->shares[done].context);
  remove_share(*ring, done);
  EXPECT_EQ(0u, run_until(*ring, kNever - 1));
  EXPECT_EQ(4 * kMs, ring->at_ns);
}

TEST(Slicer, LookingAheadChangesNothing) {
  auto ring = ring_of({share_of(1, 30 * kMs), share_of(2, 50 * kMs)});
  run_until(*ring, 7 * kMs);
  const int64_t left = ring->shares[0].left_ns, end = next_end_ns(*ring);
  EXPECT_EQ(end, next_end_ns(*ring));
  EXPECT_EQ(7 * kMs, ring->at_ns);
  EXPECT_EQ(left, ring->shares[0].left_ns);
}

// The same rules without skipping rounds: at most one slice at a time.
int64_t walked_end(std::vector<Share> shares, int64_t switch_ns) {
  int64_t at = 0;
  for (size_t turn = 0;; turn = (turn + 1) % shares.size()) {
    Share& share = shares[turn];
    if (share.left_ns <= share.slice_ns) return at + share.left_ns;
    share.left_ns -= share.slice_ns;
    at += share.slice_ns + switch_ns;
  }
}

TEST(Slicer, SkippedRoundsEndWhereWalkedOnesDo) {
  std::mt19937_64 random(7);
  auto up_to = [&](int64_t most) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(most)) + 1;
  };
  for (int round = 0; round < 500; ++round) {
    std::vector<Share> shares;
    const int count = static_cast<int>(up_to(6)) + 1;
    for (int i = 0; i < count; ++i)
      shares.push_back(share_of(static_cast<uint64_t>(i) + 1, up_to(5000), up_to(40)));
    const int64_t switch_ns = up_to(7) - 1;
    // The first one added has the turn. The last one added is served last.
    auto ring = ring_of(shares, switch_ns);
    ASSERT_EQ(walked_end(shares, switch_ns), next_end_ns(*ring)) << "round " << round;
    // Arbitrary stops on the way change nothing.
    const int64_t end = next_end_ns(*ring);
    for (int64_t at = 0; at + 100 < end; at += up_to(99)) run_until(*ring, at);
    ASSERT_EQ(end, next_end_ns(*ring)) << "round " << round;
  }
}

TEST(Slicer, ADayOfContentionIsOneStep) {
  auto ring = ring_of({share_of(1, 86400ll * 1000 * kMs), share_of(2, 86400ll * 1000 * kMs)});
  const int64_t end = next_end_ns(*ring);
  EXPECT_NEAR(static_cast<double>(end), 86400e9 * 2 * 2248 / 2048, 1e7);
}

// Launches per second of two or three contexts with endless queues, relative to one alone.
std::vector<double> delivered(std::vector<int64_t> slices_us) {
  std::vector<Share> shares;
  for (size_t i = 0; i < slices_us.size(); ++i)
    shares.push_back(share_of(i + 1, int64_t{1} << 60, slices_us[i] * kUs));
  auto ring = ring_of(shares);
  const int64_t window = 10'000 * kMs;
  run_until(*ring, window);
  std::vector<double> result(slices_us.size());
  for (uint32_t i = 0; i < ring->count; ++i)
    result[ring->shares[i].context - 1] =
        static_cast<double>(ring->shares[i].ran_ns) / static_cast<double>(window);
  return result;
}

struct Measured {
  std::vector<int64_t> slices_us;
  std::vector<double> launches;  // per second; alone 4,807
};

// The study of the hardware's time slices (H200, driver 580): kernels of 0.21 ms from deep queues.
TEST(Slicer, SharesAsMeasuredOnHardware) {
  const Measured table[] = {
      {{2000, 2000}, {2185, 2185}},
      {{5000, 5000}, {2309, 2308}},
      {{1000, 3000}, {1111, 3264}},
      {{200, 1800}, {359, 3633}},
      {{1000, 3000, 6000}, {471, 1375, 2726}},
  };
  for (const Measured& row : table) {
    std::vector<double> got = delivered(row.slices_us);
    double sum = 0, expected_sum = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      sum += got[i];
      expected_sum += row.launches[i] / 4807;
      EXPECT_NEAR(got[i], row.launches[i] / 4807, 0.045)
          << row.slices_us[0] << ":" << row.slices_us[1] << " share " << i;
    }
    EXPECT_NEAR(sum, expected_sum, 0.03) << row.slices_us[0] << ":" << row.slices_us[1];
  }
}

TEST(Slicer, ShallowQueuesGiveTheirTurnUp) {
  // Context 1 has work of 100 us at a time and asks again at once. Context 2 has an endless queue.
  auto ring = ring_of({share_of(2, int64_t{1} << 60), share_of(1, 100 * kUs)});
  int64_t ran = 0;
  while (ring->at_ns < 1000 * kMs) {
    uint32_t done = run_until(*ring, kNever - 1);
    ASSERT_LT(done, ring->count);
    ran += 100 * kUs;
    remove_share(*ring, done);
    ASSERT_TRUE(add_share(*ring, share_of(1, 100 * kUs)));
  }
  EXPECT_LT(ran, 60 * kMs);  // it is starved: 100 us of every 2.5 ms
  EXPECT_GT(ran, 20 * kMs);
}

}  // namespace
}  // namespace tendril::softgpu

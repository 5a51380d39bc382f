// SPDX-License-Identifier: Apache-2.0
// Programs on simulated time: when a line is due, and what it says.
#include "cli/progress/pace.h"

#include <gtest/gtest.h>

namespace tendril::cli {
namespace {

constexpr uint64_t kMs = 1'000'000, kMb = 1'000'000;

class PaceTest : public ::testing::Test {
 protected:
  std::string tick() {
    now_ns_ += Pace::kTickMs * kMs;
    return pace_.line(now_ns_, look_, "gpu1");
  }
  // A tick in which an upload goes on.
  std::string sending(uint64_t bytes) {
    look_.sent_bytes += bytes;
    return tick();
  }
  // A tick in which whole uploads took that part of the time.
  std::string sent_whole(uint64_t bytes, double part, uint32_t under_way = 0) {
    look_.begun_bytes += bytes;
    look_.sent_bytes += bytes;
    look_.upload_ns += static_cast<uint64_t>(part * Pace::kTickMs * kMs);
    look_.uploading = under_way;
    return tick();
  }

  Pace pace_;
  ProgressLook look_;
  uint64_t now_ns_ = 5'000 * kMs;
};

TEST_F(PaceTest, AttachingIsSaidAfterASecond) {
  EXPECT_EQ(tick(), "");
  look_.attaching = 1;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(tick(), "") << i;
  EXPECT_EQ(tick(), "attaching to gpu1: 1 s");
  for (int i = 0; i < 20; ++i) tick();
  EXPECT_EQ(tick(), "attaching to gpu1: 3 s");
  look_.attaching = 0;
  EXPECT_EQ(tick(), "");
}

TEST_F(PaceTest, AProcessThatDiedWhileItAttachedIsForgotten) {
  look_.attaching = 1;
  for (int i = 0; i < 602; ++i) tick();
  EXPECT_EQ(tick(), "");
}

TEST_F(PaceTest, OneLongUploadSaysHowFarItIs) {
  tick();
  look_.begun_bytes = 10'000 * kMb;
  look_.uploading = 1;
  for (int i = 0; i < 9; ++i) EXPECT_EQ(sending(100 * kMb), "") << i;
  EXPECT_EQ(sending(100 * kMb), "uploaded 1.0 GB of 10.0 GB, 1.0 GB/s, 9 s left");
  for (int i = 0; i < 85; ++i) sending(100 * kMb);
  EXPECT_EQ(sending(100 * kMb), "uploaded 9.6 GB, 1.0 GB/s");  // under half a second is left
  look_.uploading = 0;
  look_.upload_ns = 9'700 * kMs;
  EXPECT_EQ(sending(400 * kMb), "");
}

TEST_F(PaceTest, ManyUploadsInARowAreOne) {
  tick();
  for (int i = 0; i < 9; ++i) EXPECT_EQ(sent_whole(50 * kMb, 0.97, 1), "");
  EXPECT_EQ(sent_whole(50 * kMb, 0.97, 1), "uploaded 500 MB, 500 MB/s");
  EXPECT_EQ(sent_whole(50 * kMb, 0.97, 0), "");  // between two
  EXPECT_EQ(sent_whole(50 * kMb, 0.97, 1), "uploaded 600 MB, 500 MB/s");
}

TEST_F(PaceTest, AProgramThatWorksBetweenUploadsHasNoLine) {
  tick();
  for (int i = 0; i < 200; ++i) EXPECT_EQ(sent_whole(50 * kMb, 0.5, i % 2), "") << i;
}

TEST_F(PaceTest, AnUploadThatStandsStillIsForgotten) {
  look_.uploading = 1;
  look_.begun_bytes = 10'000 * kMb;
  for (int i = 0; i < 20; ++i) sending(100 * kMb);
  EXPECT_NE(tick(), "");
  for (int i = 0; i < 205; ++i) tick();
  EXPECT_EQ(tick(), "");
}

}  // namespace
}  // namespace tendril::cli

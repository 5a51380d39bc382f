// SPDX-License-Identifier: Apache-2.0
// What is written to a park file means nothing without its key, and a changed byte is found.
#include "worker/cuda/parking/park_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <unistd.h>

#include <vector>

namespace tendril::worker::cuda {
namespace {

class ParkFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = tmpfile();
    ASSERT_NE(file_, nullptr);
    sealed_ = ParkFile::open(base::Fd(dup(fileno(file_))));
    ASSERT_NE(sealed_, nullptr);
  }
  void TearDown() override {
    if (file_ != nullptr) fclose(file_);
  }
  std::vector<uint8_t> raw(uint64_t offset, size_t bytes) {
    std::vector<uint8_t> data(bytes);
    EXPECT_EQ(pread(fileno(file_), data.data(), bytes, static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes));
    return data;
  }
  FILE* file_ = nullptr;
  std::unique_ptr<ParkFile> sealed_;
};

TEST_F(ParkFileTest, ComesBackAndIsNotReadableOnTheDisk) {
  const std::vector<uint8_t> wanted(100'000, 0x55);
  ParkFile::Seal one, two;
  std::vector<uint8_t> data = wanted;
  ASSERT_TRUE(sealed_->write(0, data.data(), data.size(), &one));
  data = wanted;
  ASSERT_TRUE(sealed_->write(1 << 20, data.data(), data.size(), &two));
  const std::vector<uint8_t> first = raw(0, 100'000), second = raw(1 << 20, 100'000);
  size_t same = 0, equal = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    same += first[i] == 0x55;
    equal += first[i] == second[i];
  }
  EXPECT_LT(same, 1'000u) << "as many as by chance";
  EXPECT_LT(equal, 1'000u) << "no piece is encrypted as another";
  ASSERT_TRUE(sealed_->read(0, data.data(), data.size(), one));
  EXPECT_EQ(data, wanted);
  ASSERT_TRUE(sealed_->read(1 << 20, data.data(), data.size(), two));
  EXPECT_EQ(data, wanted);
}

TEST_F(ParkFileTest, WhatIsNotWhatWasWrittenIsRefused) {
  ParkFile::Seal one, two;
  std::vector<uint8_t> data(4096, 1);
  ASSERT_TRUE(sealed_->write(0, data.data(), data.size(), &one));
  ASSERT_TRUE(sealed_->write(4096, data.data(), data.size(), &two));
  EXPECT_FALSE(sealed_->read(0, data.data(), data.size(), two)) << "another place";
  EXPECT_FALSE(sealed_->read(4096, data.data(), data.size() + 1, two)) << "there is no more";
  const auto other = ParkFile::open(base::Fd(dup(fileno(file_))));
  EXPECT_FALSE(other->read(0, data.data(), data.size(), one)) << "another key";
  const uint8_t changed = static_cast<uint8_t>(raw(77, 1)[0] ^ 1);
  ASSERT_EQ(pwrite(fileno(file_), &changed, 1, 77), 1);
  EXPECT_FALSE(sealed_->read(0, data.data(), data.size(), one));
  EXPECT_TRUE(sealed_->read(4096, data.data(), data.size(), two));
}

TEST(ParkFile, ADiskThatDoesNotTakeItIsTold) {
  const auto sealed = ParkFile::open(base::Fd(open("/dev/full", O_RDWR)));
  ParkFile::Seal seal;
  std::vector<uint8_t> data(4096, 1);
  EXPECT_FALSE(sealed->write(0, data.data(), data.size(), &seal));
}

}  // namespace
}  // namespace tendril::worker::cuda

// SPDX-License-Identifier: Apache-2.0
// What a process leaves of ended leases, the next one has: all that was not stored, once.
#include "daemon/pool/ended_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace tendril::daemon {
namespace {

wire::BookEntry ended(uint64_t lease_id, uint64_t number) {
  wire::BookEntry entry;
  entry.lease_id = lease_id;
  entry.phase = wire::LeasePhase::kEnded;
  entry.owner_name = "ann";
  entry.used_ns = lease_id * 1000;
  entry.ended_number = number;
  return entry;
}

class EndedFileTest : public testing::Test {
 protected:
  EndedFileTest() {
    std::string folder = testing::TempDir() + "ended-XXXXXX";
    path_ = std::string(mkdtemp(folder.data())) + "/state/ended";
  }
  ~EndedFileTest() override {
    std::filesystem::remove_all(std::filesystem::path(path_).parent_path().parent_path());
  }
  std::unique_ptr<EndedFile> open(uint64_t boot) {
    auto file = EndedFile::open(path_, boot);
    EXPECT_TRUE(file.ok()) << file.status().message();
    return file.ok() ? file.take() : nullptr;
  }
  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string path_;
};

TEST_F(EndedFileTest, TheNextProcessHasWhatNobodyStored) {
  {
    const auto file = open(7);
    EXPECT_TRUE(file->take().empty());
    for (uint64_t number = 1; number <= 3; ++number) file->add(ended(40 + number, number));
    file->stored(1, false);
    EXPECT_EQ(EndedFile::open(path_, 8).status().code(), base::Code::kRefused) << "one at a time";
  }
  std::deque<wire::BookEntry> again;
  {
    const auto file = open(8);
    for (wire::BookEntry& entry : file->take()) {
      EXPECT_EQ(entry.boot, 7u);
      EXPECT_EQ(entry.used_ns, entry.lease_id * 1000);
      entry.ended_number = again.size() + 1;
      again.push_back(entry);
    }
    ASSERT_EQ(again.size(), 2u);
    EXPECT_EQ(again[0].lease_id, 42u);
    file->begin(again);
    file->add(ended(50, 3));
  }
  const auto file = open(9);
  const auto left = file->take();
  ASSERT_EQ(left.size(), 3u);
  EXPECT_EQ(left[1].boot, 7u) << "of the process that ended it";
  EXPECT_EQ(left[2].boot, 8u);
  file->begin({left.begin(), left.end()});
  EXPECT_FALSE(bytes().empty());
  file->stored(3, true);
  EXPECT_TRUE(bytes().empty());
}

TEST_F(EndedFileTest, WhatIsDamagedIsLeftOut) {
  {
    const auto file = open(7);
    file->add(ended(41, 1));
    file->add(ended(42, 2));
  }
  const std::string whole = bytes();
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_LE(read_ended(whole.substr(0, length)).size(), length < whole.size() / 2 ? 0u : 1u);
  std::string wrong = whole;
  wrong[whole.size() / 2] = '\xff';
  EXPECT_EQ(read_ended(wrong).size(), 1u);
  EXPECT_TRUE(read_ended("\xff\xff\xff\xff").empty());
  EXPECT_TRUE(read_ended(std::string(64, '\0')).empty());
  EXPECT_EQ(EndedFile::open("/proc/nothing/here", 1).status().code(), base::Code::kUnavailable);
}

}  // namespace
}  // namespace tendril::daemon

// SPDX-License-Identifier: Apache-2.0
// What was written is read, minutes are joined, and other files are refused.
#include "observe/record_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

namespace tendril::observe {
namespace {

class ObserveRecordFile : public ::testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/tendril-observe-XXXXXX";
    ASSERT_NE(nullptr, mkdtemp(folder));
    folder_ = folder;
    path_ = folder_ + "/observed.db";
  }
  void TearDown() override {
    unlink(path_.c_str());
    unlink((path_ + ".lock").c_str());
    rmdir(folder_.c_str());
  }
  static std::vector<GpuMinute> minute(int64_t at_s, uint32_t looks, double busy) {
    GpuMinute one;
    one.at_s = at_s;
    one.gpu = "GPU-1";
    one.looks = looks;
    one.busy = busy;
    one.power_w = 70;
    ProgramMinute program;
    program.owner = {"ada", "", "train 7"};
    program.looks = looks;
    program.busy = busy;
    program.memory_bytes = looks * 1000;
    one.programs = {program};
    return {one};
  }
  std::vector<RecordRow> rows() {
    std::vector<RecordRow> found;
    const base::Status read = read_record_file(path_, [&](const RecordRow& row) {
      found.push_back(row);
      return base::Status();
    });
    EXPECT_TRUE(read.ok()) << read.message();
    return found;
  }

  std::string folder_, path_;
};

TEST_F(ObserveRecordFile, ReadsWhatWasWritten) {
  auto file = RecordFile::open(path_, "box");
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_TRUE((*file)->write(minute(60, 60, 0.25)).ok());
  ASSERT_TRUE((*file)->write(minute(120, 60, -1)).ok());
  EXPECT_TRUE(is_record_file(path_));
  // While it is open for writing.
  const std::vector<RecordRow> found = rows();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].at_s, 60);
  EXPECT_EQ(found[0].server, "box");
  EXPECT_EQ(found[0].gpu, "GPU-1");
  EXPECT_EQ(found[0].user, "ada");
  EXPECT_EQ(found[0].job, "train 7");
  EXPECT_EQ(found[0].busy_millionths, 250'000);
  EXPECT_EQ(found[0].memory_bytes, 60'000);
  EXPECT_LT(found[1].busy_millionths, 0);
}

TEST_F(ObserveRecordFile, JoinsPartsOfAMinuteByTheirSeconds) {
  {
    auto file = RecordFile::open(path_, "box");
    ASSERT_TRUE((*file)->write(minute(60, 45, 0.8)).ok());
  }
  auto file = RecordFile::open(path_, "box");  // after a restart
  ASSERT_TRUE((*file)->write(minute(60, 15, 0.4)).ok());
  const std::vector<RecordRow> found = rows();
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].busy_millionths, 700'000);
  EXPECT_EQ(found[0].memory_bytes, 45'000);
}

TEST_F(ObserveRecordFile, ForgetsWhatIsOld) {
  auto file = RecordFile::open(path_, "box");
  ASSERT_TRUE((*file)->write(minute(60, 60, 0.5)).ok());
  ASSERT_TRUE((*file)->write(minute(600, 60, 0.5)).ok());
  ASSERT_TRUE((*file)->forget_before(600).ok());
  ASSERT_EQ(rows().size(), 1u);
  EXPECT_EQ(rows()[0].at_s, 600);
}

TEST_F(ObserveRecordFile, OneProcessRecords) {
  auto first = RecordFile::open(path_, "box");
  auto second = RecordFile::open(path_, "box");
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("another 'tendril observe'"), std::string::npos);
}

TEST_F(ObserveRecordFile, RefusesOtherFiles) {
  std::ofstream(path_) << "time_s,gpu\n";
  EXPECT_FALSE(is_record_file(path_));
  EXPECT_FALSE(RecordFile::open(path_, "box").ok());
  const auto ignore = [](const RecordRow&) { return base::Status(); };
  EXPECT_FALSE(read_record_file(path_, ignore).ok());
  EXPECT_FALSE(read_record_file(folder_ + "/none", ignore).ok());
  std::ofstream(path_) << "SQLite format 3" << std::string(4096, '\0');
  EXPECT_TRUE(is_record_file(path_));
  EXPECT_FALSE(read_record_file(path_, ignore).ok());
}

TEST_F(ObserveRecordFile, AReaderThatHasEnoughEndsIt) {
  auto file = RecordFile::open(path_, "box");
  ASSERT_TRUE((*file)->write(minute(60, 60, 0.5)).ok());
  const base::Status read = read_record_file(
      path_, [](const RecordRow&) { return base::Status(base::Code::kExhausted, "enough"); });
  EXPECT_EQ(read.message(), "enough");
}

}  // namespace
}  // namespace tendril::observe

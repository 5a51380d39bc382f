// SPDX-License-Identifier: Apache-2.0
// Folders are made for their owner. Writers do not meet in a temporary file. A file that was cut
// short is not there. Nothing else in the folder is touched. (The worker's store of images is built
// on this; its test covers limits, links and full disks.)
#include "base/kept_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace tendril::base {
namespace {

class KeptFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/tendril-kept-XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    top_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(top_); }

  static std::string content(const KeptFiles& files, const std::string& name) {
    uint64_t bytes = 0;
    const Fd fd = files.open(name, &bytes);
    std::string text(fd.valid() ? bytes : 0, 0);
    return fd.valid() && read_all(fd.get(), text.data(), bytes) ? text : "(none)";
  }

  std::string top_;
};

TEST_F(KeptFilesTest, MakesFoldersForTheirOwnerOnly) {
  KeptFiles files(top_ + "/a/b", ".x", 100);
  ASSERT_TRUE(files.make());
  struct stat info;
  for (const char* folder : {"/a", "/a/b"}) {
    ASSERT_EQ(stat((top_ + folder).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777u, 0700u);
  }
  ASSERT_TRUE(files.write("one", {{"12", 2}, {"345", 3}}));
  EXPECT_EQ(content(files, "one"), "12345");
  ASSERT_EQ(stat((top_ + "/a/b/one.x").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0600u);
}

TEST_F(KeptFilesTest, CopiesAnotherFile) {
  KeptFiles files(top_, ".x", 100);
  std::ofstream(top_ + "/from") << "0123456789";
  const Fd from(open((top_ + "/from").c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(files.write_copy("one", from.get(), 10));
  EXPECT_EQ(content(files, "one"), "0123456789");
  EXPECT_FALSE(files.write_copy("two", from.get(), 11)) << "it has fewer";
  EXPECT_FALSE(files.write_copy("two", from.get(), 101));
  EXPECT_EQ(content(files, "two"), "(none)");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(top_), {}), 2) << "nothing is left";
}

TEST_F(KeptFilesTest, AFileInTheWayMeansNoFolder) {
  std::ofstream(top_ + "/a") << "here";
  KeptFiles files(top_ + "/a", ".x", 100);
  EXPECT_FALSE(files.make());
  EXPECT_FALSE(files.exists());
  EXPECT_FALSE(files.write("one", {{"1", 1}}));
  EXPECT_EQ(content(files, "one"), "(none)");
}

TEST_F(KeptFilesTest, WhatIsNotOursStays) {
  std::ofstream(top_ + "/diary") << std::string(1000, 'd');
  KeptFiles files(top_, ".x", 10);
  ASSERT_TRUE(files.write("one", {{"12345678", 8}}));
  ASSERT_TRUE(files.write("two", {{"12345678", 8}}));
  EXPECT_FALSE(files.write("much", {{"12345678901", 11}}));
  EXPECT_TRUE(std::filesystem::exists(top_ + "/diary"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(top_), {}), 2);
}

TEST_F(KeptFilesTest, ReadersSeeWholeFilesWhileWritersReplaceThem) {
  const KeptFiles files(top_, ".x", 1 << 20);
  const std::string a(30'000, 'a'), b(30'000, 'b');
  ASSERT_TRUE(files.write("one", {{a.data(), a.size()}}));
  std::thread writers[2];
  for (int i = 0; i < 2; ++i) {
    writers[i] = std::thread([&, i] {
      const std::string& mine = i == 0 ? a : b;
      for (int round = 0; round < 200; ++round)
        EXPECT_TRUE(files.write("one", {{mine.data(), mine.size()}}));
    });
  }
  for (int round = 0; round < 400; ++round) {
    const std::string found = content(files, "one");
    ASSERT_TRUE(found == a || found == b) << found.substr(0, 20);
  }
  for (std::thread& writer : writers) writer.join();
}

}  // namespace
}  // namespace tendril::base

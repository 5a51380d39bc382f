// SPDX-License-Identifier: Apache-2.0
// Lines of the audit log under hostile text, rotation, and a disk that is full.
#include "access/audit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <fstream>
#include <mutex>
#include <sstream>

#include "base/clock.h"

namespace tendril::access {
namespace {

AuditEntry entry(const std::string& name) {
  AuditEntry made;
  made.who.name = name;
  made.who.id = "uid 1000";
  made.who.role = Role::kUser;
  made.who.proof = Proof::kUnixUser;
  made.who.from = "unix pid 7";
  made.what = "release";
  made.object = "lease 17";
  made.decision = {false, "owner-or-operator", "this lease is not yours"};
  return made;
}

class Audit : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tendril-audit-XXXXXX";
    folder_ = mkdtemp(name);
    path_ = folder_ + "/audit.log";
  }
  void TearDown() override {
    unlink(path_.c_str());
    unlink((path_ + ".1").c_str());
    rmdir(folder_.c_str());
  }
  static std::string text_of(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  std::string folder_, path_;
};

TEST(AuditLine, SaysWhoWhatAndWhy) {
  AuditEntry made = entry("alice");
  made.details = {{"program", "train.py"}};
  EXPECT_EQ(audit_line(made, "gpu1", 1'790'000'000'123u),
            "{\"time\":\"2026-09-21T14:13:20.123Z\",\"server\":\"gpu1\",\"who\":\"alice\","
            "\"id\":\"uid 1000\",\"role\":\"user\",\"proof\":\"uid\",\"from\":\"unix pid 7\","
            "\"what\":\"release\",\"object\":\"lease 17\",\"allowed\":false,"
            "\"rule\":\"owner-or-operator\",\"why\":\"this lease is not yours\","
            "\"program\":\"train.py\"}\n");
}

TEST(AuditLine, MakesHostileTextHarmless) {
  const std::string hostile(
      "a\"b\\c\n\x1b[31m\x7f\xc2\x9b"
      "1m\xff\xc0\xaf\xed\xa0\x80"
      "d\0e",
      25);
  const std::string line = audit_line(entry(hostile), "gpu1", 0);
  EXPECT_NE(line.find("\"who\":\"a\\\"b\\\\c??[31m???1m??????d?e\""), std::string::npos) << line;
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_NE(audit_line(entry("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), "", 0)
                .find("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"),
            std::string::npos);
  EXPECT_LT(audit_line(entry(std::string(1 << 20, 'x')), "gpu1", 0).size(), 2000u);
}

TEST_F(Audit, IsAppendedToAndReopened) {
  AuditLog log(path_, "gpu1");
  ASSERT_TRUE(log.open().ok());
  struct stat facts;
  ASSERT_EQ(stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
  EXPECT_TRUE(log.write(entry("one")));
  rename(path_.c_str(), (path_ + ".1").c_str());
  EXPECT_TRUE(log.write(entry("two")));
  EXPECT_TRUE(log.reopen().ok());
  EXPECT_TRUE(log.write(entry("three")));
  EXPECT_NE(text_of(path_ + ".1").find("two"), std::string::npos);
  EXPECT_EQ(text_of(path_).find("two"), std::string::npos);
  EXPECT_NE(text_of(path_).find("three"), std::string::npos);
  AuditLog again(path_, "gpu1");
  ASSERT_TRUE(again.open().ok());
  EXPECT_TRUE(again.write(entry("four")));
  EXPECT_NE(text_of(path_).find("three"), std::string::npos);
  chmod(path_.c_str(), 0644);
  EXPECT_FALSE(again.reopen().ok());
}

TEST(AuditDisk, FullIsCountedAndToldOnce) {
  std::vector<std::string> troubles;
  {
    AuditLog log("/dev/full", "gpu1",
                 {[&](const std::string& why) { troubles.push_back(why); }, {}});
    // A device may be open to others.
    ASSERT_TRUE(log.open().ok());
    EXPECT_FALSE(log.write(entry("one")));
    EXPECT_FALSE(log.write(entry("two")));
    log.note(entry("three"));
    EXPECT_TRUE(log.flush(5000));
    EXPECT_EQ(log.lost(), 3u);
  }
  ASSERT_EQ(troubles.size(), 1u);
  EXPECT_NE(troubles[0].find("No space left"), std::string::npos);
}

// A disk that keeps its first line until it is let go.
class SlowDisk {
 public:
  AuditLog::Hooks hooks() {
    AuditLog::Hooks hooks;
    hooks.append = [this](int fd, const void* data, size_t bytes) {
      std::unique_lock<std::mutex> hold(mutex_);
      ++calls_;
      changed_.notify_all();
      changed_.wait(hold, [this] { return moves_; });
      return ::write(fd, data, bytes);
    };
    return hooks;
  }
  void move() {
    std::lock_guard<std::mutex> hold(mutex_);
    moves_ = true;
    changed_.notify_all();
  }
  void await_call() {
    std::unique_lock<std::mutex> hold(mutex_);
    changed_.wait(hold, [this] { return calls_ != 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool moves_ = false;  // guarded by mutex_
  int calls_ = 0;       // guarded by mutex_
};

TEST_F(Audit, ASlowDiskStopsNobodyWhoNeedNotWait) {
  SlowDisk disk;
  AuditLog log(path_, "gpu1", disk.hooks());
  ASSERT_TRUE(log.open().ok());
  log.note(entry("first"));
  disk.await_call();
  // If one of these waited for the disk, this test would never end.
  for (size_t i = 0; i < kAuditLinesMax + 5; ++i) log.note(entry("line " + std::to_string(i)));
  EXPECT_EQ(log.lost(), 5u);
  EXPECT_FALSE(log.flush(1));
  disk.move();
  EXPECT_TRUE(log.flush(20'000));
  const std::string text = text_of(path_);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), static_cast<long>(kAuditLinesMax) + 2);
  EXPECT_LT(text.find("\"line 0\""), text.find("\"line 4095\""));
  EXPECT_NE(text.find("\"5 entries\""), std::string::npos);
  EXPECT_EQ(text.find("\"line 4096\""), std::string::npos);
}

TEST_F(Audit, WhatMustBeWrittenIsNotWaitedForForEver) {
  SlowDisk disk;
  AuditLog log(path_, "gpu1", disk.hooks());
  ASSERT_TRUE(log.open().ok());
  log.note(entry("first"));
  disk.await_call();
  const uint64_t begun_ns = base::now_ns();
  EXPECT_FALSE(log.write(entry("second")));
  const uint64_t waited_ns = base::now_ns() - begun_ns;
  EXPECT_GE(waited_ns, 1'500'000'000u);
  // The disk is known to hang: a hundred more do not wait two seconds each.
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(log.write(entry("third")));
  EXPECT_LT(base::now_ns() - begun_ns, 60'000'000'000u);
  disk.move();
  EXPECT_TRUE(log.flush(20'000));
  EXPECT_TRUE(log.write(entry("fourth")));
  const std::string text = text_of(path_);
  EXPECT_EQ(text.find("second"), std::string::npos) << "it was refused";
  EXPECT_NE(text.find("\"101 entries\""), std::string::npos);
  EXPECT_NE(text.find("fourth"), std::string::npos);
}

// A limit on the size of files stands for the disk: the last line fits in part only.
TEST_F(Audit, GoesOnWhenThereIsRoomAgain) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  AuditLog log(path_, "gpu1");
  ASSERT_TRUE(log.open().ok());
  ASSERT_TRUE(log.write(entry("one")));
  rlimit small = before;
  small.rlim_cur = text_of(path_).size() + 10;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_FALSE(log.write(entry("two")));
  EXPECT_FALSE(log.write(entry("three")));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(log.write(entry("four")));
  std::stringstream lines(text_of(path_));
  std::string line;
  std::vector<std::string> whole;
  while (std::getline(lines, line)) {
    if (!line.empty() && line.back() == '}') whole.push_back(line);
  }
  ASSERT_EQ(whole.size(), 3u);
  EXPECT_NE(whole[0].find("\"one\""), std::string::npos);
  EXPECT_NE(whole[1].find("\"what\":\"lost\",\"object\":\"2 entries\""), std::string::npos);
  EXPECT_NE(whole[2].find("\"four\""), std::string::npos);
}

}  // namespace
}  // namespace tendril::access

// SPDX-License-Identifier: Apache-2.0
// Groups of leases, on this system's cgroup v2. Without the rights for that, only the refusals.
#include "daemon/containment/cgroups.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tendril::daemon {
namespace {

namespace fs = std::filesystem;

std::string mounted() {
  for (const char* place : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    if (fs::exists(std::string(place) + "/cgroup.controllers")) return place;
  }
  return "";
}

class CgroupsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    base_ = mounted() + "/tendril-test-" + std::to_string(getpid());
    if (mounted().empty() || mkdir(base_.c_str(), 0755) != 0)
      GTEST_SKIP() << "no cgroup v2 that this user may write";
  }
  void TearDown() override { rmdir(base_.c_str()); }
  static pid_t start() {
    const pid_t child = fork();
    if (child == 0) {
      pause();
      _exit(0);
    }
    return child;
  }
  static std::string place_of(pid_t process) {
    std::ifstream lines("/proc/" + std::to_string(process) + "/cgroup");
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("0::", 0) == 0) return line.substr(3);
    }
    return "";
  }
  std::string base_;
};

TEST_F(CgroupsTest, ALeasesProcessesEndTogether) {
  auto groups = Cgroups::open(base_);
  ASSERT_TRUE(groups.ok()) << groups.status().message();
  const pid_t one = start(), two = start(), other = start();
  const lease::HostShare share = lease::host_share(500'000, uint64_t{8} << 30, 63);
  ASSERT_TRUE((*groups)->enter(7, share, one).ok());
  ASSERT_TRUE((*groups)->enter(7, share, two).ok());
  ASSERT_TRUE((*groups)->enter(8, share, other).ok());
  EXPECT_EQ(place_of(one), place_of(two));
  EXPECT_NE(place_of(one).find("lease-7"), std::string::npos);
  (*groups)->remove(7);
  int status = 0;
  ASSERT_EQ(waitpid(one, &status, 0), one);
  EXPECT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(waitpid(two, &status, 0), two);
  EXPECT_EQ(waitpid(other, &status, WNOHANG), 0) << "another lease's stays";
  groups->reset();
  EXPECT_EQ(waitpid(other, &status, 0), other);
  EXPECT_TRUE(fs::is_empty(base_) || std::none_of(fs::directory_iterator(base_), {},
                                                  [](auto& e) { return e.is_directory(); }));
}

TEST_F(CgroupsTest, WhatADeadDaemonLeftEnds) {
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  waitpid(dead, nullptr, 0);
  const std::string left = base_ + "/tendril-" + std::to_string(dead);
  ASSERT_EQ(mkdir(left.c_str(), 0755), 0);
  ASSERT_EQ(mkdir((left + "/lease-1").c_str(), 0755), 0);
  const pid_t orphan = start();
  std::ofstream(left + "/lease-1/cgroup.procs") << orphan << std::flush;
  auto groups = Cgroups::open(base_);
  ASSERT_TRUE(groups.ok());
  int status = 0;
  EXPECT_EQ(waitpid(orphan, &status, 0), orphan);
  EXPECT_TRUE(WIFSIGNALED(status));
  groups->reset();
}

TEST(Cgroups, OnlyAFolderThatWasNamedMustWork) {
  auto off = Cgroups::open("off");
  ASSERT_TRUE(off.ok());
  EXPECT_EQ(*off, nullptr);
  EXPECT_FALSE(Cgroups::open("/nonexistent/group").ok());
}

}  // namespace
}  // namespace tendril::daemon

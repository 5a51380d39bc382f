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
  const std::string group = base_ + "/tendril-" + std::to_string(getpid()) + "/lease-7";
  if ((*groups)->controllers().find("memory") != std::string::npos) {
    std::string most;
    std::ifstream(group + "/memory.max") >> most;
    EXPECT_EQ(most, std::to_string(share.memory_bytes));
  }
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

// A folder that looks like a delegated group with all controllers. The kernel would make the files
// of a new group, so the test makes them.
class FakeGroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tendril-groups-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    base_ = name;
    std::ofstream(base_ + "/cgroup.controllers") << "cpuset cpu io memory pids\n";
  }
  void TearDown() override { fs::remove_all(base_); }
  std::string group_of(uint64_t lease_id) const {
    return base_ + "/tendril-" + std::to_string(getpid()) + "/lease-" + std::to_string(lease_id);
  }
  void make_group(uint64_t lease_id) const {
    ASSERT_TRUE(fs::create_directory(group_of(lease_id)));
    for (const char* file :
         {"memory.max", "memory.swap.max", "pids.max", "cpu.weight", "io.weight", "cgroup.procs"})
      std::ofstream(group_of(lease_id) + "/" + file) << "";
  }
  static std::string text_of(const std::string& path) {
    std::string text;
    std::getline(std::ifstream(path), text);
    return text;
  }
  std::string base_;
};

TEST_F(FakeGroupTest, ALeasesBoundsFollowFromItsSlices) {
  auto groups = Cgroups::open(base_);
  ASSERT_TRUE(groups.ok()) << groups.status().message();
  const std::pair<uint64_t, uint64_t> parts[] = {{1, 250'000}, {2, 10'000}, {3, 1'000'000}};
  for (const auto& [lease_id, part] : parts) {
    make_group(lease_id);
    const lease::HostShare share = lease::host_share(part, uint64_t{64} << 30, 63);
    ASSERT_TRUE((*groups)->enter(lease_id, share, 1000 + static_cast<pid_t>(lease_id)).ok());
    const std::string group = group_of(lease_id);
    EXPECT_EQ(text_of(group + "/memory.max"), std::to_string(share.memory_bytes));
    EXPECT_EQ(text_of(group + "/memory.swap.max"), "0");
    EXPECT_EQ(text_of(group + "/pids.max"), std::to_string(share.threads));
    EXPECT_EQ(text_of(group + "/cpu.weight"), std::to_string(share.weight));
    EXPECT_EQ(text_of(group + "/io.weight"), std::to_string(share.weight));
    EXPECT_EQ(text_of(group + "/cgroup.procs"), std::to_string(1000 + lease_id));
  }
  EXPECT_NEAR(std::stod(text_of(group_of(1) + "/memory.max")), 12.0 * (1 << 30), 1e6)
      << "a quarter of what is lent, which is three quarters of 64 GiB";
  EXPECT_EQ(text_of(group_of(2) + "/memory.max"), std::to_string(uint64_t{2} << 30))
      << "what a driver and a small program need";
  EXPECT_EQ(text_of(group_of(1) + "/cpu.weight"), "2500");
  EXPECT_EQ(text_of(group_of(3) + "/cpu.weight"), "10000") << "the most that the kernel takes";
}

TEST_F(FakeGroupTest, AGroupThatTakesNoProcessIsAnError) {
  auto groups = Cgroups::open(base_);
  ASSERT_TRUE(groups.ok()) << groups.status().message();
  make_group(1);
  fs::remove(group_of(1) + "/cgroup.procs");
  const base::Status entered = (*groups)->enter(1, lease::host_share(1, 1, 1), 1000);
  EXPECT_NE(entered.message().find("cannot put a worker into its lease's cgroup"),
            std::string::npos)
      << entered.message();
}

TEST(Cgroups, OnlyAFolderThatWasNamedMustWork) {
  auto off = Cgroups::open("off");
  ASSERT_TRUE(off.ok());
  EXPECT_EQ(*off, nullptr);
  EXPECT_FALSE(Cgroups::open("/nonexistent/group").ok());
}

}  // namespace
}  // namespace tendril::daemon

// SPDX-License-Identifier: Apache-2.0
// The tightest group decides how much memory the daemon has.
#include "daemon/containment/host_memory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace tendril::daemon {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMib = 1u << 20;

class HostMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/tendril-host-memory-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    mount_ = folder;
  }
  void TearDown() override { fs::remove_all(mount_); }
  void group(const std::string& place, const std::string& most, uint64_t used,
             uint64_t inactive = 0) const {
    fs::create_directories(mount_ + place);
    std::ofstream(mount_ + place + "/memory.max") << most << "\n";
    std::ofstream(mount_ + place + "/memory.current") << used << "\n";
    std::ofstream(mount_ + place + "/memory.stat")
        << "anon " << used << "\ninactive_file " << inactive << "\n";
  }
  HostMemory bounded(const std::string& place) const {
    return bounded_by_groups({1000 * kMib, 800 * kMib}, mount_, place);
  }
  std::string mount_;
};

TEST_F(HostMemoryTest, WithoutLimitsItIsTheMachines) {
  group("/a/b", "max", 700 * kMib);
  for (const char* place : {"/a/b", "/", "", "/gone"}) {
    EXPECT_EQ(bounded(place).total_bytes, 1000 * kMib) << place;
    EXPECT_EQ(bounded(place).available_bytes, 800 * kMib) << place;
  }
}

TEST_F(HostMemoryTest, EachGroupAboveMayBind) {
  group("/a/b", std::to_string(600 * kMib), 100 * kMib);
  group("/a", std::to_string(900 * kMib), 700 * kMib, 50 * kMib);
  EXPECT_EQ(bounded("/a/b").total_bytes, 600 * kMib);
  EXPECT_EQ(bounded("/a/b").available_bytes, 250 * kMib) << "files give way";
  EXPECT_EQ(bounded("/a").total_bytes, 900 * kMib);
  group("/a/b", std::to_string(600 * kMib), 601 * kMib);
  EXPECT_EQ(bounded("/a/b").available_bytes, 0u);
}

TEST_F(HostMemoryTest, AContainersGroupIsTheRoot) {
  group("", std::to_string(300 * kMib), 100 * kMib);
  for (const char* place : {"/", "", "/x"}) {
    EXPECT_EQ(bounded(place).total_bytes, 300 * kMib) << place;
    EXPECT_EQ(bounded(place).available_bytes, 200 * kMib) << place;
  }
}

TEST_F(HostMemoryTest, ThisMachineHasSome) {
  const HostMemory here = host_memory();
  EXPECT_GT(here.total_bytes, 0u);
  EXPECT_GT(here.available_bytes, 0u);
}

}  // namespace
}  // namespace tendril::daemon

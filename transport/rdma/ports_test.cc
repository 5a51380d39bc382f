// SPDX-License-Identifier: Apache-2.0
// What the kernel's files about RDMA ports say, from folders that look like them.
#include "transport/rdma/ports.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace tendril::transport::rdma {
namespace {

class PortsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tendril-ports-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    folders_ = {root_ + "/infiniband", root_ + "/net", root_ + "/boot_id"};
    write("boot_id", "f00d");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_ + "/" + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text << "\n";
  }
  void port(const std::string& name, const std::string& layer, const std::string& state,
            const std::string& rate) {
    write("infiniband/" + name + "/link_layer", layer);
    write("infiniband/" + name + "/state", state);
    write("infiniband/" + name + "/rate", rate);
  }
  std::string root_;
  PortFolders folders_;
};

TEST_F(PortsTest, AllPortsAndTheirStates) {
  port("mlx5_1/ports/2", "InfiniBand", "1: DOWN", "10 Gb/sec (4X SDR)");
  port("mlx5_1/ports/1", "InfiniBand", "4: ACTIVE", "200 Gb/sec (4X HDR)");
  port("mlx5_0/ports/1", "Ethernet", "4: ACTIVE", "2.5 Gb/sec (1X SDR)");
  write("infiniband/mlx5_0/ports/1/gid_attrs/ndevs/1", "eth4");
  const std::vector<PortState> all = read_ports(folders_);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].name(), "mlx5_0:1");
  EXPECT_TRUE(all[0].ethernet && all[0].active);
  EXPECT_EQ(all[0].megabits_per_second, 2'500u);
  EXPECT_EQ(all[0].interface, "eth4");
  EXPECT_EQ(all[1].name(), "mlx5_1:1");
  EXPECT_TRUE(!all[1].ethernet && all[1].active);
  EXPECT_EQ(all[1].megabits_per_second, 200'000u);
  EXPECT_EQ(all[1].interface, "");
  EXPECT_EQ(all[2].name(), "mlx5_1:2");
  EXPECT_FALSE(all[2].active);
}

TEST_F(PortsTest, AMachineWithoutCardsHasNone) {
  EXPECT_TRUE(read_ports(folders_).empty());
  EXPECT_EQ(link_epoch("mlx5_0", 1, 0, folders_), 0u);
}

TEST_F(PortsTest, ALinkThatWasDownHasAnotherEpoch) {
  port("mlx5_0/ports/1", "Ethernet", "4: ACTIVE", "100 Gb/sec (4X EDR)");
  write("infiniband/mlx5_0/ports/1/gid_attrs/ndevs/3", "eth4");
  write("net/eth4/carrier_changes", "3");
  const uint32_t before = link_epoch("mlx5_0", 1, 3, folders_);
  EXPECT_NE(before, 0u);
  EXPECT_EQ(link_epoch("mlx5_0", 1, 3, folders_), before);
  write("net/eth4/carrier_changes", "5");
  const uint32_t after = link_epoch("mlx5_0", 1, 3, folders_);
  EXPECT_NE(after, before);
  write("infiniband/mlx5_0/ports/1/counters/link_downed", "1");
  const uint32_t downed = link_epoch("mlx5_0", 1, 3, folders_);
  EXPECT_NE(downed, after);
  write("boot_id", "beef");
  EXPECT_NE(link_epoch("mlx5_0", 1, 3, folders_), downed) << "counters begin anew";
  EXPECT_NE(link_epoch("mlx5_0", 1, 0, folders_), 0u) << "the card counts";
}

TEST(NamesPort, CardsAndPorts) {
  for (const char* list : {"", "any", "mlx5_0", "mlx5_1,mlx5_0:1"}) {
    EXPECT_TRUE(names_port(list, "mlx5_0", 1)) << list;
    EXPECT_TRUE(names_port(list, "mlx5_0", 0)) << list;
  }
  for (const char* list : {"none", "mlx5_0:2", "mlx5_", "mlx5_00", "mlx5_0:1x"})
    EXPECT_FALSE(names_port(list, "mlx5_0", 1)) << list;
  EXPECT_TRUE(names_port("mlx5_0:2", "mlx5_0", 0)) << "it may be the other port";
  EXPECT_FALSE(names_port("mlx5_00:2", "mlx5_0", 0));
}

}  // namespace
}  // namespace tendril::transport::rdma

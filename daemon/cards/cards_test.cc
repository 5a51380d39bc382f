// SPDX-License-Identifier: Apache-2.0
// RDMA ports that come, go, go down and come up, in folders that look like the kernel's.
#include "daemon/cards/cards.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace tendril::daemon {
namespace {

using Lines = std::vector<std::string>;

class CardsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/tendril-cards-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    root_ = name;
    folders_.ports = {root_ + "/infiniband", root_ + "/net", root_ + "/boot_id"};
    folders_.nodes = root_ + "/dev";
    port("mlx5_0", "4: ACTIVE");
    write("dev/uverbs0", "");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_ + "/" + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text << "\n";
  }
  void port(const std::string& card, const std::string& state,
            const std::string& rate = "100 Gb/sec (4X EDR)") {
    const std::string folder = "infiniband/" + card + "/ports/1/";
    write(folder + "link_layer", "Ethernet");
    write(folder + "state", state);
    write(folder + "rate", rate);
    write(folder + "gid_attrs/ndevs/0", "eth4");
  }
  std::string root_;
  CardFolders folders_;
};

TEST_F(CardsTest, TheFirstLookTellsOfAllThatAreLent) {
  port("mlx5_1", "1: DOWN");
  EXPECT_EQ(Cards("any", folders_).look().lines,
            (Lines{"RDMA port mlx5_0:1 (RoCE on eth4, 100 Gb/s) is here",
                   "RDMA port mlx5_1:1 (RoCE on eth4, 100 Gb/s) is here, and down: sessions use "
                   "TCP instead"}));
  EXPECT_EQ(Cards("mlx5_1", folders_).look().lines.size(), 1u);
  for (const char* none : {"", "none", "mlx5_7"}) {
    Cards cards(none, folders_);
    EXPECT_TRUE(cards.look().lines.empty()) << none;
    EXPECT_TRUE(cards.ports().empty()) << none;
  }
}

TEST_F(CardsTest, LinksThatGoDownAndComeUp) {
  Cards cards("any", folders_);
  EXPECT_FALSE(cards.look().other_cards);
  EXPECT_TRUE(cards.look().lines.empty());
  port("mlx5_0", "1: DOWN");
  Cards::Change change = cards.look();
  EXPECT_EQ(change.lines, Lines{"RDMA port mlx5_0:1 is down; sessions use TCP meanwhile"});
  EXPECT_FALSE(change.other_cards) << "warm workers need not start again for that";
  port("mlx5_0", "4: ACTIVE");
  EXPECT_EQ(cards.look().lines,
            Lines{"RDMA port mlx5_0:1 is up again; the next sessions may use it"});
  port("mlx5_0", "4: ACTIVE", "200 Gb/sec (4X HDR)");
  EXPECT_EQ(cards.look().lines, Lines{"RDMA port mlx5_0:1 is now RoCE on eth4, 200 Gb/s"});
}

TEST_F(CardsTest, CardsThatComeAndGo) {
  Cards cards("any", folders_);
  (void)cards.look();
  port("mlx5_1", "4: ACTIVE");
  EXPECT_FALSE(cards.look().other_cards) << "workers cannot open it yet";
  write("dev/uverbs1", "");
  EXPECT_TRUE(cards.look().other_cards);
  EXPECT_EQ(cards.ports().size(), 2u);
  std::filesystem::remove_all(root_ + "/infiniband");
  std::filesystem::remove_all(root_ + "/dev");
  const Cards::Change change = cards.look();
  EXPECT_EQ(change.lines, (Lines{"RDMA port mlx5_0:1 is gone; sessions use TCP instead",
                                 "RDMA port mlx5_1:1 is gone; sessions use TCP instead"}));
  EXPECT_TRUE(change.other_cards);
}

// Its node has the old name, and is another file, which the sandbox of a warm worker does not know.
TEST_F(CardsTest, ACardThatWasGoneBetweenTwoLooks) {
  Cards cards("any", folders_);
  (void)cards.look();
  write("dev/later", "");
  std::filesystem::rename(root_ + "/dev/later", root_ + "/dev/uverbs0");
  const Cards::Change change = cards.look();
  EXPECT_TRUE(change.lines.empty());
  EXPECT_TRUE(change.other_cards);
  EXPECT_FALSE(cards.look().other_cards);
}

TEST_F(CardsTest, AMachineThatGetsItsFirstCard) {
  std::filesystem::remove_all(root_);
  Cards cards("any", folders_);
  EXPECT_TRUE(cards.look().lines.empty());
  port("mlx5_0", "4: ACTIVE");
  write("dev/uverbs0", "");
  const Cards::Change change = cards.look();
  EXPECT_EQ(change.lines.size(), 1u);
  EXPECT_TRUE(change.other_cards);
}

TEST(SocketsVariable, NamesInterfacesThatAreThere) {
  EXPECT_EQ(*sockets_variable("lo"), "=lo") << "no other one whose name begins so";
  EXPECT_EQ(*sockets_variable("lo,lo"), "=lo,lo");
  for (const char* names : {"", "lo,", "lo,no-such-one", "no such one"}) {
    const auto wrong = sockets_variable(names);
    EXPECT_EQ(wrong.status().code(), base::Code::kNotFound) << names;
    EXPECT_NE(wrong.status().message().find("'ip link' lists them"), std::string::npos);
  }
}

}  // namespace
}  // namespace tendril::daemon

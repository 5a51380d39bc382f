// SPDX-License-Identifier: Apache-2.0
// What a server says of itself to its pool.
#include "daemon/pool/pool_member.h"

#include <gtest/gtest.h>

namespace tendril::daemon {
namespace {

TEST(PoolMember, LabelsAndAddressesAreChecked) {
  PoolMember member;
  member.pools = {"pool1", "pool2:7000", "[::1]:7433"};
  member.labels = {"rack=b7", "path=a/b:c", "empty="};
  EXPECT_TRUE(check_member(member).ok()) << check_member(member).message();
  for (const char* label : {"rack", "=b7", "ra ck=b7", "rack=b\n7", ""}) {
    member.labels = {label};
    EXPECT_EQ(check_member(member).code(), base::Code::kInvalid) << label;
  }
  member.labels = {};
  member.pools = {"pool1:99999"};
  EXPECT_NE(check_member(member).message().find("--pool"), std::string::npos);
  member.pools = {};
  member.name = std::string(65, 'a');
  EXPECT_NE(check_member(member).message().find("--name"), std::string::npos);
}

TEST(PoolMember, NameAndPlaceAreChosenIfNotGiven) {
  gpu::Inventory inventory;
  inventory.apis = {{"cuda", 7}};
  PoolMember member;
  wire::ServerFacts facts = facts_of_member(member, "box", wire::kDefaultPort, true, inventory);
  EXPECT_EQ(facts.name, "box");
  EXPECT_EQ(facts.endpoint, "box:7433");
  EXPECT_EQ(facts.server_id.size(), 16u);
  EXPECT_EQ(facts.apis[0].digest, 7u);
  EXPECT_EQ(offered_transports(false), (std::vector<std::string>{"shm", "tcp"}))
      << "it lends no card";
  // Two servers of one machine are two.
  const wire::ServerFacts other = facts_of_member(member, "box", 4000, false, inventory);
  EXPECT_EQ(other.name, "box:4000");
  EXPECT_EQ(other.endpoint, "127.0.0.1:4000");
  EXPECT_NE(other.server_id, facts.server_id);
  member.name = "gpu3";
  member.advertise = "gpu3.example:1";
  facts = facts_of_member(member, "box", 4000, false, inventory);
  EXPECT_EQ(facts.name, "gpu3");
  EXPECT_EQ(facts.endpoint, "gpu3.example:1");
  // Without a port it is the one that the server listens at.
  for (const auto& [given, told] : {std::pair("gpu3", "gpu3:4000"),
                                    {"fe80::1", "[fe80::1]:4000"},
                                    {"gpu3=[fe80::1]", "gpu3=[fe80::1]:4000"},
                                    {"[fe80::1]:7433", "[fe80::1]:7433"}}) {
    member.advertise = given;
    EXPECT_EQ(facts_of_member(member, "box", 4000, false, inventory).endpoint, told);
  }
}

}  // namespace
}  // namespace tendril::daemon

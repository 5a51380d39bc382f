// SPDX-License-Identifier: Apache-2.0
// What a server makes of the names of its pool's other servers: who is meant, which addresses
// count.
#include "daemon/pool/pool_peers.h"

#include <gtest/gtest.h>

namespace tendril::daemon {
namespace {

const std::string kFirst(wire::kPassageIdBytes, '\1'), kSecond(wire::kPassageIdBytes, '\2');

std::string hosts(const std::vector<session::Endpoint>& endpoints) {
  std::string text;
  for (const session::Endpoint& each : endpoints) text += each.text + " ";
  return text;
}

TEST(PoolPeers, ASchedulerNamesThem) {
  PoolPeers peers;
  EXPECT_EQ(hosts(peers.with_passage_id(kFirst)), "");
  peers.named(true, {{"a", "10.0.0.1:7433", kFirst}, {"b", "10.0.0.2", kSecond}});
  EXPECT_EQ(hosts(peers.with_passage_id(kFirst)), "10.0.0.1:7433 ");
  EXPECT_EQ(hosts(peers.with_passage_id(kSecond)), "10.0.0.2 ");
  peers.named(false, {{"c", "10.0.0.3", ""}, {"d", "10.0.0.4", ""}});
  EXPECT_EQ(hosts(peers.with_passage_id(kFirst)), "10.0.0.1:7433 ") << "it is known exactly";
  EXPECT_EQ(hosts(peers.with_passage_id(std::string(16, '\3'))), "10.0.0.3 10.0.0.4 ");
  peers.named(false, {{"a", "10.0.0.9", kFirst}});
  EXPECT_EQ(hosts(peers.with_passage_id(kFirst)), "10.0.0.9 ") << "it moved";
  peers.named(true, {});
  EXPECT_EQ(peers.count(), 0u);
}

TEST(PoolPeers, OnlyAddressesOfNetworksCount) {
  PoolPeers peers;
  peers.named(true, {{"a", "unix:/run/x.sock", kFirst}, {"b", "", kSecond}, {"c", "10.0.0.1", ""}});
  EXPECT_EQ(peers.count(), 1u);
  peers.named(false, {{"c", "unix:/run/x.sock", ""}});
  EXPECT_EQ(peers.count(), 0u);
}

// Otherwise workers would reach services of their own machine.
TEST(PoolPeers, LoopbackIsNobodyElses) {
  PoolPeers peers;
  peers.named(true, {{"a", "127.0.0.1:7433", kFirst},
                     {"b", "10.0.0.2:7433", kSecond},
                     {"c", "[::1]:7433", ""},
                     {"d", "127.3.2.1:7433", ""}});
  EXPECT_EQ(peers.addresses(false, 1).size(), 1u);
  EXPECT_EQ(peers.addresses(true, 1).size(), 4u);
  peers.named(true, {{"b", "10.0.0.7:7433", kSecond}});
  ASSERT_EQ(peers.addresses(false, 2).size(), 1u);
  EXPECT_EQ(peers.addresses(false, 2)[0].bytes[3], 7);
}

}  // namespace
}  // namespace tendril::daemon

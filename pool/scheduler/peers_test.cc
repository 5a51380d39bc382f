// SPDX-License-Identifier: Apache-2.0
// A server of a pool hears of each other server, and hears it once.
#include "pool/scheduler/peers.h"

#include <gtest/gtest.h>

#include <string>

namespace tendril::pool {
namespace {

wire::PoolPeer peer(const std::string& name, const std::string& id = "1") {
  return {name, name + ":7433", id};
}

std::string told(const PeerNames& names, uint32_t server, PeerNames::Told* before) {
  wire::PoolOrders orders;
  names.tell(server, before, &orders);
  std::string text = orders.peers_begin ? "anew:" : "";
  for (const wire::PoolPeer& each : orders.peers) text += " " + each.name + "/" + each.passage_id;
  return text;
}

TEST(PeerNames, EachHearsOfTheOthersOnce) {
  PeerNames names;
  PeerNames::Told first, second;
  names.set(0, peer("a"));
  EXPECT_EQ(told(names, 0, &first), "anew:");
  names.set(1, peer("b"));
  names.set(2, peer("c"));
  EXPECT_EQ(told(names, 0, &first), " b/1 c/1");
  EXPECT_EQ(told(names, 0, &first), "");
  EXPECT_EQ(told(names, 1, &second), "anew: a/1 c/1");
  names.set(1, peer("b"));
  EXPECT_EQ(told(names, 0, &first), "");
  names.set(1, peer("b", "2"));
  EXPECT_EQ(told(names, 0, &first), " b/2");
  EXPECT_EQ(told(names, 1, &second), "");
}

TEST(PeerNames, WhoIsForgottenIsNamedNoLonger) {
  PeerNames names;
  PeerNames::Told first;
  for (uint32_t i = 0; i < 3; ++i) names.set(i, peer(std::string(1, static_cast<char>('a' + i))));
  EXPECT_EQ(told(names, 0, &first), "anew: b/1 c/1");
  names.remove(1);
  EXPECT_EQ(told(names, 0, &first), "anew: c/1");
  names.remove(1);
  EXPECT_EQ(told(names, 0, &first), "");
  names.set(2, {"c", "", ""});  // nobody can reach it
  EXPECT_EQ(told(names, 0, &first), "anew:");
}

TEST(PeerNames, APolicyMayNameNobody) {
  PeerNames names;
  PeerNames::Told first;
  names.set(0, peer("a"));
  names.set(1, peer("b"));
  names.allow(true);
  EXPECT_EQ(told(names, 0, &first), "anew: b/1");
  names.allow(false);
  EXPECT_EQ(told(names, 0, &first), "anew:");
  names.set(2, peer("c"));
  EXPECT_EQ(told(names, 0, &first), "");
  names.allow(true);
  EXPECT_EQ(told(names, 0, &first), "anew: b/1 c/1");
}

TEST(PeerNames, ManyComeInSeveralAnswers) {
  PeerNames names;
  for (uint32_t i = 0; i < 1000; ++i) names.set(i, peer(std::to_string(i)));
  PeerNames::Told first;
  size_t named = 0, answers = 0;
  do {
    wire::PoolOrders orders;
    names.tell(0, &first, &orders);
    EXPECT_EQ(orders.peers_begin, answers == 0);
    EXPECT_LE(orders.peers.size(), wire::kPoolPeersMax);
    named += orders.peers.size();
    ++answers;
  } while (first.more);
  EXPECT_EQ(named, 999u);
  EXPECT_GT(answers, 2u);
}

}  // namespace
}  // namespace tendril::pool

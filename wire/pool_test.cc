// SPDX-License-Identifier: Apache-2.0
// Tests of the pool's messages: round trips, what older and newer peers make of them, bounds.
#include "wire/pool.h"

#include <gtest/gtest.h>

namespace tendril::wire {
namespace {

template <typename Message>
bool again(const Message& message, Message* out) {
  const std::vector<uint8_t> body = encode(message);
  return !body.empty() && decode(body.data(), body.size(), out);
}

TEST(PoolMessages, AReportRoundTrips) {
  PoolReport report;
  report.boot = 7;
  report.number = 1;
  report.full = true;
  ServerFacts facts;
  facts.name = "gpu1";
  facts.endpoint = "gpu1:7433";
  facts.labels = {"rack=3", ""};
  facts.gpus.resize(2);
  facts.gpus[1].compute_capability = 90;
  report.facts.push_back(facts);
  BookEntry entry;
  entry.lease_id = 12;
  entry.pool_lease_id = 400;
  entry.phase = LeasePhase::kClaimed;
  entry.slices = {{1, 500'000, 1u << 30}};
  entry.idle_ns = 0;
  report.entries.push_back(entry);
  report.results.push_back({3, base::Code::kRefused, "GPU 1 has a quarter left", 0, ""});
  report.counts.push_back({12, 7, 6, 5, 4, 3, "shm"});
  PoolReport read;
  ASSERT_TRUE(again(report, &read));
  ASSERT_EQ(read.counts.size(), 1u);
  EXPECT_EQ(read.counts[0].round_trips, 6u);
  EXPECT_EQ(read.counts[0].links, "shm");
  EXPECT_TRUE(read.full);
  EXPECT_FALSE(read.more);
  ASSERT_EQ(read.facts.size(), 1u);
  EXPECT_EQ(read.facts[0].labels, facts.labels);
  EXPECT_EQ(read.facts[0].gpus[1].compute_capability, 90u);
  ASSERT_EQ(read.entries.size(), 1u);
  EXPECT_EQ(read.entries[0].phase, LeasePhase::kClaimed);
  EXPECT_EQ(read.entries[0].idle_ns, 0u);
  EXPECT_EQ(read.entries[0].slices[0].share_millionths, 500'000u);
  ASSERT_EQ(read.results.size(), 1u);
  EXPECT_EQ(read.results[0].code, base::Code::kRefused);
}

TEST(PoolMessages, OrdersRoundTrip) {
  PoolOrders orders;
  orders.pool = "lab";
  orders.term = 9;
  orders.schedules = true;
  Order hold;
  hold.order_id = 5;
  hold.gpus = {3, 1};
  hold.slice.share_millionths = 250'000;
  hold.terms = {SharePolicy::kCap, -3};
  hold.owner_id = "spiffe://lab/user/ada";
  hold.expires_ms = kHoldMs;
  orders.orders.push_back(hold);
  orders.policy = "[pool]\n";
  orders.peers_begin = true;
  orders.peers = {{"gpu2", "gpu2:7433", std::string(16, '\7')}, {"gpu3", "gpu3:7433", ""}};
  PoolOrders read;
  ASSERT_TRUE(again(orders, &read));
  ASSERT_EQ(read.orders.size(), 1u);
  EXPECT_EQ(read.orders[0].gpus, hold.gpus);
  EXPECT_EQ(read.orders[0].terms.priority, -3);
  EXPECT_EQ(read.orders[0].owner_id, hold.owner_id);
  EXPECT_EQ(read.policy, orders.policy);
  EXPECT_TRUE(read.peers_begin);
  ASSERT_EQ(read.peers.size(), 2u);
  EXPECT_EQ(read.peers[0].endpoint, "gpu2:7433");
  EXPECT_EQ(read.peers[0].passage_id, orders.peers[0].passage_id);
  EXPECT_EQ(read.peers[1].passage_id, "");
}

TEST(PoolMessages, AGrantOnServersAndAWishRoundTrip) {
  LeaseReply reply;
  reply.lease_id = 412;
  reply.parts = {{"gpu3", "gpu3:7433", 8, "secret", {{0, 500'000, 5}}},
                 {"gpu5", "gpu5:7433", 9, "other", {{7, 500'000, 5}}}};
  LeaseReply read;
  ASSERT_TRUE(again(reply, &read));
  ASSERT_EQ(read.parts.size(), 2u);
  EXPECT_EQ(read.parts[1].slices[0].gpu_index, 7u);
  LeaseRequest request;
  request.wish.filter = "memory >= 40G";
  request.wish.layout = Layout::kSpread;
  request.wish.request_key = std::string(kRequestKeyBytes, '\3');
  LeaseRequest asked;
  ASSERT_TRUE(again(request, &asked));
  EXPECT_EQ(asked.wish.filter, request.wish.filter);
  EXPECT_EQ(asked.wish.layout, Layout::kSpread);
  EXPECT_EQ(asked.wish.request_key, request.wish.request_key);
}

TEST(PoolMessages, ImpossibleOnesAreRefused) {
  PoolReport report;
  report.facts.resize(2);
  PoolReport read;
  EXPECT_FALSE(again(report, &read));
  report.facts.clear();
  report.entries.resize(1);
  report.entries[0].phase = LeasePhase(9);
  EXPECT_FALSE(again(report, &read));
  report.entries.assign(kBookEntriesMax + 1, BookEntry{});
  EXPECT_FALSE(again(report, &read));
  PoolOrders orders;
  orders.orders.resize(1);
  orders.orders[0].text.assign(kPoolTextBytesMax + 1, 'x');
  PoolOrders got;
  EXPECT_FALSE(again(orders, &got));
  orders.orders.clear();
  orders.peers.resize(kPoolPeersMax + 1);
  EXPECT_FALSE(again(orders, &got));
  LeaseRequest request;
  request.wish.request_key = "short";
  LeaseRequest asked;
  EXPECT_FALSE(again(request, &asked));
  PoolCommand command;
  command.verb = "queue";
  command.arguments.resize(kPoolArgumentsMax + 1);
  PoolCommand heard;
  EXPECT_FALSE(again(command, &heard));
}

TEST(PoolMessages, AnOrderOfAnUnknownKindIsLeftToTheServer) {
  PoolOrders orders;
  orders.orders.resize(1);
  orders.orders[0].kind = OrderKind(200);
  PoolOrders read;
  ASSERT_TRUE(again(orders, &read));
  EXPECT_EQ(int(read.orders[0].kind), 200);
}

}  // namespace
}  // namespace tendril::wire

// SPDX-License-Identifier: Apache-2.0
// Lane and service against each other over every transport: calls, replies, order, bulk both ways,
// many threads, loss. A watchdog ends the process if a test hangs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <thread>

#include "base/clock.h"
#include "session/lane/test_pair.h"

namespace tendril::session {
namespace {

class LaneTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { alarm(240); }
  void TearDown() override { alarm(0); }
};

TEST_P(LaneTest, EchoesManyCalls) {
  TestSession s(GetParam(), 2);
  for (int i = 0; i < 300; ++i) {
    std::string text(size_t(i * 7 % 5000), char('a' + i % 26));
    Reply reply = s.call(kEcho, text);
    ASSERT_FALSE(reply.lost);
    ASSERT_EQ(reply.result, 7);
    ASSERT_EQ(std::string(reinterpret_cast<const char*>(reply.body), reply.bytes), text);
  }
}

TEST_P(LaneTest, KeepsTheOrderOfCalls) {
  TestSession s(GetParam(), 0);
  for (uint64_t i = 0; i < 50000; ++i) s.post(kCount, &i, sizeof i);
  Reply reply = s.call(kCounted, "");
  uint64_t seen[2];
  ASSERT_EQ(reply.bytes, sizeof seen);
  memcpy(seen, reply.body, sizeof seen);
  EXPECT_EQ(seen[0], 50000u);
  EXPECT_EQ(seen[1], 0u) << "calls out of order";
  EXPECT_GT(s.looked_ahead.load(), 0u) << "none was found that had arrived";
}

// The executor waits for a call that is behind others. A thread that attends finds it. No other
// call is lost or moved.
TEST_P(LaneTest, AttendingFindsACallBehindOthers) {
  for (size_t bulk : {size_t(0), size_t(2)}) {
    TestSession s(GetParam(), bulk);
    s.post(kHold, "some bytes that must stay", 25);
    constexpr uint64_t kCalls = 1500;  // their bodies together do not fit the inbox
    std::vector<uint64_t> body(512);
    std::thread attending([&] {
      while (s.releases == 0 && s.service->attend()) std::this_thread::yield();
    });
    for (uint64_t i = 0; i < kCalls; ++i) {
      if (i == kCalls - 100) s.post(kRelease, "", 0);
      body[0] = i;
      s.post(kCount, body.data(), body.size() * sizeof body[0]);
    }
    Reply reply = s.call(kCounted, "");
    attending.join();
    uint64_t seen[2];
    ASSERT_EQ(reply.bytes, sizeof seen);
    memcpy(seen, reply.body, sizeof seen);
    EXPECT_EQ(seen[0], kCalls);
    EXPECT_EQ(seen[1], 0u) << "a call was lost, moved or run twice";
    EXPECT_EQ(s.releases, 1);
  }
}

// The executor asks before it waits for another call. It may hold a turn of the GPU then.
TEST_P(LaneTest, WhatWasTakenOnSightIsNotPending) {
  TestSession s(GetParam(), 0);
  s.post(kHold, "stay", 5);
  s.post(kRelease, "", 0);
  while (s.pending_after_hold < 0 && s.service->attend()) std::this_thread::yield();
  EXPECT_EQ(s.pending_after_hold, 0);
}

// A driver with a thousand launches ahead of it stops the program, too. Calls that the worker may
// be waiting for still pass.
TEST_P(LaneTest, TheClientDoesNotRunFarAhead) {
  TestSession s(GetParam(), 0);
  s.post(kHold, "stay", 5);
  std::thread program([&] {
    for (uint64_t i = 0; i < 3 * wire::kCallsAheadMax; ++i) s.post(kCount, &i, sizeof i);
  });
  const auto& calls = s.lane->stats().calls;
  while (calls < wire::kCallsAheadMax) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(calls, wire::kCallsAheadMax);
  std::thread([&] {
    Lane::exempt_this_thread();
    s.post(kRelease, "", 0);
    while (s.releases == 0 && s.service->attend()) std::this_thread::yield();
  }).join();
  program.join();
  Reply reply = s.call(kCounted, "");
  uint64_t seen[2] = {};
  ASSERT_EQ(reply.bytes, sizeof seen);
  memcpy(seen, reply.body, sizeof seen);
  EXPECT_EQ(seen[0], 3 * wire::kCallsAheadMax);
  EXPECT_EQ(seen[1], 0u);
}

TEST_P(LaneTest, AttendingNoticesTheEnd) {
  TestSession s(GetParam(), 0);
  s.post(kHold, "", 0);
  std::thread attending([&] {
    while (s.service->attend()) std::this_thread::yield();
    s.releases = 1;
  });
  s.lane.reset();
  attending.join();
}

TEST_P(LaneTest, CarriesTheLargestCallAndReply) {
  TestSession s(GetParam(), 0);
  std::string big(wire::kCallBytesMax - 16, 'x');
  for (int i = 0; i < 20; ++i) {
    big[size_t(i) * 1000] = 'y';
    Reply reply = s.call(kEcho, big);
    ASSERT_EQ(reply.bytes, big.size());
    ASSERT_EQ(memcmp(reply.body, big.data(), big.size()), 0);
  }
  EXPECT_EQ(s.lane->begin(1, 0, wire::kCallBytesMax, 0), nullptr);
}

TEST_P(LaneTest, DeliversBeforeTheReply) {
  TestSession s(GetParam(), 0);
  std::vector<uint8_t> target(wire::kReplyInlineMax);
  s.events.allow(target.data(), target.size());
  const uint32_t sizes[] = {1, 60000, 60001, wire::kReplyInlineMax - 3, wire::kReplyInlineMax};
  uint64_t told = 0;
  for (uint32_t i = 1; i < 100; ++i) {
    const uint32_t bytes = sizes[i % 5];
    struct {
      uint64_t address;
      uint32_t bytes;
      uint32_t value;
    } ask = {reinterpret_cast<uint64_t>(target.data()), bytes, i};
    s.post(kDeliver, &ask, sizeof ask);
    ASSERT_FALSE(s.call(kEcho, "").lost);
    ASSERT_EQ(std::count(target.begin(), target.begin() + bytes, uint8_t(i)), bytes);
    ASSERT_EQ(s.events.delivered_bytes, told += bytes) << "of " << bytes;
  }
}

TEST_P(LaneTest, ACallIsSentWhenTheWaitThatWasNearDoesNotCome) {
  TestSession s(GetParam(), 0);
  for (uint64_t i = 0; i < 20; ++i) {
    s.lane->wait_is_near();
    s.post(kCount, &i, sizeof i);
    while (s.counted.load() != i + 1) usleep(10);
    s.lane->wait_is_near();
    EXPECT_FALSE(s.call(kEcho, "").lost);
  }
}

TEST_P(LaneTest, ExpectedBytesGoStraightToTheirPlace) {
  TestSession s(GetParam(), 0);
  const auto ask = [&](const std::vector<uint8_t>& body, std::vector<uint8_t>* target,
                       size_t bytes) {
    const uint32_t id = s.lane->new_reply_id();
    uint8_t* at = s.lane->begin(kEcho, 0, uint32_t(body.size()), id);
    memcpy(at, body.data(), body.size());
    s.lane->expect_bytes(id, target->data(), uint32_t(bytes));
    s.lane->commit();
    return s.lane->wait(id);
  };
  for (const size_t bytes :
       {size_t{4}, size_t{1000}, size_t{65536}, size_t{262144}, size_t{200004}, size_t{4}}) {
    const std::vector<uint8_t> body = pattern(8 + (bytes + 7) / 8 * 8, bytes);
    std::vector<uint8_t> target(bytes + 8, 7);
    Reply reply = ask(body, &target, bytes);
    ASSERT_TRUE(reply.placed);
    ASSERT_EQ(reply.bytes, 8u);
    EXPECT_EQ(memcmp(reply.body, body.data(), 8), 0);
    EXPECT_EQ(memcmp(target.data(), body.data() + 8, bytes), 0);
    EXPECT_EQ(std::vector<uint8_t>(8, 7), std::vector<uint8_t>(target.end() - 8, target.end()));

    std::vector<uint8_t> untouched(bytes + 8, 7);
    reply = ask(body, &untouched, bytes + 8);  // the answer is shorter than that
    ASSERT_FALSE(reply.placed || reply.lost);
    EXPECT_EQ(reply.bytes, body.size());
    EXPECT_EQ(std::vector<uint8_t>(bytes + 8, 7), untouched);
  }
  EXPECT_FALSE(s.call(kEcho, "").placed);
}

TEST_P(LaneTest, RefusesDeliveriesNobodyAskedFor) {
  TestSession s(GetParam(), 0);
  uint64_t precious = 5;
  struct {
    uint64_t address;
    uint32_t bytes;
    uint32_t value;
  } ask = {reinterpret_cast<uint64_t>(&precious), 8, 1};
  s.post(kDeliver, &ask, sizeof ask);
  EXPECT_TRUE(s.call(kEcho, "").lost);
  EXPECT_EQ(precious, 5u);
  EXPECT_EQ(s.events.lost_count.load(), 1);
}

TEST_P(LaneTest, RefusesProgressOfCallsThatWereNotMade) {
  TestSession s(GetParam(), 0);
  const uint64_t run = 1000;
  s.service->push(wire::FrameKind::kProgress, 0, &run, sizeof run);
  EXPECT_TRUE(s.call(kEcho, "").lost);
  EXPECT_NE(s.events.why.message().find("progress of calls that were not made"), std::string::npos);
}

TEST_P(LaneTest, TellsOfWrittenMemoryBeforeTheReply) {
  TestSession s(GetParam(), 0);
  ASSERT_FALSE(s.call(kEcho, "").lost);
  EXPECT_EQ(s.events.writes.load(), 0);
  s.service->push(wire::FrameKind::kMemoryWritten, 0, nullptr, 0);
  ASSERT_FALSE(s.call(kEcho, "").lost);
  EXPECT_EQ(s.events.writes.load(), 1);
  s.service->push(wire::FrameKind::kMemoryWritten, 0, "!", 1);
  EXPECT_TRUE(s.call(kEcho, "").lost);
}

TEST_P(LaneTest, AThreadMaySeeWhetherAnAnswerHasCome) {
  TestSession s(GetParam(), 0);
  const uint32_t id = s.lane->new_reply_id();
  ASSERT_NE(s.lane->begin(kEcho, 0, 0, id), nullptr);
  s.lane->commit();
  EXPECT_FALSE(s.lane->answered(id));  // nobody has received
  s.lane->flush();
  for (int i = 0; i < 1000 && !s.lane->answered(id); ++i) {
    s.lane->pump();
    usleep(1000);
  }
  EXPECT_TRUE(s.lane->answered(id));
  EXPECT_FALSE(s.lane->wait(id).lost);
}

TEST_P(LaneTest, NobodyNeedsToWaitForAnAnswer) {
  TestSession s(GetParam(), 0);
  const auto ask = [&] {
    const uint32_t id = s.lane->new_reply_id();
    EXPECT_NE(s.lane->begin(kEcho, 0, 0, id), nullptr);
    s.lane->commit();
    return id;
  };
  int32_t result = -1;
  const uint32_t taken = ask(), dropped_early = ask(), dropped_late = ask();
  EXPECT_FALSE(s.lane->take_result(taken, &result));  // nobody has received
  s.lane->drop_reply(dropped_early);
  ASSERT_FALSE(s.call(kEcho, "").lost);
  EXPECT_TRUE(s.lane->take_result(taken, &result));
  EXPECT_EQ(result, 7);
  EXPECT_FALSE(s.lane->take_result(taken, &result));
  s.lane->drop_reply(dropped_late);
  EXPECT_TRUE(s.lane->answered(dropped_late));
  EXPECT_FALSE(s.lane->take_result(dropped_late, &result));
  EXPECT_FALSE(s.call(kEcho, "").lost);
}

TEST_P(LaneTest, TellsNewsBeforeTheReplyAndToWhoeverLooks) {
  TestSession s(GetParam(), 0);
  s.service->push(wire::FrameKind::kNews, 0, "one", 3);
  ASSERT_FALSE(s.call(kEcho, "").lost);
  EXPECT_EQ(s.events.told, "one");
  s.service->push(wire::FrameKind::kNews, 0, "two", 3);
  for (int i = 0; i < 1000 && s.events.told != "onetwo"; ++i) {
    s.lane->pump();
    usleep(1000);
  }
  EXPECT_EQ(s.events.told, "onetwo");
}

// Many deliveries and no reader: the worker blocks on its replies, the client on its calls. The
// client must read.
TEST_P(LaneTest, FloodOfDeliveriesDoesNotDeadlock) {
  TestSession s(GetParam(), 0);
  std::vector<uint8_t> target(32768);
  s.events.allow(target.data(), target.size());
  struct {
    uint64_t address;
    uint32_t bytes;
    uint32_t value;
    char filler[2000];
  } ask = {reinterpret_cast<uint64_t>(target.data()), uint32_t(target.size()), 1, {}};
  for (int i = 0; i < 6000; ++i) {
    ask.value = uint32_t(i);
    s.post(kDeliver, &ask, sizeof ask);
  }
  ASSERT_FALSE(s.call(kEcho, "").lost);
  EXPECT_EQ(target[100], uint8_t(5999));
}

TEST_P(LaneTest, ManyThreadsShareALane) {
  TestSession s(GetParam(), 2);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        uint64_t number = 0;
        for (int n = 0; n < 5; ++n) s.post(kNothing, &number, 8);
        std::string text = std::to_string(t) + "/" + std::to_string(i);
        Reply reply = s.call(kEcho, text);
        if (reply.lost ||
            std::string(reinterpret_cast<const char*>(reply.body), reply.bytes) != text)
          ++failures;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
}

// The ids of these replies fall into one bucket of the table of pending replies. One thread each
// holds them when the lane ends.
TEST_P(LaneTest, RepliesOfOneBucketAreHeldBySeveralThreads) {
  TestSession s(GetParam(), 0);
  uint32_t first = s.lane->new_reply_id(), second = 0;
  ASSERT_TRUE(s.post(kEcho, "first", 5, first));
  for (int i = 0; i < 256; ++i) second = s.lane->new_reply_id();
  ASSERT_TRUE(s.post(kEcho, "second", 6, second));
  EXPECT_EQ(s.lane->wait(second).bytes, 6u);
  std::thread other([&] { EXPECT_EQ(s.lane->wait(first).bytes, 5u); });
  other.join();
}

void bulk_out(TestSession& s, uint64_t bytes, uint64_t seed, TestCall call = kTake) {
  std::vector<uint8_t> data = pattern(bytes, seed);
  uint64_t id = s.lane->new_transfer_id();
  uint64_t ask[3] = {id, bytes, seed};
  uint32_t reply_id = s.lane->new_reply_id();
  ASSERT_TRUE(s.post(call, ask, sizeof ask, reply_id));
  ASSERT_TRUE(s.lane->send_bulk(id, data.data(), bytes));
  Reply reply = s.lane->wait(reply_id);
  ASSERT_FALSE(reply.lost);
  ASSERT_EQ(reply.result, 0) << "the worker saw other bytes";
}

void bulk_in(TestSession& s, uint64_t bytes, uint64_t seed, bool async) {
  std::vector<uint8_t> data(bytes + 1, 0xee);
  uint64_t id = s.lane->new_transfer_id();
  uint64_t ask[3] = {id, bytes, seed};
  if (async) {
    s.lane->expect_bulk_async(id, data.data(), bytes);
    ASSERT_TRUE(s.post(kGive, ask, sizeof ask));
    ASSERT_FALSE(s.call(kEcho, "").lost);
  } else {
    s.lane->expect_bulk(id, data.data(), bytes);
    ASSERT_TRUE(s.post(kGive, ask, sizeof ask));
    ASSERT_TRUE(s.lane->wait_bulk(id));
  }
  std::vector<uint8_t> wanted = pattern(bytes, seed);
  ASSERT_EQ(memcmp(data.data(), wanted.data(), bytes), 0);
  ASSERT_EQ(data[bytes], 0xee);
}

TEST_P(LaneTest, BulkBothWays) {
  for (size_t channels : {0, 1, 3}) {
    TestSession s(GetParam(), channels);
    uint64_t seed = 1;
    for (uint64_t bytes : {1u, 100u, 65537u, 1u << 20, 3000001u, 20u << 20}) {
      bulk_out(s, bytes, ++seed);
      bulk_out(s, bytes, ++seed, kTakeInto);
      bulk_in(s, bytes, ++seed, false);
      bulk_in(s, bytes, ++seed, true);
    }
  }
}

// The counts that tendril top shows.
TEST_P(LaneTest, BothEndsCountTheSame) {
  for (size_t channels : {0, 2}) {
    TestSession s(GetParam(), channels);
    const wire::SessionCounts& counts = s.service->counts();
    const LaneStats& ours = s.lane->stats();
    for (uint64_t i = 0; i < 1000; ++i) s.post(kCount, &i, sizeof i);
    for (int i = 0; i < 10; ++i) s.call(kEcho, "some text");
    bulk_out(s, 1u << 20, 1);
    bulk_in(s, 2u << 20, 2, false);
    EXPECT_EQ(counts.calls, 1012u)
        << "without the pieces of bulk data that the lane carries where nothing else does";
    EXPECT_EQ(counts.replies, ours.round_trips);
    EXPECT_GE(counts.lane_bytes_in + counts.bulk_bytes_in, (1u << 20) + 1000 * 24u);
    EXPECT_GE(counts.lane_bytes_out + counts.bulk_bytes_out, (2u << 20) + 10 * 16u);
    const uint64_t awaited_ns = counts.awaited_ns;
    EXPECT_GT(awaited_ns, 0u);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_EQ(counts.awaited_ns, awaited_ns) << "nobody waits";
  }
}

// More data at once than the worker has slots, in an order that it does not want. Grants must put
// it in order.
TEST_P(LaneTest, ManyBulkTransfersAtOnce) {
  for (size_t channels : {0, 2}) {
    TestSession s(GetParam(), channels);
    std::vector<std::thread> threads;
    for (int t = 0; t < 6; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 4; ++i) {
          bulk_out(s, (uint64_t(1) << 20) * uint64_t(1 + (t * 5 + i) % 9) + 17,
                   uint64_t(t * 100 + i), t % 2 == 0 ? kTake : kTakeInto);
          bulk_in(s, (uint64_t(1) << 20) * uint64_t(1 + (t * 3 + i) % 5) + 3, uint64_t(t * 100 + i),
                  i % 2 == 0);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_FALSE(s.lane->is_lost());
  }
}

TEST_P(LaneTest, DiscardedTransferLetsTheClientGo) {
  for (size_t channels : {0, 2}) {
    TestSession s(GetParam(), channels);
    for (int i = 0; i < 3; ++i) {
      std::vector<uint8_t> data(30u << 20);
      uint64_t id = s.lane->new_transfer_id();
      uint32_t reply_id = s.lane->new_reply_id();
      s.post(kDiscard, &id, sizeof id, reply_id);
      ASSERT_TRUE(s.lane->send_bulk(id, data.data(), data.size()));
      ASSERT_FALSE(s.lane->wait(reply_id).lost);
      bulk_out(s, 10u << 20, uint64_t(i), i == 1 ? kTakeInto : kTake);
    }
  }
}

// The pieces that nobody asked for have come before anybody takes them.
TEST_P(LaneTest, WhatHasComeIsCopiedToItsPlace) {
  for (size_t channels : {1, 2}) {
    TestSession s(GetParam(), channels);
    const std::vector<uint8_t> data = pattern(40u << 20, 1);
    uint64_t ask[3] = {s.lane->new_transfer_id(), data.size(), 1};
    const uint32_t reply_id = s.lane->new_reply_id();
    const uint64_t nothing = 0;
    ASSERT_TRUE(s.post(kHold, &nothing, sizeof nothing));
    ASSERT_TRUE(s.post(kTakeInto, ask, sizeof ask, reply_id));
    std::thread sender([&] { EXPECT_TRUE(s.lane->send_bulk(ask[0], data.data(), data.size())); });
    usleep(20000);
    s.post(kRelease, nullptr, 0);
    s.lane->flush();
    while (s.releases == 0 && s.service->attend()) usleep(100);
    const Reply reply = s.lane->wait(reply_id);
    sender.join();
    EXPECT_FALSE(reply.lost);
    EXPECT_EQ(reply.result, 0);
  }
}

TEST_P(LaneTest, FailedTransferEndsTheRegistration) {
  TestSession s(GetParam(), 1);
  std::vector<uint8_t> data(1000);
  uint64_t id = s.lane->new_transfer_id();
  s.lane->expect_bulk(id, data.data(), data.size());
  s.post(kFailTransfer, &id, sizeof id);
  EXPECT_FALSE(s.lane->wait_bulk(id));
  id = s.lane->new_transfer_id();
  s.lane->expect_bulk(id, data.data(), data.size());
  s.lane->cancel_bulk(id);
  EXPECT_FALSE(s.lane->wait_bulk(id));
  EXPECT_FALSE(s.call(kEcho, "").lost);
}

TEST_P(LaneTest, PushesReachTheClient) {
  TestSession s(GetParam(), 0);
  s.lane->start_receiver();
  s.post(kPush, nullptr, 0);
  s.lane->flush();
  for (int i = 0; i < 5000 && s.events.callbacks.load() == 0; ++i) usleep(1000);
  EXPECT_EQ(s.events.callbacks.load(), 1);
  EXPECT_EQ(s.events.output_text, "hello");
  EXPECT_EQ(s.events.sticky.load(), 700);
  EXPECT_FALSE(s.call(kEcho, "").lost);
}

// A thread that has waited for an answer leaves no receiver behind. The thread that receives for
// host functions has stepped back meanwhile.
TEST_P(LaneTest, PushesReachTheClientRightAfterAWait) {
  TestSession s(GetParam(), 0);
  s.lane->start_receiver();
  s.events.awaited = true;
  std::vector<double> ms;
  for (int i = 0; i < 41; ++i) {
    usleep(500);
    ASSERT_FALSE(s.call(kEcho, "").lost);
    ASSERT_FALSE(s.call(kEcho, "").lost);
    const uint64_t begin_ns = base::now_ns();
    s.post(kPush, nullptr, 0);
    s.lane->flush();
    while (s.events.callbacks.load() <= i && base::now_ns() - begin_ns < 1'000'000'000) usleep(20);
    ASSERT_EQ(s.events.callbacks.load(), i + 1);
    ms.push_back(static_cast<double>(base::now_ns() - begin_ns) / 1e6);
  }
  // The quickest ones, because a busy machine delays some. A receiver that stands back delays all.
  std::sort(ms.begin(), ms.end());
  EXPECT_LT(ms[4], 4) << "the receiver stood back for most of 20 ms";
}

TEST_P(LaneTest, TheServersLastWordsArrive) {
  TestSession s(GetParam(), 1);
  s.post(kEnd, nullptr, 0);
  EXPECT_TRUE(s.call(kEcho, "").lost);
  EXPECT_EQ(s.events.lost_count.load(), 1);
  EXPECT_NE(s.events.why.message().find("out of patience"), std::string::npos)
      << s.events.why.message();
  EXPECT_EQ(s.lane->begin(1, 0, 8, 0), nullptr);
  EXPECT_FALSE(s.lane->send_bulk(s.lane->new_transfer_id(), "x", 1));
}

TEST_P(LaneTest, CloseLetsTheWorkerFinish) {
  TestSession s(GetParam(), 1);
  uint64_t zero = 0;
  for (uint64_t i = 0; i < 1000; ++i) s.post(kCount, &i, sizeof i);
  s.post(kNothing, &zero, 8);
  s.lane->close(5000);
  s.join_worker();
  EXPECT_EQ(s.counted.load(), 1000u);
  EXPECT_EQ(s.events.lost_count.load(), 0);
  EXPECT_EQ(s.service_end.message(), "the client said goodbye");
}

TEST_P(LaneTest, LossWakesEveryWaiter) {
  TestSession s(GetParam(), 2);
  std::vector<std::thread> threads;
  std::atomic<int> lost{0};
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::vector<uint8_t> data(8u << 20);
      if (t % 3 == 0) {
        while (!s.call(kEcho, "").lost) {
        }
        ++lost;
      } else if (t % 3 == 1) {
        for (;;) {
          uint64_t id = s.lane->new_transfer_id();
          uint64_t ask[3] = {id, data.size(), 0};
          if (!s.post(t == 1 ? kTake : kTakeInto, ask, sizeof ask) ||
              !s.lane->send_bulk(id, data.data(), data.size()))
            break;
        }
        ++lost;
      } else {
        for (;;) {
          uint64_t id = s.lane->new_transfer_id();
          uint64_t ask[3] = {id, data.size(), 0};
          s.lane->expect_bulk(id, data.data(), data.size());
          if (!s.post(kGive, ask, sizeof ask) || !s.lane->wait_bulk(id)) break;
        }
        ++lost;
      }
    });
  }
  usleep(50000);
  s.service->end("enough");
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(lost.load(), 6);
  s.lane.reset();  // a thread of the lane may have found the loss and may be about to report it
  EXPECT_EQ(s.events.lost_count.load(), 1);
}

INSTANTIATE_TEST_SUITE_P(Transports, LaneTest, ::testing::ValuesIn(kTestTransports),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tendril::session

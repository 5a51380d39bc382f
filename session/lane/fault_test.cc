// SPDX-License-Identifier: Apache-2.0
// Sessions over lines that break: loss at many points of every channel, shredded and corrupted
// streams, hand-made hostile peers, fork. The claim is always the same. The session ends with an
// error on both sides, never hangs, and writes only where a call asked for it.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "session/lane/test_pair.h"

namespace tendril::session {
namespace {

using transport::ChannelSet;
using transport::Faults;

class FaultTest : public ::testing::Test {
 protected:
  void SetUp() override { alarm(240); }
  void TearDown() override { alarm(0); }
};

enum class Where { kClientCommand, kClientBulk, kWorkerCommand, kWorkerBulk };

// Does some of everything. Returns how many steps succeeded.
int exercise(TestSession& s) {
  int good = 0;
  bool wiped = false;
  std::vector<uint8_t> data = pattern(3u << 20, 9), into(2u << 20);
  std::vector<uint8_t> target(80'000), placed(100'000), echoed = pattern(8 + placed.size(), 5);
  s.events.allow(target.data(), target.size());
  for (int i = 0; i < 3; ++i) {
    uint64_t number = uint64_t(i);
    s.post(kCount, &number, sizeof number);
    struct {
      uint64_t address;
      uint32_t bytes, value;
    } ask = {reinterpret_cast<uint64_t>(target.data()), uint32_t(target.size()), 1};
    s.post(kDeliver, &ask, sizeof ask);
    if (!s.call(kEcho, "hello").lost) ++good;
    const uint32_t wanted = s.lane->new_reply_id();
    if (uint8_t* at = s.lane->begin(kEcho, 0, uint32_t(echoed.size()), wanted)) {
      memcpy(at, echoed.data(), echoed.size());
      s.lane->expect_bytes(wanted, placed.data(), uint32_t(placed.size()));
      s.lane->commit();
      if (s.lane->wait(wanted).placed && memcmp(placed.data(), &echoed[8], placed.size()) == 0)
        ++good;
    }
    wiped = s.call(kEcho, "").lost;
    if (wiped) placed.assign(placed.size(), 7), target.assign(target.size(), 7);
    for (const TestCall take : {kTake, kTakeInto}) {
      uint64_t out[3] = {s.lane->new_transfer_id(), data.size(), 9};
      uint32_t id = s.lane->new_reply_id();
      if (!s.post(take, out, sizeof out, id)) continue;
      if (s.lane->send_bulk(out[0], data.data(), data.size())) ++good;
      if (!s.lane->wait(id).lost) ++good;
    }
    uint64_t in[3] = {s.lane->new_transfer_id(), into.size(), 4};
    s.lane->expect_bulk(in[0], into.data(), into.size());
    if (s.post(kGive, in, sizeof in) && s.lane->wait_bulk(in[0])) ++good;
  }
  // After a loss was reported, nothing is written any more.
  if (wiped) {
    EXPECT_EQ(placed, std::vector<uint8_t>(placed.size(), 7));
    EXPECT_EQ(target, std::vector<uint8_t>(target.size(), 7));
  }
  return good;
}

int run_with(const Faults& faults, Where where, size_t bulk) {
  ChannelSet client, worker;
  transport::make_channels("unix", bulk, &client, &worker);
  std::unique_ptr<transport::Channel>* victim = nullptr;
  switch (where) {
    case Where::kClientCommand:
      victim = &client.command;
      break;
    case Where::kWorkerCommand:
      victim = &worker.command;
      break;
    case Where::kClientBulk:
      victim = &client.bulk[0];
      break;
    case Where::kWorkerBulk:
      victim = &worker.bulk[0];
      break;
  }
  *victim = transport::faulty(std::move(*victim), faults);
  TestSession s(std::move(client), std::move(worker));
  return exercise(s);
}

TEST_F(FaultTest, LossAtAnyPointEndsTheSession) {
  for (Where where :
       {Where::kClientCommand, Where::kClientBulk, Where::kWorkerCommand, Where::kWorkerBulk}) {
    for (uint64_t at :
         {0u, 1u, 15u, 16u, 17u, 40u, 100u, 333u, 5000u, 70000u, 1048600u, 2500000u}) {
      Faults faults;
      faults.end_after_sent = at;
      run_with(faults, where, 2);
      faults.end_after_sent = transport::kNever;
      faults.end_after_received = at;
      run_with(faults, where, 2);
    }
  }
}

TEST_F(FaultTest, LossWithoutBulkChannels) {
  for (Where where : {Where::kClientCommand, Where::kWorkerCommand}) {
    for (uint64_t at : {0u, 20u, 400u, 5000u, 600000u, 1048600u, 4000000u}) {
      Faults faults;
      faults.end_after_sent = at;
      run_with(faults, where, 0);
    }
  }
}

TEST_F(FaultTest, ShreddedStreamsWorkAllTheSame) {
  for (Where where : {Where::kClientCommand, Where::kWorkerCommand}) {
    for (uint64_t seed : {1u, 2u}) {
      Faults faults;
      faults.seed = seed;
      faults.short_pieces = true;
      EXPECT_EQ(run_with(faults, where, 1), 21);
    }
  }
}

TEST_F(FaultTest, CorruptionNeverHangsOrCrashes) {
  for (Where where :
       {Where::kClientCommand, Where::kWorkerCommand, Where::kClientBulk, Where::kWorkerBulk}) {
    for (uint64_t at = 0; at < 160; at += 7) {
      // A flipped length can make either side wait for bytes that never come. So the line must end
      // at some time, like real lines.
      Faults faults;
      faults.corrupt_sent_at = at;
      faults.end_after_sent = 3u << 20;
      ChannelSet client, worker;
      transport::make_channels("unix", 1, &client, &worker);
      auto& victim = where == Where::kClientCommand   ? client.command
                     : where == Where::kWorkerCommand ? worker.command
                     : where == Where::kClientBulk    ? client.bulk[0]
                                                      : worker.bulk[0];
      victim = transport::faulty(std::move(victim), faults);
      TestSession s(std::move(client), std::move(worker));
      std::atomic<bool> over{false};
      std::thread guard([&] {
        for (int i = 0; i < 200 && !over; ++i) usleep(1000);
        if (!over) s.service->end("the test has waited long enough");
      });
      exercise(s);
      over = true;
      guard.join();
    }
  }
}

// What a hostile client can send. Each input must end the session with a text, and do nothing else.
std::string service_says(const std::vector<uint8_t>& lane, const std::vector<uint8_t>& bulk,
                         size_t bulk_channels) {
  ChannelSet client, worker;
  transport::make_channels("unix", bulk_channels, &client, &worker);
  auto service =
      Service::open(std::move(worker.command), worker.bulk.data(), worker.bulk.size(), SlotPool());
  iovec part{const_cast<uint8_t*>(lane.data()), lane.size()};
  if (!lane.empty()) (void)client.command->send(&part, 1);
  part = {const_cast<uint8_t*>(bulk.data()), bulk.size()};
  if (!bulk.empty()) (void)client.bulk[0]->send(&part, 1);
  for (;;) {
    auto call = service->next({0, 2000});
    if (!call.ok()) return call.status().message();
    uint64_t place[2] = {};
    if (call->opcode != kTakeInto) continue;
    EXPECT_FALSE(service->take_into(1, place, 8));
    EXPECT_EQ(place[1], 0u);
  }
}
template <typename T>
std::vector<uint8_t> bytes_of(const T& value, size_t extra = 0) {
  std::vector<uint8_t> all(sizeof value + extra);
  memcpy(all.data(), &value, sizeof value);
  return all;
}

TEST_F(FaultTest, HostileClientsAreNamed) {
  auto says = [](const std::string& text, const char* what) {
    EXPECT_NE(text.find("malformed"), std::string::npos) << text;
    EXPECT_NE(text.find(what), std::string::npos) << text;
  };
  says(service_says(bytes_of(wire::CallHeader{8, 1, 0, 0, 0}), {}, 0), "length");
  says(service_says(bytes_of(wire::CallHeader{17, 1, 0, 0, 0}), {}, 0), "length");
  says(service_says(bytes_of(wire::CallHeader{0xfffffff8u, 1, 0, 0, 0}), {}, 0), "length");
  says(service_says(bytes_of(wire::CallHeader{16, 1, 7, 0, 0}), {}, 0), "length");
  says(service_says(bytes_of(wire::CallHeader{24, 1, wire::kFlagBulkData, 0, 0}, 8), {}, 0),
       "bulk");
  says(service_says(bytes_of(wire::CallHeader{48, 1, wire::kFlagBulkData, 0, 0}, 32), {}, 1),
       "bulk");
  says(service_says({}, bytes_of(wire::ChunkHeader{1, 0, 0, 1}), 1), "header");
  says(service_says({}, bytes_of(wire::ChunkHeader{1, 0, wire::kChunkBytesMax + 1, 1}), 1),
       "header");
  says(service_says({}, bytes_of(wire::ChunkHeader{1, 0, 8, 1}, 8), 1), "not granted");
  std::vector<uint8_t> flood;
  for (uint64_t i = 1; i < 100; ++i) {
    std::vector<uint8_t> chunk = bytes_of(wire::ChunkHeader{i, 0, 8, 1 | wire::kChunkEager}, 8);
    flood.insert(flood.end(), chunk.begin(), chunk.end());
  }
  says(service_says({}, flood, 1), "more unannounced");
  // Eight bytes of transfer 1 are expected.
  const std::vector<uint8_t> taken = bytes_of(wire::CallHeader{16, kTakeInto, 0, 0, 0});
  for (const wire::ChunkHeader& chunk :
       {wire::ChunkHeader{1, 8, 8, 1}, wire::ChunkHeader{1, 4, 8, 1},
        wire::ChunkHeader{1, 0, 16, 1}, wire::ChunkHeader{1, 0, 4, 1},
        wire::ChunkHeader{1, ~0ull - 3, 8, 1}}) {
    for (const uint32_t eager : {0u, wire::kChunkEager}) {
      wire::ChunkHeader sent = chunk;
      sent.pieces |= eager;
      says(service_says(taken, bytes_of(sent, chunk.bytes), 1), eager != 0 ? "fit" : "");
    }
  }
}

std::string lane_says(const std::vector<uint8_t>& frames) {
  ChannelSet client, worker;
  transport::make_channels("unix", 0, &client, &worker);
  TestEvents events;
  auto lane = Lane::open(std::move(client.command), nullptr, 0, &events);
  uint32_t id = lane->new_reply_id();
  EXPECT_NE(lane->begin(1, 0, 0, id), nullptr);
  lane->commit();
  iovec part{const_cast<uint8_t*>(frames.data()), frames.size()};
  EXPECT_TRUE(worker.command->send(&part, 1).ok());
  EXPECT_TRUE(lane->wait(id).lost);
  EXPECT_EQ(events.lost_count.load(), 1);
  return events.why.message();
}

TEST_F(FaultTest, HostileServersAreNamed) {
  auto frame = [](wire::FrameKind kind, uint32_t bytes, uint16_t flags, uint32_t reply_id,
                  size_t extra) {
    return bytes_of(wire::ReplyHeader{bytes, uint16_t(kind), flags, 0, reply_id}, extra);
  };
  EXPECT_NE(lane_says(frame(wire::FrameKind::kReply, 8, 0, 1, 0)).find("length"),
            std::string::npos);
  EXPECT_NE(lane_says(frame(wire::FrameKind::kReply, 0x7ffffff8, 0, 1, 0)).find("length"),
            std::string::npos);
  EXPECT_NE(lane_says(frame(wire::FrameKind::kReply, 16, 0, 999, 0)).find("waits for none"),
            std::string::npos);
  EXPECT_NE(lane_says(frame(wire::FrameKind(77), 16, 0, 1, 0)).find("unknown kind"),
            std::string::npos);
  EXPECT_NE(lane_says(frame(wire::FrameKind::kDelivery, 24, 4, 0, 8)).find("delivery's length"),
            std::string::npos);
  EXPECT_NE(lane_says(frame(wire::FrameKind::kDelivery, 32, 0, 0, 16)).find("no call named"),
            std::string::npos);
  EXPECT_NE(lane_says(frame(wire::FrameKind::kGrant, 24, 0, 0, 8)).find("grant"),
            std::string::npos);
  EXPECT_NE(lane_says(frame(wire::FrameKind::kBulkData, 48, 0, 0, 32)).find("chunk"),
            std::string::npos);
}

TEST_F(FaultTest, ForkedChildAbandonsTheLane) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "fork with threads";
#endif
  for (const char* transport : {"tcp", "shm"}) {
    TestSession s(transport, 2);
    std::vector<uint8_t> data = pattern(5u << 20, 3);
    auto bulk = [&] {
      uint64_t ask[3] = {s.lane->new_transfer_id(), data.size(), 3};
      uint32_t id = s.lane->new_reply_id();
      s.post(kTake, ask, sizeof ask, id);
      s.lane->send_bulk(ask[0], data.data(), data.size());
      Reply reply = s.lane->wait(id);
      return !reply.lost && reply.result == 0;
    };
    uint64_t zero = 0;
    s.post(kNothing, &zero, 8);
    ASSERT_TRUE(bulk());
    pid_t child = fork();
    if (child == 0) {
      alarm(20);
      s.lane->abandon_after_fork();
      bool right = s.lane->is_lost() && s.lane->begin(1, 0, 8, 0) == nullptr &&
                   s.lane->wait(5).lost && !s.lane->send_bulk(77, data.data(), 10);
      s.lane->close(100);
      s.lane.reset();
      _exit(right ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(bulk());
    EXPECT_FALSE(s.call(kEcho, "still here").lost);
  }
}

}  // namespace
}  // namespace tendril::session

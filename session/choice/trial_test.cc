// SPDX-License-Identifier: Apache-2.0
// Measuring a session's connections, and a client that does it wrong: the worker gives it so much
// and no more.
#include "session/choice/trial.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <thread>
#include <vector>

#include "transport/testing/test_channels.h"

namespace tendril::session {
namespace {

using base::Code;
using base::Result;
using transport::Measured;

class TrialTest : public ::testing::Test {
 protected:
  void SetUp() override {
    alarm(60);
    transport::make_channels("tcp", 3, &client_, &worker_);
    transport::make_channels("loopback", 2, &fabric_client_, &fabric_worker_);
  }
  void TearDown() override { alarm(0); }
  static Way way(const transport::ChannelSet& set) {
    Way way{set.command.get(), {}};
    for (const auto& each : set.bulk) way.bulk.push_back(each.get());
    return way;
  }
  Result<WayChoice> serve(bool moves = true, const TrialLimits& limits = {}) {
    return serve_trial(
        worker_.command.get(), {"rdma", "tcp", way(fabric_worker_), way(worker_)},
        [moves](const WayChoice&) { return moves; }, limits);
  }
  Result<Measured> measured(WayKind kind) {
    return measure(client_.command.get(), kind,
                   kind == WayKind::kFabric ? way(fabric_client_) : way(client_));
  }
  // What the worker's end says to these bytes, after which nothing comes.
  Result<WayChoice> answer_to(const std::string& bytes) {
    SetUp();
    const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    EXPECT_TRUE(client_.command->send(&part, 1).ok());
    client_ = {};
    return serve();
  }
  transport::ChannelSet client_, worker_, fabric_client_, fabric_worker_;
};

// As trial.cc lays an order out.
std::string order(uint32_t mark, uint32_t kind, uint32_t calls = 0, uint32_t bulk = 0,
                  Measured fabric = {}, Measured connections = {}) {
  const uint32_t words[4] = {mark, kind, calls, bulk};
  std::string bytes(reinterpret_cast<const char*>(words), sizeof words);
  bytes.append(reinterpret_cast<const char*>(&fabric), sizeof fabric);
  return bytes.append(reinterpret_cast<const char*>(&connections), sizeof connections);
}
constexpr uint32_t kMark = 0x324c5254;
constexpr uint32_t kEchoes = 1, kBurst = 2, kChoose = 3;

TEST_F(TrialTest, BothEndsComeToTheSameChoice) {
  Result<WayChoice> there = base::Status(Code::kInternal, "");
  std::thread worker([&] { there = serve(); });
  for (const WayKind kind : {WayKind::kFabric, WayKind::kConnections}) {
    Result<Measured> one = measured(kind);
    EXPECT_TRUE(one.ok());
    EXPECT_GT(one->round_trip_us, 0);
    EXPECT_GT(one->gigabytes_per_second, 0);
  }
  const Measured connections{20, 4}, fabric{10, 2};
  const WayChoice here = choose_way("rdma", fabric, "tcp", connections);
  Result<bool> told = tell_choice(client_.command.get(), here, fabric, connections);
  EXPECT_TRUE(told.ok() && *told);
  worker.join();
  ASSERT_TRUE(there.ok()) << there.status().message();
  EXPECT_TRUE(there->calls);
  EXPECT_FALSE(there->bulk);
  EXPECT_EQ(there->brief, "rdma (calls 2.0x) + tcp (bulk 2.0x)");
  char byte;
  for (const auto* set : {&client_, &fabric_client_}) {
    for (const auto& each : set->bulk)
      EXPECT_EQ(*each->receive(&byte, 0, 1, {0, 0}), 0u) << "something is left";
  }
}

TEST_F(TrialTest, AWorkerThatCannotMoveSaysSo) {
  Result<WayChoice> there = base::Status(Code::kInternal, "");
  std::thread worker([&] { there = serve(false); });
  Result<bool> told = tell_choice(client_.command.get(), {true, true, "", ""}, {}, {});
  worker.join();
  EXPECT_TRUE(told.ok() && !*told);
  EXPECT_EQ(there->brief, "tcp");
}

TEST_F(TrialTest, NonsenseEndsTheTrial) {
  for (const std::string& bytes :
       {order(kMark + 1, kChoose), order(kMark, 0), order(kMark, 4), order(kMark, kChoose, 2, 0),
        order(kMark, kChoose, 0, 7), order(kMark, kChoose, 1, 1, {std::nan(""), 1}, {1, 1}),
        order(kMark, kChoose, 1, 1, {1, 1}, {-1, 1}),
        order(kMark, kChoose, 1, 1, {1, 1}, {1, HUGE_VAL})})
    EXPECT_EQ(answer_to(bytes).status().code(), Code::kInvalid);
  EXPECT_EQ(answer_to(order(kMark, kChoose).substr(0, 47)).status().code(), Code::kClosed);
}

TEST_F(TrialTest, NobodyGetsMoreThanATrial) {
  Result<WayChoice> there = base::Status(Code::kInternal, "");
  std::thread worker([&] { there = serve(); });
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(measured(WayKind::kFabric).ok());
  const std::string more = order(kMark, kBurst, 1);
  const iovec part{const_cast<char*>(more.data()), more.size()};
  EXPECT_TRUE(client_.command->send(&part, 1).ok());
  worker.join();
  EXPECT_EQ(there.status().code(), Code::kInvalid);
  EXPECT_EQ(answer_to(order(kMark, kEchoes)).status().code(), Code::kClosed);
}

// Silent from the first moment, in the midst of echoes, and before it takes a burst.
TEST_F(TrialTest, AClientThatFallsSilentIsLeft) {
  for (const std::string& said : {std::string(), order(kMark, kEchoes), order(kMark, kBurst)}) {
    SetUp();
    const iovec part{const_cast<char*>(said.data()), said.size()};
    EXPECT_TRUE(client_.command->send(&part, 1).ok());
    EXPECT_EQ(serve(true, {50, 60'000}).status().code(), Code::kTimeout);
  }
}

// Each word comes in time, and yet the trial does not end.
TEST_F(TrialTest, ATrialTakesOnlySoLong) {
  Result<WayChoice> there = base::Status(Code::kInternal, "");
  std::thread worker([&] { there = serve(true, {10'000, 150}); });
  const std::string word = order(kMark, kEchoes);
  const iovec part{const_cast<char*>(word.data()), word.size()};
  for (int i = 0; i < 10 && client_.command->send(&part, 1).ok(); ++i) usleep(30'000);
  worker.join();
  EXPECT_EQ(there.status().code(), Code::kTimeout);
}

}  // namespace
}  // namespace tendril::session

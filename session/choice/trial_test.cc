// SPDX-License-Identifier: Apache-2.0
// Measuring a session's connections, and a client that does it wrong: the worker gives it so much
// and no more.
#include "session/choice/trial.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
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
    TrialServer server;
    server.fabric_kind = "rdma";
    server.connections_kind = "tcp";
    server.ways[size_t(WayKind::kConnections)] = way(worker_);
    server.ways[size_t(WayKind::kFabric)] = way(fabric_worker_);
    server.ports = [] { return std::vector<transport::Port>{{"card0:1", "RoCE", 100'000}}; };
    server.pair = [](WayKind, const transport::Port& port, const std::string& blob) {
      return port.name == "card0:1" && blob == "mine"
                 ? Result<std::string>(std::string("ours"))
                 : base::Status(Code::kUnavailable, "its cable\nis loose");
    };
    server.moves = [moves](const WayChoice&) { return moves; };
    return serve_trial(worker_.command.get(), &server, limits);
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
struct Said {
  uint32_t mark = 0x344c5254, kind = 1, way = 0, calls = 0, bulk = 0, striped = 0, number = 0,
           bytes = 0;
  Measured fabric, connections;
};
static_assert(sizeof(Said) == 64);
std::string order(const Said& said) {
  return std::string(reinterpret_cast<const char*>(&said), sizeof said);
}
constexpr uint32_t kMark = Said().mark;
constexpr uint32_t kEchoes = 1, kBurst = 2, kChoose = 3, kPair = 5, kBurstRest = 6;
std::string order(uint32_t kind, uint32_t way = 0) { return order(Said{kMark, kind, way}); }

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

// A program that runs every 20 ms only. Meanwhile a burst lies in buffers, from which it is read
// fast.
class SlowReader final : public transport::Channel {
 public:
  explicit SlowReader(transport::Channel* inner) : inner_(*inner) {}
  base::Status send(const iovec* parts, int count) override { return inner_.send(parts, count); }
  Result<size_t> send_some(const iovec* parts, int count, int timeout_ms) override {
    return inner_.send_some(parts, count, timeout_ms);
  }
  Result<size_t> receive(void* into, size_t min, size_t max, transport::Wait wait) override {
    const bool runs = sleeps_until_ns_ != 0 && base::now_ns() >= sleeps_until_ns_;
    if (runs || sleeps_until_ns_ == 0) sleeps_until_ns_ = base::now_ns() + 20'000'000u;
    return runs ? inner_.receive(into, min, max, wait) : size_t(0);
  }
  void shutdown() override { inner_.shutdown(); }
  const char* kind() const override { return "slow"; }

 private:
  transport::Channel& inner_;
  uint64_t sleeps_until_ns_ = 0;
};

TEST_F(TrialTest, ASlowReaderIsSeenAsSlow) {
  std::thread worker([&] { (void)serve(); });
  Way slowly = way(client_);
  std::vector<std::unique_ptr<SlowReader>> readers;
  for (transport::Channel*& each : slowly.bulk)
    each = readers.emplace_back(std::make_unique<SlowReader>(each)).get();
  Result<Measured> one = measure(client_.command.get(), WayKind::kConnections, slowly);
  client_ = {};
  worker.join();
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_LT(one->gigabytes_per_second, 0.1) << "1.5 MiB in not less than 20 ms";
}

TEST_F(TrialTest, AWorkerThatCannotMoveSaysSo) {
  Result<WayChoice> there = base::Status(Code::kInternal, "");
  std::thread worker([&] { there = serve(false); });
  Result<bool> told = tell_choice(client_.command.get(), WayChoice(), {}, {});
  worker.join();
  EXPECT_TRUE(told.ok() && !*told);
  EXPECT_EQ(there->brief, "tcp");
}

TEST_F(TrialTest, NonsenseEndsTheTrial) {
  const Measured bad[] = {{std::nan(""), 1}, {-1, 1}, {1, HUGE_VAL}};
  for (const Said& said :
       {Said{kMark + 1, kChoose}, Said{kMark, 0}, Said{kMark, 7}, Said{kMark, kChoose, 3},
        Said{kMark, kChoose, 1, 2}, Said{kMark, kChoose, 1, 0, 7}, Said{kMark, kChoose, 1, 1, 1, 2},
        Said{kMark, kChoose, 1, 1, 1, 0, 0, 0, bad[0], {1, 1}},
        Said{kMark, kChoose, 1, 1, 1, 0, 0, 0, {1, 1}, bad[1]},
        Said{kMark, kChoose, 1, 1, 1, 0, 0, 0, {1, 1}, bad[2]},
        Said{kMark, kPair, 0, 0, 0, 0, 0, 4},     // connections are no pair of ports
        Said{kMark, kPair, 1, 0, 0, 0, 0, 0},     // nothing follows
        Said{kMark, kPair, 1, 0, 0, 0, 0, 1025},  // too much follows
        Said{kMark, kEchoes, 2}, Said{kMark, kBurst, 2},
        Said{kMark, kBurstRest, 2}})  // there is no such way
    EXPECT_EQ(answer_to(order(said)).status().code(), Code::kInvalid) << said.kind;
  EXPECT_EQ(answer_to(order(kChoose).substr(0, 63)).status().code(), Code::kClosed);
}

TEST_F(TrialTest, AWorkerTellsItsPortsAndMakesPairs) {
  std::thread worker([&] { (void)serve(); });
  transport::Channel* const orders = client_.command.get();
  const Result<std::string> unasked = ask_pair(orders, WayKind::kOtherFabric, 0, "mine");
  EXPECT_EQ(unasked.status().message(), "the server has no such port") << "it has told of none";
  auto ports = ask_ports(orders);
  ASSERT_TRUE(ports.ok() && ports->size() == 1);
  EXPECT_EQ(ports->at(0).name, "card0:1");
  EXPECT_EQ(ports->at(0).network, "RoCE");
  EXPECT_EQ(ports->at(0).megabits_per_second, 100'000u);
  EXPECT_EQ(*ask_pair(orders, WayKind::kOtherFabric, 0, "mine"), "ours");
  EXPECT_EQ(ask_pair(orders, WayKind::kFabric, 7, "mine").status().code(), Code::kUnavailable);
  EXPECT_EQ(ask_pair(orders, WayKind::kFabric, 0, "x").status().message(), "its cable?is loose");
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(ask_pair(orders, WayKind::kFabric, 0, "mine").ok());
  EXPECT_FALSE(ask_pair(orders, WayKind::kFabric, 0, "mine").ok()) << "six are enough";
  worker.join();
}

// A passage's other end hears of the fabric with the trial only, and once.
TEST_F(TrialTest, TheFirstHalfMayComeWithTheTrial) {
  const auto tries = [this](int with_first) {
    SetUp();
    std::vector<Result<std::string>> answers;
    std::thread worker([&] {
      TrialServer server;
      int asked = 0;
      server.first = [&asked](const std::string& blob) -> Result<std::string> {
        if (++asked > 1 || blob != "mine") return base::Status(Code::kInvalid, "once");
        return std::string("ours");
      };
      if (with_first == 0) server.first = nullptr;
      (void)serve_trial(worker_.command.get(), &server);
    });
    for (int i = 0; i < 2; ++i) answers.push_back(ask_first(client_.command.get(), "mine"));
    client_ = {};
    worker.join();
    return answers;
  };
  auto answers = tries(1);
  ASSERT_TRUE(answers[0].ok());
  EXPECT_EQ(*answers[0], "ours");
  EXPECT_EQ(answers[1].status().message(), "once");
  EXPECT_EQ(tries(0)[0].status().message(), "the server has no such port");
}

// Whoever is refused a way cannot choose it.
TEST_F(TrialTest, AWayThatIsNotThereIsNotChosen) {
  std::thread worker([&] { (void)serve(); });
  WayChoice choice;
  choice.striped = true;
  Result<bool> told = tell_choice(client_.command.get(), choice, {1, 1}, {1, 1});
  worker.join();
  EXPECT_TRUE(told.ok() && !*told);
}

TEST_F(TrialTest, NobodyGetsMoreThanATrial) {
  Result<WayChoice> there = base::Status(Code::kInternal, "");
  std::thread worker([&] { there = serve(); });
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(measured(WayKind::kFabric).ok());
  const std::string more = order(kBurst, 1);
  const iovec part{const_cast<char*>(more.data()), more.size()};
  EXPECT_TRUE(client_.command->send(&part, 1).ok());
  worker.join();
  EXPECT_EQ(there.status().code(), Code::kInvalid);
  EXPECT_EQ(answer_to(order(kEchoes)).status().code(), Code::kClosed);
}

// Silent from the first moment, in the midst of echoes, and before it takes a burst.
TEST_F(TrialTest, AClientThatFallsSilentIsLeft) {
  const std::string half = order(kEchoes).substr(0, 30);
  for (const std::string& said :
       {std::string(), half, order(kEchoes), order(kBurst), order(kEchoes) + half}) {
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
  const std::string word = order(kEchoes);
  const iovec part{const_cast<char*>(word.data()), word.size()};
  for (int i = 0; i < 10 && client_.command->send(&part, 1).ok(); ++i) usleep(30'000);
  worker.join();
  EXPECT_EQ(there.status().code(), Code::kTimeout);
}

}  // namespace
}  // namespace tendril::session

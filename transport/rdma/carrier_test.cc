// SPDX-License-Identifier: Apache-2.0
// Lasting sessions whose lines RDMA carries, over the double of the verbs. Whatever a card does
// wrong, the session goes on over its connections: no byte is lost, repeated or moved. A watchdog
// ends the process when a test hangs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <thread>

#include "transport/testing/lasting_network.h"
#include "transport/testing/rdma_channels.h"

namespace tendril::transport::rdma {
namespace {

using base::Code;
using base::Status;

constexpr uint32_t kLines = 3;

class CarrierTest : public ::testing::Test {
 protected:
  void SetUp() override { alarm(240); }
  void TearDown() override {
    channels_ = {};
    network_.reset();
    alarm(0);
  }
  // `carried`: how many of the lines RDMA carries.
  void open(uint32_t carried = kLines, uint32_t patience_ms = 20'000) {
    channels_ = {};
    network_.reset();
    Sizes sizes;
    sizes.channels = carried;
    sizes.report_ms = 200;
    auto here = End::make(verbs_.open("").take(), sizes).take();
    auto there = End::make(verbs_.open("").take(), sizes).take();
    ASSERT_TRUE(there->connect(here->blob()).ok());
    ASSERT_TRUE(here->connect(there->blob()).ok());
    client_memory_ = here->memory();
    worker_memory_ = there->memory();
    client_counts_ = here->counts();
    base::Fd theirs, ours = tcp_sockets(&theirs);
    network_ = std::make_unique<Network>(kLines, patience_ms, here->channels(std::move(ours)),
                                         there->channels(std::move(theirs)));
    for (uint32_t line = 0; line < kLines; ++line) {
      channels_[0][line] = lasting_channel(network_->client, line);
      channels_[1][line] = lasting_channel(network_->worker, line);
    }
  }
  Channel& client(uint32_t line = 0) { return *channels_[0][line]; }
  Channel& worker(uint32_t line = 0) { return *channels_[1][line]; }
  // Both ways on all lines at once, while something happens.
  template <typename Happens>
  void stream(uint64_t words, const Happens& happens) {
    std::vector<std::thread> threads;
    for (uint32_t line = 0; line < kLines; ++line) {
      threads.emplace_back([&, line] { send_stream(&client(line), words, line); });
      threads.emplace_back([&, line] { check_stream(&worker(line), words, line); });
      threads.emplace_back([&, line] { send_stream(&worker(line), words, line + 10); });
      threads.emplace_back([&, line] { check_stream(&client(line), words, line + 10); });
    }
    happens();
    for (std::thread& thread : threads) thread.join();
  }

  VerbsDouble verbs_;
  std::unique_ptr<Network> network_;
  std::array<std::array<std::unique_ptr<Channel>, kLines>, 2> channels_;
  std::shared_ptr<ProgramMemory> client_memory_, worker_memory_;
  std::shared_ptr<CopyCounts> client_counts_;
};

void say(Channel& from, Channel& to, const std::string& text) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  const Status sent = from.send(&part, 1);
  ASSERT_TRUE(sent.ok()) << sent.message();
  std::string got(text.size(), 0);
  const auto received = to.receive(got.data(), got.size(), got.size(), {20, 10'000});
  ASSERT_TRUE(received.ok()) << received.status().message();
  EXPECT_EQ(got, text);
}

TEST_F(CarrierTest, LinesAreCarriedAsLongAsAllIsWell) {
  open();
  stream(100'000, [] {});
  EXPECT_STREQ(client().kind(), "rdma");
  EXPECT_EQ(network_->client->resumptions(), 0u);
  EXPECT_GT(client_counts_->messages.load(), 0u);
}

TEST_F(CarrierTest, SomeLinesMayBeCarriedAndOthersNot) {
  open(1);
  EXPECT_STREQ(client(0).kind(), "rdma");
  EXPECT_STREQ(client(1).kind(), "tcp");
  stream(300'000, [&] {
    usleep(5'000);
    verbs_.set_link(false);
  });
  EXPECT_STREQ(client(0).kind(), "tcp");
  EXPECT_EQ(network_->carriers_failed, 1u);
}

// A fault of each kind at a random work: what came before and comes after is one stream.
TEST_F(CarrierTest, NothingIsLostOrRepeatedWhateverACardDoes) {
  const Fate fates[] = {Fate::kUnanswered, Fate::kNotReady, Fate::kRemoteAccess, Fate::kLocalError,
                        Fate::kOther};
  uint32_t fell_back = 0;
  for (uint32_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    open();
    verbs_.fail_after(random() % 400, fates[seed % 5]);
    stream(400'000, [] {});
    fell_back += network_->client->resumptions() != 0 ? 1 : 0;
    EXPECT_EQ(network_->client->carrier_failure().empty(), network_->client->resumptions() == 0);
  }
  EXPECT_GE(fell_back, 20u);
}

TEST_F(CarrierTest, ALostTellingOrAllReportsLostAreAFailure) {
  open();
  say(client(), worker(), "before");
  verbs_.lose_tellings(1);
  say(client(), worker(), "nobody hears this");
  EXPECT_EQ(network_->client->resumptions(), 1u);
  open();
  stream(300'000, [&] {
    usleep(5'000);
    verbs_.lose_reports(UINT32_MAX);
  });
  EXPECT_EQ(network_->client->resumptions(), 1u);
}

TEST_F(CarrierTest, ADeadCardIsNoEnd) {
  open();
  stream(300'000, [&] {
    usleep(5'000);
    verbs_.kill_devices();
    verbs_.set_link(false);
  });
  EXPECT_EQ(network_->client->resumptions(), 1u);
}

TEST_F(CarrierTest, ACutOfTheConnectionsIsOneOfTheCarriersToo) {
  open();
  stream(1'000'000, [&] {
    usleep(5'000);
    network_->cut(~0u);
  });
  EXPECT_GE(network_->client->resumptions(), 1u);
  EXPECT_STREQ(client().kind(), "tcp");
}

// The receiver has all of it when the word of that is lost, so the sender must not send it again.
TEST_F(CarrierTest, MemoryThatWasReadInPlaceIsNotSentAgain) {
  for (uint32_t works = 0; works < 24; ++works) {
    SCOPED_TRACE(works);
    open();
    std::vector<uint32_t> data(250'000), got(data.size() + 1);
    for (size_t i = 0; i < data.size(); ++i) data[i] = word_at(i, works);
    const size_t bytes = data.size() * sizeof data[0];
    ASSERT_TRUE(client_memory_->add(data.data(), bytes).ok());
    ASSERT_TRUE(worker_memory_->add(got.data(), bytes).ok());
    verbs_.fail_after(works, Fate::kUnanswered);
    std::thread sender([&] {
      iovec part{data.data(), bytes};
      EXPECT_TRUE(client(1).send(&part, 1).ok());
      std::fill(data.begin(), data.end(), 0u);  // it may be used again
      uint32_t last = 42;
      part = {&last, sizeof last};
      EXPECT_TRUE(client(1).send(&part, 1).ok());
    });
    const auto all = worker(1).receive(got.data(), bytes + 4, bytes + 4, {0, 20'000});
    EXPECT_TRUE(all.ok()) << all.status().message();
    sender.join();
    for (size_t i = 0; i < data.size(); ++i) ASSERT_EQ(got[i], word_at(i, works)) << i;
    EXPECT_EQ(got.back(), 42u);
    client_memory_->remove(data.data());
    worker_memory_->remove(got.data());
  }
}

TEST_F(CarrierTest, AnEndIsNoFailure) {
  open();
  iovec part{const_cast<char*>("bye"), 3};
  ASSERT_TRUE(worker().send(&part, 1).ok());
  channels_[1] = {};
  network_->lose_worker();
  char got[8] = {};
  ASSERT_TRUE(client().receive(got, 3, 3, {0, 5000}).ok()) << "its last words";
  EXPECT_STREQ(got, "bye");
  EXPECT_EQ(client().receive(got, 1, 8, {0, 5000}).status().code(), Code::kClosed);
  EXPECT_EQ(client(1).receive(got, 1, 8, {0, 5000}).status().code(), Code::kClosed);
  EXPECT_EQ(network_->attempts, 0u);
}

TEST_F(CarrierTest, ShuttingDownEndsBothSides) {
  open();
  std::thread receiver([&] {
    char got[8];
    EXPECT_EQ(worker().receive(got, 1, 8, {0, -1}).status().code(), Code::kClosed);
    EXPECT_EQ(client().receive(got, 1, 8, {0, -1}).status().code(), Code::kClosed);
  });
  usleep(10'000);
  client(1).shutdown();
  receiver.join();
  EXPECT_EQ(network_->attempts, 0u);
}

TEST_F(CarrierTest, WhenNoConnectionComesTheSessionEndsAndSaysWhy) {
  open(kLines, 300);
  network_->weather = [](uint32_t) { return Status(Code::kUnavailable, "no route to host"); };
  verbs_.set_link(false);
  iovec part{const_cast<char*>("lost"), 4};
  Status sent;
  for (int i = 0; i < 100 && sent.ok(); ++i) sent = client().send(&part, 1);
  EXPECT_EQ(sent.code(), Code::kClosed);
  EXPECT_NE(sent.message().find("no route to host"), std::string::npos) << sent.message();
  EXPECT_NE(network_->client->carrier_failure().find("the port went down"), std::string::npos)
      << network_->client->carrier_failure();
}

TEST_F(CarrierTest, TimeoutsHold) {
  open();
  char got[8];
  EXPECT_EQ(client().receive(got, 1, 8, {0, 30}).status().code(), Code::kTimeout);
  EXPECT_EQ(*client().receive(got, 0, 8, {0, 0}), 0u);
  std::vector<char> block(8u << 20);
  iovec part{block.data(), block.size()};
  size_t sent = 0;
  for (size_t moved = 1; moved != 0; sent += moved) moved = *client(1).send_some(&part, 1, 20);
  EXPECT_GT(sent, 0u);
  EXPECT_LT(sent, 2u << 20);
}

}  // namespace
}  // namespace tendril::transport::rdma

// SPDX-License-Identifier: Apache-2.0
// Lasting sessions whose lines RDMA carries, over the double of the verbs. Whatever a card does
// wrong, the session goes on over its connections: no byte is lost, repeated or moved. A watchdog
// ends the process when a test hangs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <thread>

#include "transport/testing/lasting_network.h"
#include "transport/testing/rdma_channels.h"

namespace tendril::transport::rdma {
namespace {

using base::Code;
using base::Status;

constexpr uint32_t kLines = 3;

void say(Channel& from, Channel& to, const std::string& text) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  const Status sent = from.send(&part, 1);
  ASSERT_TRUE(sent.ok()) << sent.message();
  std::string got(text.size(), 0);
  const auto received = to.receive(got.data(), got.size(), got.size(), {20, 10'000});
  ASSERT_TRUE(received.ok()) << received.status().message();
  EXPECT_EQ(got, text);
}

class CarrierTest : public ::testing::Test {
 protected:
  void SetUp() override { alarm(240); }
  void TearDown() override {
    channels_ = {};
    network_.reset();
    alarm(0);
  }
  // `carried`: how many of the lines RDMA carries. `later`: only once `move` was called.
  void open(uint32_t carried = kLines, uint32_t patience_ms = 20'000, bool later = false) {
    channels_ = {};
    later_ = {};
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
    worker_counts_ = there->counts();
    base::Fd theirs, ours = tcp_sockets(&theirs);
    Network::Carriers clients = here->channels(std::move(ours));
    Network::Carriers workers = there->channels(std::move(theirs));
    if (later) std::swap(later_[0], clients), std::swap(later_[1], workers);
    network_ =
        std::make_unique<Network>(kLines, patience_ms, std::move(clients), std::move(workers));
    for (uint32_t line = 0; line < kLines; ++line) {
      channels_[0][line] = lasting_channel(network_->client, line);
      channels_[1][line] = lasting_channel(network_->worker, line);
    }
  }
  // The lines go over to RDMA, as after a trial: the client first takes, and moves last.
  void move() {
    if (!network_->client->take_carriers(std::move(later_[0])).ok()) return;
    if (!network_->worker->take_carriers(std::move(later_[1])).ok()) return;
    network_->worker->use_carriers();
    network_->client->use_carriers();
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

  std::deque<std::vector<uint8_t>> devices_;  // what verbs_ reaches
  VerbsDouble verbs_;
  std::unique_ptr<Network> network_;
  std::array<std::array<std::unique_ptr<Channel>, kLines>, 2> channels_;
  std::array<Network::Carriers, 2> later_;
  std::shared_ptr<ProgramMemory> client_memory_, worker_memory_;
  std::shared_ptr<CopyCounts> client_counts_, worker_counts_;
};

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

// What a trial has moved over the carriers before is none of the session's.
TEST_F(CarrierTest, LinesGoOverToItWhileTheyRun) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    open(kLines, 20'000, true);
    for (uint32_t line = 0; line < kLines; ++line) {
      say(*later_[0][line], *later_[1][line], "measured");
      say(*later_[1][line], *later_[0][line], std::string(line == 0 ? 9 : 100'000, 'm'));
    }
    EXPECT_STREQ(client().kind(), "tcp");
    const uint64_t before = client_counts_->messages.load();
    stream(300'000, [&] {
      usleep(seed * 700);
      move();
    });
    for (uint32_t line = 0; line < kLines; ++line) {
      say(client(line), worker(line), "over it");
      say(worker(line), client(line), "and back");
      EXPECT_STREQ(client(line).kind(), "rdma");
      EXPECT_STREQ(worker(line).kind(), "rdma");
    }
    EXPECT_GT(client_counts_->messages.load(), before);
    EXPECT_EQ(network_->client->resumptions(), 0u);
  }
}

TEST_F(CarrierTest, AReceiverThatSleepsHearsOfIt) {
  open(kLines, 20'000, true);
  std::thread receiver([&] {
    char got[8] = {};
    EXPECT_TRUE(worker().receive(got, 3, 8, {0, 20'000}).ok());
    EXPECT_STREQ(got, "now");
  });
  usleep(20'000);
  move();
  iovec part{const_cast<char*>("now"), 3};
  EXPECT_TRUE(client().send(&part, 1).ok());
  receiver.join();
  EXPECT_STREQ(client().kind(), "rdma");
  EXPECT_STREQ(worker().kind(), "tcp") << "it has sent nothing";
}

// Whatever fails while lines go over, at whatever moment, the streams stay whole.
TEST_F(CarrierTest, ACutWhileLinesGoOverLosesNothing) {
  const std::function<void()> faults[] = {
      [&] { network_->cut(~0u); },
      [&] { verbs_.set_link(false); },
      [&] { verbs_.fail_after(3, Fate::kUnanswered); },
      [&] { verbs_.lose_tellings(1); },
  };
  uint32_t fell_back = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    verbs_.set_link(true);
    verbs_.lose_tellings(0);  // of the last round, if nothing met it
    verbs_.fail_after(UINT32_MAX, Fate::kOther);
    open(1 + random() % kLines, 20'000, true);
    for (auto& line : later_[0]) say(*line, *later_[1][size_t(&line - later_[0].data())], "trial");
    std::thread mover;
    stream(150'000, [&] {
      mover = std::thread([&, after_us = random() % 4000] {
        usleep(after_us);
        move();
      });
      usleep(random() % 6000);
      faults[seed % 4]();
    });
    mover.join();
    say(client(), worker(), "still there");
    say(worker(), client(), "as well");
    fell_back += network_->client->resumptions() != 0 ? 1 : 0;
  }
  EXPECT_GT(fell_back, 8u);
}

TEST_F(CarrierTest, ASessionThatWasCutTakesNone) {
  open(kLines, 20'000, true);
  network_->cut(~0u);
  say(client(), worker(), "resumed");
  EXPECT_EQ(network_->client->take_carriers(std::move(later_[0])).code(), Code::kUnavailable);
}

// The peer goes over to a carrier that this end has left already.
TEST_F(CarrierTest, AnEndThatTookNoneFallsBack) {
  open(kLines, 20'000, true);
  ASSERT_TRUE(network_->worker->take_carriers(std::move(later_[1])).ok());
  network_->worker->use_carriers();
  say(worker(), client(), "lost, and sent again");
  EXPECT_STREQ(worker().kind(), "tcp");
  EXPECT_EQ(network_->client->resumptions(), 1u);
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
}

// The sender waits for its memory to be read, and the receiver for more.
TEST_F(CarrierTest, ALostCreditIsMadeGood) {
  open();
  std::vector<uint8_t> data(1'000'000, 7), got(data.size() + 1);
  ASSERT_TRUE(client_memory_->add(data.data(), data.size()).ok());
  const uint64_t before = client_counts_->messages;
  std::thread sender([&] {
    iovec part{data.data(), data.size()};
    EXPECT_TRUE(client(1).send(&part, 1).ok());
    uint8_t last = 42;
    part = {&last, 1};
    EXPECT_TRUE(client(1).send(&part, 1).ok());
  });
  while (client_counts_->messages == before) usleep(100);
  verbs_.lose_tellings(1);
  EXPECT_TRUE(worker(1).receive(got.data(), got.size(), got.size(), {0, 20'000}).ok());
  sender.join();
  EXPECT_EQ(got.back(), 42);
  EXPECT_EQ(network_->client->resumptions(), 0u);
  client_memory_->remove(data.data());
}

TEST_F(CarrierTest, WhateverHappensInMidStreamItGoesOnOverTcp) {
  const struct {
    const char* name;
    std::function<void()> happens;
  } faults[] = {
      {"all reports are lost", [&] { verbs_.lose_reports(UINT32_MAX); }},
      {"the connections are cut", [&] { network_->cut(~0u); }},
      {"the cards die", [&] { verbs_.kill_devices(), verbs_.set_link(false); }},
  };
  for (const auto& fault : faults) {
    SCOPED_TRACE(fault.name);
    open();
    stream(1'000'000, [&] {
      usleep(5'000);
      fault.happens();
    });
    EXPECT_EQ(network_->client->resumptions(), 1u);
    EXPECT_STREQ(client().kind(), "tcp");
    verbs_.lose_reports(0);
    verbs_.set_link(true);
  }
}

// An administrator may take the card away then, although the program runs on and keeps its memory.
TEST_F(CarrierTest, ASessionThatFellBackHasNoCardOpen) {
  open();
  client_counts_.reset();  // they hold all that the channels share
  worker_counts_.reset();
  say(client(), worker(), "before");
  std::vector<uint8_t> pinned(100'000);
  ASSERT_TRUE(client_memory_->add(pinned.data(), pinned.size()).ok());
  EXPECT_EQ(verbs_.devices(), 2u);
  network_->cut(~0u);
  say(client(), worker(), "resumed");
  say(worker(), client(), "resumed");
  for (int i = 0; i < 5'000 && verbs_.devices() != 0; ++i) usleep(1'000);
  EXPECT_EQ(verbs_.devices(), 0u);
  EXPECT_EQ(verbs_.locked_bytes(), 0u);
  EXPECT_FALSE(client_memory_->add(pinned.data(), pinned.size()).ok());
  client_memory_->remove(pinned.data());
}

// Nobody sends anything, and nothing fails.
TEST_F(CarrierTest, ACardThatIsTakenAwayIsLeft) {
  open();
  client_counts_.reset();
  worker_counts_.reset();
  say(client(), worker(), "before");
  verbs_.take_devices_away();
  for (int i = 0; i < 5'000 && verbs_.devices() != 0; ++i) usleep(1'000);
  EXPECT_EQ(verbs_.devices(), 0u);
  EXPECT_EQ(network_->client->resumptions(), 1u);
  EXPECT_NE(network_->client->carrier_failure().find("was taken away"), std::string::npos)
      << network_->client->carrier_failure();
  say(client(), worker(), "after");
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

// Sends a GPU's memory as session/lane does: what the card does not move is copied out first.
void send_device(Channel* from, uint64_t address, const uint8_t* copy, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    auto moved = from->send_from_device(address + done, bytes - done, 2);
    if (moved.status().code() == Code::kUnsupported) {
      iovec part{const_cast<uint8_t*>(copy) + done, bytes - done};
      moved = from->send_some(&part, 1, 20'000);
    }
    ASSERT_TRUE(moved.ok()) << moved.status().message();
    done += *moved;
  }
}
void receive_device(Channel* to, uint64_t address, uint8_t* copy, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    auto moved = to->receive_to_device(address + done, bytes - done);
    if (moved.status().code() == Code::kUnsupported)
      moved = to->receive(copy + done, 1, std::min<size_t>(bytes - done, 9'999), {0, 20'000});
    ASSERT_TRUE(moved.ok()) << moved.status().message();
    done += *moved;
  }
}

TEST_F(CarrierTest, AGpusMemoryIsMovedByCardsAlone) {
  open();
  std::vector<uint8_t> device(3'000'001), host(device.size()), nothing(device.size());
  for (size_t i = 0; i < host.size(); ++i) host[i] = uint8_t(i * 7 + (i >> 12));
  const std::vector<uint8_t> before = host;
  const uint64_t address = verbs_.add_device_memory(&device);
  ASSERT_TRUE(client_memory_->add(host.data(), host.size()).ok());
  EXPECT_EQ(worker(1).send_from_device(address, 9, 2).status().code(), Code::kUnsupported)
      << "not registered yet";
  ASSERT_TRUE(worker_memory_->add_device({address, device.size(), -1, 0}).ok());
  const uint64_t copied = worker_counts_->copied_bytes;
  std::thread sender([&] {
    iovec part{host.data(), host.size()};
    EXPECT_TRUE(client(1).send(&part, 1).ok());
  });
  receive_device(&worker(1), address, nothing.data(), device.size());
  sender.join();
  EXPECT_EQ(device, before);
  std::fill(host.begin(), host.end(), uint8_t(0));
  std::thread receiver([&] {
    EXPECT_TRUE(client(1).receive(host.data(), host.size(), host.size(), {0, 20'000}).ok());
  });
  send_device(&worker(1), address, nothing.data(), device.size());
  receiver.join();
  EXPECT_EQ(host, before);
  EXPECT_EQ(worker_counts_->copied_bytes, copied);
  EXPECT_EQ(worker_counts_->direct_bytes, 2 * device.size());
  worker_memory_->remove_device(address);
  EXPECT_EQ(worker(1).send_from_device(address, 9, 2).status().code(), Code::kUnsupported);
  client_memory_->remove(host.data());
}

// What a processor must see comes between: a word in the ring, then memory of the GPU again.
TEST_F(CarrierTest, ShortDataAreNotForADevice) {
  open();
  std::vector<uint8_t> device(100'000), got(8);
  const uint64_t address = verbs_.add_device_memory(&device);
  ASSERT_TRUE(worker_memory_->add_device({address, device.size(), -1, 0}).ok());
  iovec part{const_cast<char*>("a header"), 8};
  ASSERT_TRUE(client(1).send(&part, 1).ok());
  EXPECT_EQ(worker(1).receive_to_device(address, 8).status().code(), Code::kUnsupported);
  ASSERT_TRUE(worker(1).receive(got.data(), 8, 8, {0, 20'000}).ok());
  EXPECT_EQ(memcmp(got.data(), "a header", 8), 0);
  EXPECT_EQ(worker(0).send_from_device(address, 8, 2).status().code(), Code::kUnsupported)
      << "the lane of calls has no way for it";
  worker_memory_->remove_device(address);
}

// A fault at each work of a copy, both ways: the rest goes over TCP, each byte once. The double
// has the memory where a processor's access would end the test.
TEST_F(CarrierTest, ACopyOfAGpusMemoryThatFailsGoesOnOverTcp) {
  const Fate fates[] = {Fate::kUnanswered, Fate::kRemoteAccess, Fate::kLocalError, Fate::kOther};
  uint32_t fell_back = 0, skipped = 0;
  for (uint32_t works = 0; works < 28; ++works) {
    SCOPED_TRACE(works);
    open();
    std::vector<uint32_t> device(250'000), host(device.size() + 1), staged(device.size());
    const size_t bytes = device.size() * sizeof device[0];
    std::vector<uint8_t>* const behind = &devices_.emplace_back(bytes);
    const uint64_t address = verbs_.add_device_memory(behind);
    const bool to_host = works % 2 != 0;
    for (size_t i = 0; i < device.size(); ++i) (to_host ? device : host)[i] = word_at(i, works);
    if (to_host) memcpy(behind->data(), device.data(), bytes);
    ASSERT_TRUE(client_memory_->add(host.data(), bytes).ok());
    ASSERT_TRUE(worker_memory_->add_device({address, bytes, -1, 0}).ok());
    verbs_.fail_after(works / 2, fates[works % 4]);
    uint32_t last = 42, got = 0;
    std::thread client_end([&] {
      iovec parts[2] = {{host.data(), bytes}, {&last, sizeof last}};
      if (!to_host)
        EXPECT_TRUE(client(1).send(parts, 2).ok());
      else
        EXPECT_TRUE(client(1).receive(host.data(), bytes + 4, bytes + 4, {0, 20'000}).ok());
    });
    if (to_host) {
      send_device(&worker(1), address, behind->data(), bytes);
      std::fill(behind->begin(), behind->end(), uint8_t(0));  // it may be used again
      iovec part{&last, sizeof last};
      EXPECT_TRUE(worker(1).send(&part, 1).ok());
    } else {
      receive_device(&worker(1), address, reinterpret_cast<uint8_t*>(staged.data()), bytes);
      EXPECT_TRUE(worker(1).receive(&got, 4, 4, {0, 20'000}).ok());
    }
    client_end.join();
    if (to_host) {
      for (size_t i = 0; i < device.size(); ++i) ASSERT_EQ(host[i], word_at(i, works)) << i;
      EXPECT_EQ(host.back(), 42u);
    } else {
      // What came over TCP lies in the copy, and the rest in the GPU's memory.
      memcpy(device.data(), behind->data(), bytes);
      for (size_t i = 0; i < device.size(); ++i) {
        ASSERT_TRUE(device[i] == word_at(i, works) || staged[i] == word_at(i, works)) << i;
        skipped += staged[i] != word_at(i, works) ? 1 : 0;
      }
      EXPECT_EQ(got, 42u);
    }
    fell_back += network_->client->resumptions() != 0 ? 1 : 0;
    client_memory_->remove(host.data());
    worker_memory_->remove_device(address);
  }
  EXPECT_GE(fell_back, 14u);
  EXPECT_GT(skipped, 0u) << "some were there before the fault";
}

TEST_F(CarrierTest, ACardIsTriedByItself) {
  open();
  std::vector<uint8_t> device(1'000'000), host(device.size());
  for (size_t i = 0; i < host.size(); ++i) host[i] = uint8_t(i * 11);
  const uint64_t address = verbs_.add_device_memory(&device);
  const auto at_host = reinterpret_cast<uint64_t>(host.data());
  const auto ports = worker_memory_->card_ports();
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ(ports[0]->name(), "double0:1");
  EXPECT_EQ(ports[0]->move(at_host, address, host.size()).status().code(), Code::kInvalid);
  ASSERT_TRUE(worker_memory_->add(host.data(), host.size()).ok());
  ASSERT_TRUE(ports[0]->add_device({address, device.size(), -1, 0}).ok());
  EXPECT_GT(*ports[0]->move(at_host, address, host.size()), 0u);
  EXPECT_EQ(device, host);
  verbs_.fail_after(2, Fate::kLocalError);
  EXPECT_FALSE(ports[0]->move(address, at_host, host.size()).ok());
  verbs_.lose_reports(1);
  EXPECT_EQ(ports[0]->move(address, at_host, 100).status().code(), Code::kTimeout);
  ports[0]->remove_device(address);
  worker_memory_->remove(host.data());
  EXPECT_EQ(network_->client->resumptions(), 0u) << "the session has nothing of that";
  verbs_.refuse_devices(true);
  EXPECT_EQ(ports[0]->add_device({address, 9, -1, 0}).code(), Code::kUnsupported);
}

TEST_F(CarrierTest, AnEndIsNoFailure) {
  open();
  iovec part{const_cast<char*>("bye"), 3};
  ASSERT_TRUE(worker().send(&part, 1).ok());
  channels_[1] = {};
  worker_counts_.reset();  // they hold its session
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

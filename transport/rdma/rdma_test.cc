// SPDX-License-Identifier: Apache-2.0
// RDMA over the double of the verbs: what the common contract (transport_test.cc) does not ask.
// Copies are counted, and so are messages; each fault of a card ends the channel with its own
// words; a peer that lies is caught. A watchdog ends the process when a test hangs.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "transport/rdma/path_settings.h"
#include "transport/testing/rdma_channels.h"

namespace tendril::transport::rdma {
namespace {

using base::Code;
using base::Status;

std::vector<uint8_t> numbered(size_t bytes, uint32_t seed) {
  std::vector<uint8_t> data(bytes);
  std::mt19937 random(seed);
  for (uint8_t& byte : data) byte = uint8_t(random());
  return data;
}

Status send_two(Channel& channel, const void* head, size_t head_bytes, const void* data,
                size_t bytes) {
  const iovec parts[2] = {{const_cast<void*>(head), head_bytes}, {const_cast<void*>(data), bytes}};
  return channel.send(parts, 2);
}

bool says(const Status& status, const char* text) {
  return status.message().find(text) != std::string::npos;
}

class RdmaTest : public ::testing::Test {
 protected:
  void SetUp() override { alarm(240); }
  void TearDown() override { alarm(0); }
  void open(uint32_t bulk = 1) {
    Sizes sizes;
    sizes.channels = 1 + bulk;
    sizes.report_ms = 200;
    const Status made = rdma_pair(&verbs_, sizes, &client_, &worker_, &parts_);
    ASSERT_TRUE(made.ok()) << made.message();
  }
  VerbsDouble verbs_;
  ChannelSet client_, worker_;
  RdmaParts parts_;
};

// A chunk of a bulk channel: a header and its data.
void move_chunk(Channel& from, Channel& to, const std::vector<uint8_t>& data,
                std::vector<uint8_t>* into) {
  std::thread sender(
      [&] { EXPECT_TRUE(send_two(from, "0123", 4, data.data(), data.size()).ok()); });
  char head[4];
  EXPECT_TRUE(to.receive(head, 4, 4, {0, 5000}).ok());
  into->assign(data.size(), 0);
  auto got = to.receive(into->data(), data.size(), data.size(), {0, 5000});
  EXPECT_TRUE(got.ok()) << got.status().message();
  sender.join();
  EXPECT_TRUE(*into == data);
}

TEST_F(RdmaTest, PinnedMemoryIsNotCopiedByProcessors) {
  open();
  constexpr size_t kBytes = 3'000'001;
  std::vector<uint8_t> data = numbered(kBytes, 1), slot(kBytes);
  ASSERT_TRUE(parts_.client_memory->add(data.data(), kBytes).ok());
  ASSERT_TRUE(parts_.worker_memory->add(slot.data(), kBytes).ok());
  for (bool to_worker : {true, false}) {
    auto& from = to_worker ? *client_.bulk[0] : *worker_.bulk[0];
    auto& to = to_worker ? *worker_.bulk[0] : *client_.bulk[0];
    auto& source = to_worker ? data : slot;
    auto& target = to_worker ? slot : data;
    for (auto& counts : {parts_.client_counts, parts_.worker_counts})
      counts->copied_bytes = 0, counts->direct_bytes = 0, counts->messages = 0;
    const std::vector<uint8_t> before = source;
    std::fill(target.begin(), target.end(), uint8_t(0));
    std::thread sender([&] {
      EXPECT_TRUE(send_two(from, "head", 4, source.data(), kBytes).ok());
      // What is sent may be used again.
      std::fill(source.begin(), source.end(), uint8_t(0xee));
    });
    char head[4];
    ASSERT_TRUE(to.receive(head, 4, 4, {0, 5000}).ok());
    ASSERT_TRUE(to.receive(target.data(), kBytes, kBytes, {0, 5000}).ok());
    sender.join();
    EXPECT_TRUE(target == before);
    auto& sent = *(to_worker ? parts_.client_counts : parts_.worker_counts);
    auto& received = *(to_worker ? parts_.worker_counts : parts_.client_counts);
    EXPECT_EQ(sent.copied_bytes, 4u);
    EXPECT_EQ(received.copied_bytes, 4u);
    EXPECT_EQ(sent.direct_bytes, kBytes);
    EXPECT_EQ(received.direct_bytes, kBytes);
    EXPECT_EQ(sent.messages, 1u) << "head and data are told together";
  }
  parts_.client_memory->remove(data.data());
  parts_.worker_memory->remove(slot.data());
}

TEST_F(RdmaTest, PageableMemoryIsCopiedOnceAtEachEnd) {
  open();
  const std::vector<uint8_t> data = numbered(5'000'003, 2);
  std::vector<uint8_t> got;
  move_chunk(*client_.bulk[0], *worker_.bulk[0], data, &got);
  EXPECT_EQ(parts_.client_counts->copied_bytes, data.size() + 4);
  EXPECT_EQ(parts_.worker_counts->copied_bytes, data.size() + 4);
  std::vector<uint8_t> slot(data.size());  // only the worker's memory is known
  ASSERT_TRUE(parts_.worker_memory->add(slot.data(), slot.size()).ok());
  std::thread sender(
      [&] { EXPECT_TRUE(send_two(*client_.bulk[0], "", 0, data.data(), data.size()).ok()); });
  ASSERT_TRUE(worker_.bulk[0]->receive(slot.data(), slot.size(), slot.size(), {0, 5000}).ok());
  sender.join();
  EXPECT_TRUE(slot == data);
  EXPECT_EQ(parts_.worker_counts->copied_bytes, data.size() + 4) << "nothing more";
}

TEST_F(RdmaTest, ARoundTripIsOneMessageEachWay) {
  open(0);
  constexpr uint32_t kRounds = 320;
  std::thread worker([&] {
    char call[64];
    for (uint32_t i = 0; i < kRounds; ++i) {
      if (!worker_.command->receive(call, 64, 64, {50, 5000}).ok()) return;
      if (!send_two(*worker_.command, call, 16, call, 16).ok()) return;
    }
  });
  char call[64] = {}, reply[32];
  for (uint32_t i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(send_two(*client_.command, call, 24, call, 40).ok());
    ASSERT_TRUE(client_.command->receive(reply, 32, 32, {50, 5000}).ok());
  }
  worker.join();
  EXPECT_EQ(parts_.client_counts->messages, kRounds);
  EXPECT_EQ(parts_.worker_counts->messages, kRounds);
  EXPECT_LE(parts_.client_counts->credits, kRounds / 16);
  EXPECT_LE(parts_.worker_counts->credits, kRounds / 16);
}

// Random cuts into calls and pieces, both ways at once, with memory that is known here and there.
TEST_F(RdmaTest, BulkStreamsArriveInOrder) {
  open(2);
  constexpr size_t kBytes = 8u << 20;
  std::vector<uint8_t> data[2] = {numbered(kBytes, 3), numbered(kBytes, 4)};
  ASSERT_TRUE(parts_.client_memory->add(data[0].data() + kBytes / 4, kBytes / 2).ok());
  std::vector<uint8_t> got[2] = {std::vector<uint8_t>(kBytes), std::vector<uint8_t>(kBytes)};
  ASSERT_TRUE(parts_.worker_memory->add(got[0].data(), kBytes / 3).ok());
  const auto send_all_of = [](Channel* channel, const std::vector<uint8_t>* source, uint32_t seed) {
    std::mt19937 random(seed);
    for (size_t at = 0; at < source->size();) {
      const size_t first = std::min<size_t>(random() % 64, source->size() - at);
      const size_t second = std::min<size_t>(random() % 300'000, source->size() - at - first);
      ASSERT_TRUE(
          send_two(*channel, source->data() + at, first, source->data() + at + first, second).ok());
      at += first + second;
    }
  };
  const auto receive_all = [](Channel* channel, std::vector<uint8_t>* into, uint32_t seed) {
    std::mt19937 random(seed);
    for (size_t at = 0; at < into->size();) {
      const size_t most = std::min<size_t>(1 + random() % 200'000, into->size() - at);
      auto n = channel->receive(into->data() + at, random() % 2 == 0 ? 1 : most, most, {0, 10'000});
      ASSERT_TRUE(n.ok()) << n.status().message();
      at += *n;
    }
  };
  std::thread threads[] = {
      std::thread(send_all_of, client_.bulk[0].get(), &data[0], 5),
      std::thread(receive_all, worker_.bulk[0].get(), &got[0], 6),
      std::thread(send_all_of, worker_.bulk[0].get(), &data[1], 7),
      std::thread(receive_all, client_.bulk[0].get(), &got[1], 8),
  };
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(got[0] == data[0]);
  EXPECT_TRUE(got[1] == data[1]);
  EXPECT_GT(parts_.client_counts->direct_bytes, 0u);
  parts_.client_memory->remove(data[0].data() + kBytes / 4);
  parts_.worker_memory->remove(got[0].data());
}

// ---- memory that is named to the peer ----

TEST_F(RdmaTest, WhatNobodyReadsIsOfferedAgain) {
  open();
  std::vector<uint8_t> data = numbered(100'000, 9), got(data.size());
  ASSERT_TRUE(parts_.client_memory->add(data.data(), data.size()).ok());
  Channel& channel = *client_.bulk[0];
  const iovec part{data.data(), data.size()};
  for (int i = 0; i < 3; ++i) {
    auto sent = channel.send_some(&part, 1, 5);
    ASSERT_TRUE(sent.ok());
    EXPECT_EQ(*sent, 0u);
  }
  EXPECT_EQ(parts_.client_counts->messages, 1u) << "it is named once";
  std::thread reader([&] {
    EXPECT_TRUE(worker_.bulk[0]->receive(got.data(), got.size(), got.size(), {0, 5000}).ok());
  });
  auto sent = channel.send_some(&part, 1, 5000);
  reader.join();
  ASSERT_TRUE(sent.ok());
  EXPECT_EQ(*sent, data.size());
  EXPECT_TRUE(got == data);
  parts_.client_memory->remove(data.data());
}

TEST_F(RdmaTest, MemoryIsFreeAgainWhenTheChannelEnds) {
  open();
  std::vector<uint8_t> data = numbered(100'000, 10), got(data.size());
  ASSERT_TRUE(parts_.client_memory->add(data.data(), data.size()).ok());
  const iovec part{data.data(), data.size()};
  std::thread closer([&] {
    usleep(30'000);
    client_.bulk[0]->shutdown();
  });
  EXPECT_EQ(client_.bulk[0]->send(&part, 1).code(), Code::kClosed);
  closer.join();
  parts_.client_memory->remove(data.data());  // waits for ever if somebody still holds it
  // The record is in the worker's ring. Its card must not get what lies there now.
  auto read = worker_.bulk[0]->receive(got.data(), got.size(), got.size(), {0, 5000});
  EXPECT_FALSE(read.ok());
  EXPECT_EQ(got, std::vector<uint8_t>(data.size()));
}

TEST_F(RdmaTest, OtherBytesThanOfferedEndTheChannel) {
  open();
  std::vector<uint8_t> data = numbered(100'000, 11), other = data;
  ASSERT_TRUE(parts_.client_memory->add(data.data(), data.size()).ok());
  iovec part{data.data(), data.size()};
  ASSERT_EQ(*client_.bulk[0]->send_some(&part, 1, 1), 0u);
  part.iov_base = other.data();
  EXPECT_FALSE(client_.bulk[0]->send_some(&part, 1, 1).ok());
  parts_.client_memory->remove(data.data());
}

TEST_F(RdmaTest, WithoutSafeForksProgramsMemoryGoesThroughBlocks) {
  PortFacts facts{"double0:1", true, 100'000, false};
  verbs_.set_facts(facts);
  open();
  std::vector<uint8_t> data = numbered(100'000, 12), got;
  const Status added = parts_.client_memory->add(data.data(), data.size());
  EXPECT_EQ(added.code(), Code::kUnsupported);
  EXPECT_TRUE(says(added, "forks")) << added.message();
  move_chunk(*client_.bulk[0], *worker_.bulk[0], data, &got);
}

// ---- cards that fail ----

TEST_F(RdmaTest, EachFaultHasItsOwnWords) {
  const struct {
    Fate fate;
    const char* text;
  } cases[] = {{Fate::kUnanswered, "does not answer"},
               {Fate::kNotReady, "has no room"},
               {Fate::kRemoteAccess, "refuses access to the memory that it named"},
               {Fate::kLocalError, "this machine's card refuses"},
               {Fate::kOther, "reports an error"}};
  for (const auto& each : cases) {
    client_ = ChannelSet();
    worker_ = ChannelSet();
    open();
    verbs_.fail_after(0, each.fate);
    const Status first = send_two(*client_.command, "lost", 4, "", 0);
    const Status then = first.ok() ? send_two(*client_.command, "too", 3, "", 0) : first;
    EXPECT_EQ(then.code(), Code::kClosed);
    EXPECT_TRUE(says(then, each.text)) << then.message();
    EXPECT_TRUE(says(then, "double0:1")) << then.message();
    // The other end learns of it over the session's connection.
    client_.command->shutdown();
    char byte;
    EXPECT_EQ(worker_.command->receive(&byte, 1, 1, {0, 5000}).status().code(), Code::kClosed);
  }
}

TEST_F(RdmaTest, APulledCableIsNamed) {
  open();
  verbs_.set_link(false);
  (void)send_two(*client_.command, "lost", 4, "", 0);
  const Status why = send_two(*client_.command, "too", 3, "", 0);
  EXPECT_TRUE(says(why, "the port went down")) << why.message();
}

TEST_F(RdmaTest, ADeadCardEndsWhoeverWaits) {
  open();
  std::thread killer([&] {
    usleep(20'000);
    verbs_.kill_devices();
  });
  char byte;
  const auto got = worker_.command->receive(&byte, 1, 1, {0, 5000});
  killer.join();
  EXPECT_EQ(got.status().code(), Code::kClosed) << got.status().message();
}

TEST_F(RdmaTest, LostReportsAreMadeGoodByLaterOnes) {
  open();
  char got[4];
  for (int i = 0; i < 300; ++i) {
    if (i % 3 == 0) verbs_.lose_reports(2);
    ASSERT_TRUE(send_two(*client_.command, "abcd", 4, "", 0).ok()) << i;
    ASSERT_TRUE(worker_.command->receive(got, 4, 4, {0, 5000}).ok()) << i;
  }
}

TEST_F(RdmaTest, ACardThatReportsNothingIsGivenUp) {
  open();
  verbs_.lose_reports(UINT32_MAX);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    char got[64];
    while (!stop &&
           worker_.command->receive(got, 1, 64, {0, 50}).status().code() != Code::kClosed) {
    }
  });
  Status why;
  for (int i = 0; i < 1000 && why.ok(); ++i) why = send_two(*client_.command, "abcd", 4, "", 0);
  EXPECT_TRUE(says(why, "reports nothing")) << why.message();
  client_.command->shutdown();
  stop = true;
  reader.join();
}

TEST_F(RdmaTest, ALostTellingIsMadeGoodOrNoticed) {
  open();
  verbs_.lose_tellings(2);
  for (const char* word : {"one ", "two ", "last"})
    ASSERT_TRUE(send_two(*client_.command, word, 4, "", 0).ok());
  char got[13] = {};
  ASSERT_TRUE(worker_.command->receive(got, 12, 12, {0, 5000}).ok());
  EXPECT_STREQ(got, "one two last");
  verbs_.lose_tellings(1);
  ASSERT_TRUE(send_two(*client_.command, "nobody hears this", 17, "", 0).ok());
  const Status why = worker_.command->receive(got, 1, 12, {0, 20'000}).status();
  EXPECT_EQ(why.code(), Code::kClosed);
  EXPECT_TRUE(says(why, "lost a completion")) << why.message();
}

TEST_F(RdmaTest, WithoutEventsASleeperLooksForItself) {
  open();
  verbs_.lose_events(true);
  std::thread sender([&] {
    usleep(30'000);
    EXPECT_TRUE(send_two(*client_.command, "abcd", 4, "", 0).ok());
  });
  char got[4];
  EXPECT_TRUE(worker_.command->receive(got, 4, 4, {0, 5000}).ok());
  sender.join();
}

// At a random work, a random fault: both ends end, and what came is the beginning of what was sent.
TEST_F(RdmaTest, RandomFaultsEndBothEnds) {
  const Fate fates[] = {Fate::kUnanswered, Fate::kNotReady, Fate::kRemoteAccess, Fate::kLocalError,
                        Fate::kOther};
  for (uint32_t seed = 1; seed <= 24; ++seed) {
    std::mt19937 random(seed);
    client_ = ChannelSet();
    worker_ = ChannelSet();
    open(1);
    std::vector<uint8_t> data = numbered(1'000'000, seed), got(data.size());
    if (seed % 2 == 0) {
      ASSERT_TRUE(parts_.client_memory->add(data.data(), data.size()).ok());
    }
    if (seed % 3 == 0) {
      ASSERT_TRUE(parts_.worker_memory->add(got.data(), got.size()).ok());
    }
    verbs_.fail_after(random() % 40, fates[random() % 5]);
    std::thread sender([&, pieces = random()] {
      std::mt19937 cut(pieces);
      for (size_t at = 0; at < data.size();) {
        const size_t bytes = std::min<size_t>(1 + cut() % 50'000, data.size() - at);
        if (!send_two(*client_.bulk[0], data.data() + at, bytes, "", 0).ok()) break;
        at += bytes;
      }
      client_.bulk[0]->shutdown();
      client_.command->shutdown();
    });
    size_t end = 0;
    while (end < got.size()) {
      auto n = worker_.bulk[0]->receive(got.data() + end, 1, got.size() - end, {0, 10'000});
      if (!n.ok()) {
        EXPECT_EQ(n.status().code(), Code::kClosed) << seed << ": " << n.status().message();
        break;
      }
      end += *n;
    }
    worker_.bulk[0]->shutdown();
    worker_.command->shutdown();
    sender.join();
    EXPECT_TRUE(std::equal(data.begin(), data.begin() + ptrdiff_t(end), got.begin())) << seed;
    parts_.client_memory->remove(data.data());
    parts_.worker_memory->remove(got.data());
  }
}

// ---- before there is a session ----

Status make_end(VerbsDouble* verbs, std::unique_ptr<End>* end) {
  auto device = verbs->open("");
  if (!device.ok()) return device.status();
  Sizes sizes;
  sizes.channels = 3;
  auto made = End::make(device.take(), sizes);
  if (!made.ok()) return made.status();
  *end = made.take();
  return Status();
}

TEST_F(RdmaTest, WithoutLockedMemoryThereIsNoEnd) {
  std::unique_ptr<End> end;
  for (uint64_t most : {0u, 100'000u, 1'000'000u}) {
    verbs_.lock_at_most(most);
    const Status made = make_end(&verbs_, &end);
    EXPECT_EQ(made.code(), Code::kExhausted);
    EXPECT_TRUE(says(made, "ulimit -l")) << made.message();
  }
  // 8 MiB is what systemd gives since its version 248.
  verbs_.lock_at_most(8u << 20);
  EXPECT_TRUE(make_end(&verbs_, &end).ok());
}

TEST_F(RdmaTest, TheWayIsTriedBeforeItIsUsed) {
  std::unique_ptr<End> here, there;
  ASSERT_TRUE(make_end(&verbs_, &here).ok());
  ASSERT_TRUE(make_end(&verbs_, &there).ok());
  ASSERT_TRUE(there->connect(here->blob()).ok());
  ASSERT_TRUE(here->connect(there->blob()).ok());
  auto trial = here->try_out();
  ASSERT_TRUE(trial.ok()) << trial.status().message();
  EXPECT_GT(trial->read_us, 0.0);
  EXPECT_GT(trial->gigabytes_per_second, 0.0);
  verbs_.set_link(false);
  trial = here->try_out();
  EXPECT_TRUE(says(trial.status(), "does not answer")) << trial.status().message();
}

TEST_F(RdmaTest, ATrialThatReachesSomebodyElseFails) {
  std::unique_ptr<End> here, there;
  ASSERT_TRUE(make_end(&verbs_, &here).ok());
  ASSERT_TRUE(make_end(&verbs_, &there).ok());
  ASSERT_TRUE(there->connect(here->blob()).ok());
  std::string blob = there->blob();
  blob[40] = char(blob[40] + 1);  // of the nonce
  ASSERT_TRUE(here->connect(blob).ok());
  EXPECT_TRUE(says(here->try_out().status(), "somebody else"));
}

TEST_F(RdmaTest, AddressesOfAnotherKindAreRefused) {
  std::unique_ptr<End> roce, infiniband;
  ASSERT_TRUE(make_end(&verbs_, &roce).ok());
  PortFacts facts{"double0:1", false, 100'000, true};
  verbs_.set_facts(facts);
  ASSERT_TRUE(make_end(&verbs_, &infiniband).ok());
  EXPECT_TRUE(says(roce->connect(infiniband->blob()), "this end is on RoCE"));
  EXPECT_TRUE(says(infiniband->connect(roce->blob()), "this end is on InfiniBand"));
  const std::string blob = roce->blob();
  for (size_t bytes = 0; bytes < blob.size(); ++bytes)
    EXPECT_FALSE(roce->connect(blob.substr(0, bytes)).ok()) << bytes;
  EXPECT_FALSE(roce->connect(blob + "x").ok());
  std::mt19937 random(13);
  for (int i = 0; i < 500; ++i) {
    std::unique_ptr<End> end;
    ASSERT_TRUE(make_end(&verbs_, &end).ok());
    std::string bad = blob;
    for (int flips = 0; flips < 4; ++flips) bad[random() % bad.size()] ^= char(1 + random() % 255);
    if (end->connect(bad).ok()) (void)end->try_out();
  }
}

// ---- a peer that lies ----

// One half of a channel, whose peer is a bare queue pair in the hands of the test.
class LiarTest : public RdmaTest {
 protected:
  void SetUp() override {
    RdmaTest::SetUp();
    device_ = verbs_.open("").take();
    session_ = std::make_shared<Session>();
    session_->device = device_;
    session_->report_ms = 200;
    liar_ = device_->make_pair(limits_).take();
    auto pair = device_->make_pair(limits_).take();
    ASSERT_TRUE(pair->connect(liar_->address()).ok());
    ASSERT_TRUE(liar_->connect(pair->address()).ok());
    ASSERT_TRUE(pair->post_receives(limits_.receives).ok());
    ASSERT_TRUE(liar_->post_receives(limits_.receives).ok());
    line_ = std::make_unique<Line>(session_, std::move(pair), limits_);
    ASSERT_TRUE(own_.open(device_.get(), layout_.ring_bytes, Rights::kPeerWrites).ok());
  }
  void tell(uint32_t immediate) {
    Work work;
    work.immediate = immediate;
    work.id = ++id_;
    ASSERT_TRUE(liar_->post(work).ok());
  }
  const Layout layout_{64u << 10, 4, 64u << 10, 16u << 10};
  const PairLimits limits_{100, 100};
  std::shared_ptr<Device> device_;
  std::shared_ptr<Session> session_;
  std::unique_ptr<Line> line_;
  std::unique_ptr<Pair> liar_;
  RegisteredBlock own_;
  uint64_t id_ = 0;
};

TEST_F(LiarTest, NonsenseInTheRingEndsTheChannel) {
  const struct {
    const char* name;
    Record record;
    uint64_t position;
    uint64_t told;
    const char* text;
  } cases[] = {
      {"no header", {}, 1u << 20, 64, "a record's header"},
      {"longer than told", {RecordKind::kBytes, 100, {}}, 0, 64, "longer than what was told"},
      {"longer than anything", {RecordKind::kBytes, UINT32_MAX, {}}, 0, 64, "longer"},
      {"unknown kind", {RecordKind(7), 8, {}}, 0, 64, "kind"},
      {"nothing to read", {RecordKind::kReference, 0, {4096, 1}}, 0, 32, "length"},
      {"too much to read", {RecordKind::kReference, UINT32_MAX, {4096, 1}}, 0, 32, "length"},
      {"around the end", {RecordKind::kReference, 4096, {UINT64_MAX - 5, 1}}, 0, 32, "length"},
      {"another's memory", {RecordKind::kReference, 4096, {4096, 1}}, 0, 32, "refuses access"},
      {"more than the ring", {RecordKind::kBytes, 8, {}}, 0, 1u << 20, "than there is room"},
      {"crooked", {RecordKind::kBytes, 8, {}}, 0, 33, "than there is room"},
  };
  for (const auto& each : cases) {
    SetUp();
    Inlet inlet(session_, std::move(line_), layout_);
    ASSERT_TRUE(inlet.open().ok());
    write_header(own_.data(), each.record, each.position);
    Work work;
    work.kind = WorkKind::kWrite;
    work.id = ++id_;
    work.local = own_.data();
    work.local_key = own_.local_key();
    work.bytes = 4096;
    work.remote = inlet.ring();
    work.immediate = uint32_t(each.told);
    ASSERT_TRUE(liar_->post(work).ok());
    std::vector<uint8_t> into(100'000);
    const base::Fd wake(eventfd(0, EFD_CLOEXEC));
    auto got = inlet.receive(into.data(), 1, into.size(), {0, 5000}, wake.get());
    ASSERT_FALSE(got.ok()) << each.name;
    EXPECT_TRUE(says(got.status(), each.text)) << each.name << ": " << got.status().message();
    got = inlet.receive(into.data(), 1, into.size(), {0, 5000}, wake.get());
    EXPECT_FALSE(got.ok()) << each.name << ", again";
  }
}

TEST_F(LiarTest, RoomThatNobodyUsedEndsTheChannel) {
  for (uint32_t immediate : {uint32_t(64), uint32_t(65'536), uint32_t(7), uint32_t(0x7fffffe0)}) {
    SetUp();
    Outlet outlet(session_, std::move(line_), layout_);
    ASSERT_TRUE(outlet.open().ok());
    outlet.aim(own_.remote());
    const base::Fd wake(eventfd(0, EFD_CLOEXEC));
    iovec part{const_cast<char*>("x"), 1};
    Parts one(&part, 1), two(&part, 1);
    ASSERT_TRUE(outlet.some(&one, 0, wake.get()).ok());  // 64 bytes of the ring
    tell(immediate);
    auto sent = outlet.some(&two, 0, wake.get());
    EXPECT_EQ(sent.ok(), immediate == 64) << immediate;
    EXPECT_EQ(says(sent.status(), "nobody had used"), immediate != 64) << sent.status().message();
  }
}

TEST(RdmaPath, SettingsAreReadOrRefusedByName) {
  auto unset = read_path_settings(nullptr, nullptr, nullptr, "");
  ASSERT_TRUE(unset.ok());
  EXPECT_EQ(unset->traffic_class, 0);
  EXPECT_EQ(unset->mtu_code, 5);
  EXPECT_EQ(unset->answer_timer, 14) << "67 ms, so that a cut of half a second is bridged";
  EXPECT_EQ(unset->repetitions, 7);
  auto set = read_path_settings("106", "1024", "18", "3");
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->traffic_class, 106);
  EXPECT_EQ(set->mtu_code, 3);
  EXPECT_EQ(set->answer_timer, 18);
  EXPECT_EQ(set->repetitions, 3);
  EXPECT_TRUE(says(read_path_settings("256", nullptr, nullptr, nullptr).status(), "_CLASS is"));
  EXPECT_TRUE(says(read_path_settings(nullptr, "1500", nullptr, nullptr).status(), "_MTU is"));
  EXPECT_TRUE(says(read_path_settings(nullptr, nullptr, "0", nullptr).status(), "_TIMEOUT is"));
  EXPECT_TRUE(says(read_path_settings(nullptr, nullptr, nullptr, "8x").status(), "_RETRIES is"));
}

TEST(RdmaRecord, ImmediatesAreThe31LowestBits) {
  uint64_t position = 0;
  const uint64_t far = (uint64_t(1) << 40) - 64;
  EXPECT_TRUE(widen(immediate_of(far + 96), far, 4096, &position));
  EXPECT_EQ(position, far + 96);
  EXPECT_TRUE(widen(immediate_of(far), far, 0, &position));
  EXPECT_EQ(position, far);
  EXPECT_FALSE(widen(immediate_of(far - 32), far, 4096, &position)) << "backwards";
  EXPECT_FALSE(widen(immediate_of(far + 4128), far, 4096, &position));
}

}  // namespace
}  // namespace tendril::transport::rdma

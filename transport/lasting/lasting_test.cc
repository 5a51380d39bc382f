// SPDX-License-Identifier: Apache-2.0
// Sessions that are cut: every byte arrives once and in order, an end is told from a cut, and a cut
// that lasts too long ends the session. transport_test.cc runs the contract of channels over them.
#include "transport/lasting/lasting.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "base/clock.h"
#include "transport/testing/carrier_double.h"
#include "transport/testing/lasting_network.h"

namespace tendril::transport {
namespace {

using base::Code;
using base::Status;

struct Ends {
  std::unique_ptr<Channel> client, worker;
};

class LastingTest : public ::testing::Test {
 protected:
  void SetUp() override { alarm(120); }
  void TearDown() override { alarm(0); }
  static Ends ends(const Network& network, size_t line = 0) {
    return {lasting_channel(network.client, line), lasting_channel(network.worker, line)};
  }
};

// Streams on two channels both ways, while connections are reset at random times, so long after the
// last cut was mended.
void survive_cuts(bool in_records, uint32_t cuts, uint64_t words, uint32_t first_us = 1000,
                  uint32_t last_us = 16'000) {
  Network network(2);
  std::vector<Ends> ends;
  for (size_t line = 0; line < 2; ++line) {
    ends.push_back({lasting_channel(network.client, line), lasting_channel(network.worker, line)});
    if (!in_records) continue;
    ends.back().client = sealed_pair(std::move(ends.back().client), &ends.back().worker,
                                     uint16_t(line), kRecordsPerKey);
  }
  std::atomic<bool> over{false};
  std::thread cutter([&] {
    std::minstd_rand random(7);
    for (uint32_t i = 0; i < cuts && !over; ++i) {
      usleep(useconds_t(first_us + random() % (last_us - first_us)));
      const uint64_t before = network.client->resumptions();
      network.cut(first_us == 0 ? 7 : random() % 7 + 1);  // all are noticed at once
      for (int wait = 0; wait < 3000 && network.client->resumptions() == before && !over; ++wait)
        usleep(1000);
    }
  });
  std::vector<std::thread> threads;
  for (uint32_t line = 0; line < 2; ++line) {
    threads.emplace_back([&, line] { send_stream(ends[line].client.get(), words, line); });
    threads.emplace_back([&, line] { check_stream(ends[line].worker.get(), words, line); });
    threads.emplace_back([&, line] { send_stream(ends[line].worker.get(), words, line + 10); });
    threads.emplace_back([&, line] { check_stream(ends[line].client.get(), words, line + 10); });
  }
  for (std::thread& thread : threads) thread.join();
  over = true;
  cutter.join();
  EXPECT_GE(network.client->resumptions(), cuts / 10);
  printf("%lu cuts survived\n", static_cast<unsigned long>(network.client->resumptions()));
}

TEST_F(LastingTest, NothingIsLostOrRepeatedOverRandomCuts) { survive_cuts(false, 60, 12u << 20); }
TEST_F(LastingTest, SealedRecordsSurviveRandomCuts) { survive_cuts(true, 30, 8u << 20); }

// What was sent again has just left, or not yet.
TEST_F(LastingTest, CutsFollowEachOther) { survive_cuts(false, 300, 3u << 20, 0, 700); }

TEST_F(LastingTest, AWaitingReceiverOutlastsACutOfAnIdleSession) {
  Network network(1);
  const Ends both = ends(network);
  char got[8] = {};
  std::thread receiver([&] {
    const auto received = both.client->receive(got, 5, 5, {0, -1});
    EXPECT_TRUE(received.ok()) << received.status().message();
  });
  usleep(20'000);
  network.cut(~0u);
  iovec part{const_cast<char*>("hello"), 5};
  EXPECT_TRUE(both.worker->send(&part, 1).ok());
  receiver.join();
  EXPECT_STREQ(got, "hello");
  EXPECT_GE(network.client->resumptions(), 1u);
}

TEST_F(LastingTest, BytesThatWereNotReadAreSentAgainThoughNobodySends) {
  Network network(1);
  const Ends both = ends(network);
  std::string sent(300'000, 'a');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = char('a' + i % 23);
  iovec part{sent.data(), sent.size()};
  ASSERT_TRUE(both.client->send(&part, 1).ok());
  network.cut(~0u);
  std::string got(sent.size(), 0);
  ASSERT_TRUE(both.worker->receive(got.data(), got.size(), got.size(), {0, 15'000}).ok());
  EXPECT_EQ(got, sent);
}

TEST_F(LastingTest, TimeoutsHoldDuringACut) {
  Network network(1);
  network.weather = [](uint32_t) { return Status(Code::kUnavailable, "no route"); };
  const Ends both = ends(network);
  network.cut(~0u);
  while (network.attempts == 0) usleep(1000);
  char got[8];
  const uint64_t began_ns = base::now_ns();
  EXPECT_EQ(both.client->receive(got, 1, 8, {0, 30}).status().code(), Code::kTimeout);
  iovec part{got, 8};
  EXPECT_EQ(*both.client->send_some(&part, 1, 30), 0u);
  EXPECT_EQ(*both.client->send_some(&part, 1, 0), 0u);
  EXPECT_EQ(*both.client->receive(got, 0, 8, {0, 0}), 0u);
  EXPECT_LT(base::now_ns() - began_ns, 2'000'000'000u);
}

TEST_F(LastingTest, AnEndIsNoCut) {
  Network network(2);
  Ends one = ends(network, 0), other = ends(network, 1);
  iovec part{const_cast<char*>("bye"), 3};
  ASSERT_TRUE(one.worker->send(&part, 1).ok());
  other.worker.reset();
  one.worker.reset();
  network.lose_worker();
  char got[8] = {};
  ASSERT_TRUE(one.client->receive(got, 3, 3, {0, 5000}).ok());
  const uint64_t began_ns = base::now_ns();
  EXPECT_EQ(one.client->receive(got, 1, 8, {0, 5000}).status().code(), Code::kClosed);
  EXPECT_EQ(other.client->receive(got, 1, 8, {0, 5000}).status().code(), Code::kClosed);
  EXPECT_LT(base::now_ns() - began_ns, 1'000'000'000u);
  EXPECT_EQ(network.attempts, 0u);
}

// A killed process resets connections with bytes that it had not read, and ends the others. Who
// asks its server hears that there is no such session.
TEST_F(LastingTest, AnEndThatIsSaidOnSomeConnectionsIsBelievedWhenTheServerSaysSo) {
  Network network(2);
  network.weather = [](uint32_t) { return Status(Code::kRefused, "no such session"); };
  Ends one = ends(network, 0), other = ends(network, 1);
  iovec part{const_cast<char*>("unread"), 6};
  ASSERT_TRUE(one.client->send(&part, 1).ok());
  ASSERT_TRUE(other.client->send(&part, 1).ok());
  iovec last{const_cast<char*>("bye"), 3};
  ASSERT_TRUE(one.worker->send(&last, 1).ok());
  usleep(10'000);
  other.worker.reset();
  one.worker.reset();
  network.lose_worker();
  char got[8] = {};
  ASSERT_TRUE(one.client->receive(got, 3, 3, {0, 5000}).ok()) << "its last words";
  const Status lost = one.client->receive(got, 1, 8, {0, 5000}).status();
  EXPECT_EQ(lost.code(), Code::kClosed);
  EXPECT_EQ(lost.message(), "the peer closed the connection");
  EXPECT_EQ(network.attempts, 1u);
  EXPECT_EQ(network.cuts, 0u) << "nobody was told of a cut";
}

// The same without a server that answers.
TEST_F(LastingTest, AnEndThatIsSaidOnSomeConnectionsIsNotWaitedForLong) {
  Network network(2);
  network.weather = [](uint32_t) { return Status(Code::kUnavailable, "nobody listens"); };
  Ends one = ends(network, 0), other = ends(network, 1);
  iovec part{const_cast<char*>("unread"), 6};
  ASSERT_TRUE(one.client->send(&part, 1).ok());
  usleep(10'000);
  const uint64_t began_ns = base::now_ns();
  other.worker.reset();
  one.worker.reset();
  network.lose_worker();
  char got[8];
  EXPECT_EQ(one.client->receive(got, 1, 8, {0, 10'000}).status().code(), Code::kClosed);
  EXPECT_LT(base::now_ns() - began_ns, 4'000'000'000u);
}

// Somebody in between closes one connection in order, seen by one end or by both.
TEST_F(LastingTest, AConnectionThatIsClosedInOrderIsMadeAgain) {
  for (const uint32_t line : {0u, 1u, 2u}) {
    for (const uint32_t sides : {1u, 2u, 3u}) {
      Network network(2);
      const Ends both = ends(network);
      network.half_close(line, sides);
      iovec part{const_cast<char*>("hello"), 5};
      char got[8] = {};
      usleep(10'000);
      ASSERT_TRUE(both.client->send(&part, 1).ok());
      auto taken = both.worker->receive(got, 5, 5, {0, 5000});
      ASSERT_TRUE(taken.ok()) << line << " " << sides << taken.status().message();
      ASSERT_TRUE(both.worker->send(&part, 1).ok());
      taken = both.client->receive(got, 5, 5, {0, 5000});
      ASSERT_TRUE(taken.ok()) << line << " " << sides << taken.status().message();
      EXPECT_EQ(std::string(got, 5), "hello");
    }
  }
}

TEST_F(LastingTest, AnEndOnAConnectionThatNobodyUsesIsNoticed) {
  for (const uint32_t sides : {1u, 2u}) {
    Network network(2);
    const Ends both = ends(network);
    network.half_close(1, sides);
    const base::Deadline deadline(5000);
    while (network.attempts == 0 && !deadline.passed()) usleep(1000);
    EXPECT_GT(network.attempts, 0u) << sides;
  }
}

// One connection was ended in order, and all others are reset: a killed process leaves the same. A
// process resets no connection on which it has read everything, so this is a cut, and the client
// may take its time.
void return_late(const Network& network, const Ends& both) {
  iovec part{const_cast<char*>("hello"), 5};
  char got[8] = {};
  ASSERT_TRUE(both.client->send(&part, 1).ok());
  const auto taken = both.worker->receive(got, 5, 5, {0, 10'000});
  ASSERT_TRUE(taken.ok()) << taken.status().message();
  EXPECT_EQ(std::string(got, 5), "hello");
  EXPECT_GT(network.attempts, 0u);
}

TEST_F(LastingTest, AResetOfWhatHadNothingUnreadIsACut) {
  Network network(2);
  network.weather = [](uint32_t) { return usleep(2'000'000), Status(); };
  const Ends both = ends(network);
  network.half_close(1, 2);
  network.cut(~2u);
  return_late(network, both);
}

TEST_F(LastingTest, AnIdleClientSaysHowFarItHasRead) {
  Network network(2);
  network.weather = [](uint32_t) { return usleep(2'000'000), Status(); };
  const Ends both = ends(network);
  iovec part{const_cast<char*>("little"), 6};
  ASSERT_TRUE(both.worker->send(&part, 1).ok());
  char got[8];
  ASSERT_TRUE(both.client->receive(got, 6, 6, {0, 5000}).ok());
  usleep(2'600'000);  // the client's keeper looks every 2 s
  network.half_close(1, 2);
  network.cut(~2u);
  return_late(network, both);
}

TEST_F(LastingTest, ShuttingDownEndsBothSidesAlsoDuringACut) {
  Network network(1);
  network.weather = [](uint32_t) { return Status(Code::kUnavailable, "no route"); };
  const Ends both = ends(network);
  network.cut(~0u);
  while (network.attempts == 0) usleep(1000);
  std::thread receiver([&] {
    char got[8];
    EXPECT_EQ(both.client->receive(got, 1, 8, {0, -1}).status().code(), Code::kClosed);
  });
  usleep(10'000);
  both.client->shutdown();
  receiver.join();
  iovec part{const_cast<char*>("x"), 1};
  EXPECT_EQ(both.client->send(&part, 1).code(), Code::kClosed);
}

TEST_F(LastingTest, ACutThatLastsTooLongEndsTheSession) {
  Network network(1, 300);
  network.weather = [](uint32_t) { return Status(Code::kUnavailable, "no route to host"); };
  const Ends both = ends(network);
  const uint64_t began_ns = base::now_ns();
  network.cut(~0u);
  char got[8];
  const Status lost = both.client->receive(got, 1, 8, {0, 10'000}).status();
  EXPECT_EQ(lost.code(), Code::kClosed);
  EXPECT_NE(lost.message().find("no route to host"), std::string::npos) << lost.message();
  EXPECT_GE(base::now_ns() - began_ns, 290'000'000u);
  const Status gone = both.worker->receive(got, 1, 8, {0, 20'000}).status();
  EXPECT_EQ(gone.code(), Code::kClosed) << gone.message();
}

TEST_F(LastingTest, ARefusalEndsTheSessionAtOnce) {
  Network network(1);
  network.weather = [](uint32_t) { return Status(Code::kRefused, "no such session"); };
  const Ends both = ends(network);
  network.cut(~0u);
  char got[8];
  const Status lost = both.client->receive(got, 1, 8, {0, 5000}).status();
  EXPECT_EQ(lost.code(), Code::kClosed);
  EXPECT_EQ(lost.message(), "no such session");
}

TEST_F(LastingTest, AnAttemptThatFailsIsFollowedByAnother) {
  Network network(1);
  network.weather = [](uint32_t attempt) {
    return attempt < 4 ? Status(Code::kUnavailable, "no route") : Status();
  };
  const Ends both = ends(network);
  network.cut(~0u);
  iovec part{const_cast<char*>("hello"), 5};
  ASSERT_TRUE(both.client->send(&part, 1).ok());
  char got[8] = {};
  ASSERT_TRUE(both.worker->receive(got, 5, 5, {0, 10'000}).ok());
  EXPECT_EQ(network.attempts, 4u);
  EXPECT_EQ(network.cuts, 1u);
}

// A worker's end whose client is this test, byte for byte.
class Alone {
 public:
  Alone() {
    std::vector<base::Fd> theirs = connections(&here_);
    base::Fd acknowledgements = std::move(theirs.back());
    theirs.pop_back();
    LastingSettings settings;
    settings.may_be_carried = true;
    session =
        Lasting::make(std::move(theirs), std::move(acknowledgements), std::move(settings)).take();
    channel = lasting_channel(session, 0);
  }

  // New connections: the worker's. *here: the client's, with the one for acknowledgements last.
  static std::vector<base::Fd> connections(std::vector<base::Fd>* here) {
    std::vector<base::Fd> theirs(2);
    here->resize(2);
    for (size_t i = 0; i < 2; ++i) (*here)[i] = tcp_sockets(&theirs[i]);
    return theirs;
  }

  int line() const { return here_[0].get(); }
  int acknowledgements() const { return here_[1].get(); }
  void cut() {
    for (const base::Fd& fd : here_) reset_connection(fd.get());
  }
  // Comes again, and claims to have taken so much.
  void come_again(uint64_t greeting, uint64_t taken) {
    come_again();
    greet(greeting, taken);
  }
  void come_again() { session->resume(connections(&here_)); }
  void greet(uint64_t greeting, uint64_t taken) {
    const uint64_t words[3] = {greeting, 1, taken};
    ASSERT_EQ(send(acknowledgements(), words, sizeof words, 0), ssize_t(sizeof words));
  }
  // What ends the session.
  std::string end() {
    char got[8];
    const Status lost = channel->receive(got, 1, 8, {0, 5000}).status();
    EXPECT_EQ(lost.code(), Code::kClosed);
    return lost.message();
  }

  std::shared_ptr<Lasting> session;
  std::unique_ptr<Channel> channel;

 private:
  std::vector<base::Fd> here_;
};
constexpr uint64_t kGreeting = 0x6e69616761646e74;

TEST_F(LastingTest, NonsenseOfThePeerEndsTheSession) {
  Alone alone;
  const uint64_t never_sent[2] = {0, 1};
  ASSERT_EQ(send(alone.acknowledgements(), never_sent, sizeof never_sent, 0), 16);
  const std::string why = alone.end();
  EXPECT_NE(why.find("cannot have"), std::string::npos) << why;
}

// Who takes everything and acknowledges nothing gets what is kept, and no more.
TEST_F(LastingTest, APeerThatNeverAcknowledgesMakesNothingGrow) {
  Alone alone;
  std::atomic<size_t> taken{0};
  std::thread reader([&] {
    std::vector<char> block(1 << 16);
    for (ssize_t got; (got = recv(alone.line(), block.data(), block.size(), 0)) > 0;)
      taken += size_t(got);
  });
  std::vector<char> block(1 << 18);
  iovec part{block.data(), block.size()};
  size_t sent = 0;
  for (size_t moved = 1; moved != 0; sent += moved)
    moved = *alone.channel->send_some(&part, 1, 300);
  EXPECT_EQ(sent, 1u << 20);
  alone.channel->shutdown();
  reader.join();
  EXPECT_EQ(taken, sent);
}

TEST_F(LastingTest, WhoComesAgainWithNonsenseDoesNotDisturbWhoDoesNot) {
  Alone alone;
  iovec part{const_cast<char*>("hello"), 5};
  ASSERT_TRUE(alone.channel->send(&part, 1).ok());
  alone.cut();
  alone.come_again(kGreeting + 1, 0);
  alone.session->resume({});
  alone.come_again(kGreeting, 2);
  char got[8] = {};
  ASSERT_EQ(recv(alone.line(), got, 3, MSG_WAITALL), 3);
  EXPECT_STREQ(got, "llo");
}

TEST_F(LastingTest, WhoClaimsToHaveTakenWhatWasNotSentEndsTheSession) {
  Alone alone;
  iovec part{const_cast<char*>("hello"), 5};
  ASSERT_TRUE(alone.channel->send(&part, 1).ok());
  alone.cut();
  alone.come_again(kGreeting, 6);
  EXPECT_EQ(alone.end(), "the peer does not know how far it got before the cut");
}

// The peer's greeting takes a while. A trial that ends in between must not stop the line for good.
TEST_F(LastingTest, CarriersThatWereLeftAreNotUsedWhileTheClientComesAgain) {
  Alone alone;
  base::Fd over;
  std::vector<std::unique_ptr<Carrier>> carriers;
  carriers.push_back(CarrierDouble::make(&over));
  ASSERT_TRUE(alone.session->take_carriers(std::move(carriers)).ok());
  alone.cut();
  alone.come_again();
  uint64_t said[3];
  ASSERT_EQ(recv(alone.acknowledgements(), said, sizeof said, MSG_WAITALL), ssize_t(sizeof said));
  alone.session->use_carriers();
  alone.greet(kGreeting, 0);
  iovec part{const_cast<char*>("hello"), 5};
  EXPECT_EQ(*alone.channel->send_some(&part, 1, 2000), 5u);
  EXPECT_STREQ(alone.channel->kind(), "tcp");
}

// The second one comes while the line goes over, or a moment before or after. The receiver wakes,
// though its carrier is well.
TEST_F(LastingTest, WhoGoesOverTwiceEndsTheSession) {
  for (uint32_t round = 0; round < 400; ++round) {
    SCOPED_TRACE(round);
    Alone alone;
    base::Fd over;
    std::vector<std::unique_ptr<Carrier>> carriers;
    carriers.push_back(CarrierDouble::make(&over));
    ASSERT_TRUE(alone.session->take_carriers(std::move(carriers)).ok());
    std::string why;
    std::thread receiver([&] { why = alone.end(); });
    const uint64_t turn[2] = {1u << 16, 0};
    ASSERT_EQ(send(alone.acknowledgements(), turn, sizeof turn, 0), ssize_t(sizeof turn));
    for (const uint64_t until_ns = base::now_ns() + round * 300; base::now_ns() < until_ns;) {
    }
    ASSERT_EQ(send(alone.acknowledgements(), turn, sizeof turn, 0), ssize_t(sizeof turn));
    receiver.join();
    EXPECT_NE(why.find("cannot have"), std::string::npos) << why;
  }
}

// From two places at once: one of them has the session, and the other one nothing.
TEST_F(LastingTest, TheLastOneToComeAgainHasTheSession) {
  Alone alone;
  std::vector<base::Fd> first;
  std::vector<base::Fd> theirs = Alone::connections(&first);
  alone.session->resume(std::move(theirs));
  alone.come_again(kGreeting, 0);
  iovec part{const_cast<char*>("hello"), 5};
  ASSERT_TRUE(alone.channel->send(&part, 1).ok());
  char got[32] = {};
  ASSERT_EQ(recv(alone.line(), got, 5, MSG_WAITALL), 5);
  EXPECT_STREQ(got, "hello");
  EXPECT_LE(recv(first[0].get(), got, sizeof got, 0), 0) << "its line carries nothing, and is over";
}

TEST_F(LastingTest, NobodyComesAgainAfterTheEnd) {
  Alone alone;
  alone.channel->shutdown();
  std::vector<base::Fd> late;
  std::vector<base::Fd> theirs = Alone::connections(&late);
  alone.session->resume(std::move(theirs));
  char got[8];
  EXPECT_EQ(recv(late[0].get(), got, sizeof got, 0), 0);
  EXPECT_EQ(recv(late[1].get(), got, sizeof got, 0), 0);
  EXPECT_EQ(alone.session->resumptions(), 0u);
}

TEST_F(LastingTest, AForkedChildDropsItsCopiesOnly) {
  Network network(1);
  Ends both = ends(network);
  const pid_t child = fork();
  if (child == 0) {
    both.client.reset();
    network.client.reset();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  iovec part{const_cast<char*>("hello"), 5};
  ASSERT_TRUE(both.client->send(&part, 1).ok());
  char got[8] = {};
  ASSERT_TRUE(both.worker->receive(got, 5, 5, {0, 5000}).ok());
}

}  // namespace
}  // namespace tendril::transport

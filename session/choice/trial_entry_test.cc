// SPDX-License-Identifier: Apache-2.0
// Who may join the trial of a session's fabric, and how long its worker waits for the connections.
#include "session/choice/trial_entry.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "base/clock.h"
#include "session/choice/trial_connections.h"
#include "session/control/rejoin.h"
#include "session/control/secure_attach.h"
#include "transport/sealed/sealed.h"

namespace tendril::session {
namespace {

using base::Code;

constexpr uint64_t kStartNs = 5'000'000'000u;
constexpr uint64_t kLimitNs = uint64_t{kTrialComesMs} * 1'000'000u;

wire::TransportAnswers answers(std::initializer_list<const char*> kinds) {
  wire::TransportAnswers all;
  for (const char* kind : kinds) {
    all.answers.emplace_back();
    all.answers.back().kind = kind;
  }
  return all;
}
TrialEntry begun(uint16_t bulk_channels) {
  TrialEntry entry;
  entry.open(answers({"rdma", "tcp"}), bulk_channels, true);
  entry.begin(kStartNs);
  return entry;
}
Code code(TrialEntry&& entry, uint16_t number = 0, uint64_t now_ns = kStartNs) {
  return entry.join(number, now_ns).code();
}

TEST(TrialEntry, EachConnectionJoinsOnce) {
  TrialEntry entry = begun(2);
  EXPECT_TRUE(entry.join(1, kStartNs).ok());
  EXPECT_TRUE(entry.join(0, kStartNs + kLimitNs - 1).ok());
  const base::Status again = entry.join(1, kStartNs);
  EXPECT_EQ(again.code(), Code::kInvalid);
  EXPECT_EQ(again.message(), "connection 1 of the trial is there already");
  EXPECT_EQ(code(begun(0)), Code::kOk) << "without bulk channels it has one connection";
}

TEST(TrialEntry, ANumberThatTheTrialHasNotIsRefused) {
  for (const uint16_t number : {2, 3, 255, 0x1fff, 0xdfff})
    EXPECT_EQ(code(begun(2), number), Code::kInvalid) << number;
  EXPECT_EQ(code(begun(0), 1), Code::kInvalid);
}

TEST(TrialEntry, TooLateIsRefused) {
  EXPECT_EQ(code(begun(2), 0, kStartNs + kLimitNs), Code::kInvalid);
  EXPECT_EQ(begun(2).join(0, kStartNs + kLimitNs).message(),
            "a session is tried within 20 s of its start, or not at all");
}

// The client has its reply a moment before this side continues.
TEST(TrialEntry, BeforeTheStartItMayJoin) {
  TrialEntry entry;
  entry.open(answers({"rdma", "tcp"}), 1, true);
  EXPECT_TRUE(entry.join(0, kStartNs).ok());
  entry.begin(kStartNs);
  EXPECT_EQ(entry.join(0, kStartNs).code(), Code::kInvalid);
}

TEST(TrialEntry, WithoutSomethingToTryNobodyJoins) {
  EXPECT_EQ(code(TrialEntry()), Code::kInvalid) << "the worker has not answered";
  for (const auto& kinds : {answers({}), answers({"tcp"}), answers({"rdma"}),
                            answers({"shm", "tcp"}), answers({"pigeon", "tcp"})}) {
    TrialEntry entry;
    entry.open(kinds, 2, true);
    EXPECT_EQ(code(std::move(entry)), Code::kInvalid);
  }
  TrialEntry frail;
  frail.open(answers({"rdma", "tcp"}), 2, false);
  EXPECT_EQ(code(std::move(frail)), Code::kInvalid) << "it does not outlast cuts";
  TrialEntry ended = begun(2);
  ended.close();
  EXPECT_EQ(code(std::move(ended)), Code::kInvalid) << "it is over, or runs on the fabric";
}

wire::JoinRequest request(uint64_t session_id, const std::string& secret) {
  wire::JoinRequest join;
  join.session_id = session_id;
  join.session_secret = secret;
  join.channel = wire::kTrialChannels;
  return join;
}

TEST(TrialEntry, OnlyTheSessionsOwnClientIsAMember) {
  const Membership plain{5, "hush", ""};
  const auto member = [](const Membership& of, const wire::JoinRequest& join) {
    return is_member(of, wire::Request::kJoin, join);
  };
  EXPECT_TRUE(member(plain, request(5, "hush")));
  for (const auto& foreign : {request(5, "husk"), request(5, ""), request(5, "hush hush"),
                              request(6, "hush"), request(0, "hush")})
    EXPECT_FALSE(member(plain, foreign));

  const Membership keyed{5, "hush", std::string(transport::kSessionKeyBytes, 'k')};
  wire::JoinRequest proven = request(5, "");
  proven.proof = prove_join(keyed.key, wire::Request::kJoin, proven);
  EXPECT_TRUE(member(keyed, proven));
  EXPECT_FALSE(member(keyed, request(5, "hush"))) << "the secret alone proves nothing here";
  EXPECT_FALSE(is_member(keyed, wire::Request::kUse, proven)) << "made for another request";
  const Membership other{5, "", std::string(transport::kSessionKeyBytes, 'o')};
  EXPECT_FALSE(member(other, proven));
  ++proven.channel;
  EXPECT_FALSE(member(keyed, proven)) << "made for another channel";
}

class TrialConnectionsTest : public ::testing::Test {
 protected:
  void SetUp() override { alarm(60); }
  void TearDown() override { alarm(0); }
  base::Fd connection() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    peer_ = base::Fd(ends[1]);
    return base::Fd(ends[0]);
  }
  bool last_is_closed() {
    char byte;
    return recv(peer_.get(), &byte, 1, MSG_DONTWAIT) == 0;
  }
  TrialConnections all_;
  base::Fd peer_;
};

TEST_F(TrialConnectionsTest, TheyComeInAnyOrderAndBeforeTheirCountIsKnown) {
  all_.take(1, connection());
  all_.expect(2);
  std::thread later([&] {
    usleep(20'000);
    all_.take(0, connection());
  });
  EXPECT_EQ(all_.wait(30'000).size(), 2u);
  later.join();
  all_.take(0, connection());
  EXPECT_TRUE(last_is_closed()) << "it is over";
}

TEST_F(TrialConnectionsTest, ATrialThatDoesNotComeIsGivenUp) {
  all_.expect(2);
  all_.take(0, connection());
  const uint64_t begin_ns = base::now_ns();
  EXPECT_TRUE(all_.wait(50).empty());
  EXPECT_GE(base::now_ns() - begin_ns, 50'000'000u);
  EXPECT_TRUE(last_is_closed());
  all_.take(1, connection());
  EXPECT_TRUE(last_is_closed()) << "too late";
}

TEST_F(TrialConnectionsTest, ASessionThatEndsEndsTheWait) {
  all_.expect(1);
  std::thread later([&] {
    usleep(20'000);
    all_.give_up();
  });
  EXPECT_TRUE(all_.wait(50'000).empty());
  later.join();
  all_.take(0, connection());
  EXPECT_TRUE(last_is_closed());
}

TEST_F(TrialConnectionsTest, WhatComesTwiceOrUnderAnotherNumberIsClosed) {
  all_.take(100'000, connection());
  EXPECT_TRUE(last_is_closed());
  all_.take(7, connection());
  all_.expect(2);
  EXPECT_TRUE(last_is_closed());
  all_.take(2, connection());
  EXPECT_TRUE(last_is_closed());
  all_.take(0, connection());
  all_.take(0, connection());
  EXPECT_TRUE(last_is_closed());
  all_.take(1, connection());
  EXPECT_EQ(all_.wait(0).size(), 2u);
}

}  // namespace
}  // namespace tendril::session

// SPDX-License-Identifier: Apache-2.0
// Which line a notice gives, and when the program gets which signal. On invented time.
#include "cli/notices.h"

#include "cli/pool/events.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace tendril::cli {
namespace {

constexpr uint64_t kS = 1'000'000'000;

wire::Notice notice(wire::NoticeKind kind, const std::string& text, uint64_t in_s = 0) {
  wire::Notice notice;
  notice.kind = kind;
  notice.text = text;
  notice.in_s = in_s;
  return notice;
}

SignalWish usr1_at(uint64_t before_s) {
  SignalWish wish;
  wish.number = SIGUSR1;
  wish.before_s = before_s;
  return wish;
}

TEST(Notices, SignalsAsSlurmWritesThem) {
  EXPECT_EQ(parse_signal("USR1@120")->number, SIGUSR1);
  EXPECT_EQ(parse_signal("USR1@120")->before_s, 120u);
  EXPECT_EQ(parse_signal("SIGTERM")->number, SIGTERM);
  EXPECT_EQ(parse_signal("SIGTERM")->before_s, 60u);
  EXPECT_EQ(parse_signal("10@2m")->number, 10);
  EXPECT_EQ(parse_signal("10@2m")->before_s, 120u);
  for (const char* const bad : {"", "@120", "USR3@1", "0", "65", "USR1@", "USR1@soon", "usr1"})
    EXPECT_FALSE(parse_signal(bad).ok()) << bad;
}

TEST(Notices, TheSignalComesSoLongBeforeTheEnd) {
  Notices notices(usr1_at(120));
  EXPECT_EQ(notices.next_ns(), Notices::kNever);
  EXPECT_EQ(notices.heard(notice(wire::NoticeKind::kWarning, "the lease ends", 300), 1000 * kS),
            "the lease ends (in 5 min)");
  EXPECT_EQ(notices.next_ns(), 1180 * kS);
  EXPECT_FALSE(notices.due(1179 * kS));
  EXPECT_EQ(notices.due(1180 * kS), SIGUSR1);
  EXPECT_FALSE(notices.due(1181 * kS));
  // The same end, told again.
  notices.heard(notice(wire::NoticeKind::kWarning, "the lease ends", 60), 1240 * kS);
  EXPECT_EQ(notices.next_ns(), Notices::kNever);
  notices.heard(notice(wire::NoticeKind::kEnded, "the lease has ended"), 1300 * kS);
  EXPECT_TRUE(notices.has_ended());
  EXPECT_FALSE(notices.requeues());
}

TEST(Notices, ALateWarningSignalsAtOnce) {
  Notices notices(usr1_at(120));
  notices.heard(notice(wire::NoticeKind::kWarning, "the lease ends", 30), 1000 * kS);
  EXPECT_EQ(notices.due(1000 * kS), SIGUSR1);
}

TEST(Notices, WhatWasWarnedOfIsOver) {
  Notices notices(usr1_at(120));
  notices.heard(notice(wire::NoticeKind::kWarning, "idle", 300), 1000 * kS);
  EXPECT_EQ(notices.heard(notice(wire::NoticeKind::kResumed, "goes on"), 1010 * kS), "goes on");
  EXPECT_EQ(notices.next_ns(), Notices::kNever);
  notices.heard(notice(wire::NoticeKind::kWarning, "idle", 300), 2000 * kS);
  EXPECT_EQ(notices.next_ns(), 2180 * kS);
}

TEST(Notices, EachPartOfALeaseSaysTheSame) {
  Notices notices({});
  const auto warning = notice(wire::NoticeKind::kWarning, "the lease ends", 300);
  EXPECT_NE(notices.heard(warning, 1000 * kS), "");
  EXPECT_EQ(notices.heard(warning, 1000 * kS), "");
  EXPECT_NE(notices.heard(warning, 1600 * kS), "");
  EXPECT_EQ(notices.next_ns(), Notices::kNever);  // no signal was wished
}

TEST(Notices, ARequeueEndsTheProgramInTime) {
  Notices wished(usr1_at(120));
  wished.heard(notice(wire::NoticeKind::kRequeue, "nlp reclaims 2.0 top", 120), 1000 * kS);
  EXPECT_TRUE(wished.requeues());
  EXPECT_EQ(wished.due(1000 * kS), SIGUSR1);
  EXPECT_EQ(wished.next_ns(), 1120 * kS);
  EXPECT_EQ(wished.due(1120 * kS), SIGTERM);
  EXPECT_EQ(wished.due(1125 * kS), SIGKILL);
  Notices plain({});
  plain.heard(notice(wire::NoticeKind::kRequeue, "nlp reclaims 2.0 top", 120), 1000 * kS);
  EXPECT_EQ(plain.due(1000 * kS), SIGTERM);
  EXPECT_EQ(plain.next_ns(), 1120 * kS);
  EXPECT_EQ(plain.due(1120 * kS), SIGKILL);
}

TEST(Notices, ASignalIsNotGivenTwiceForOneEnd) {
  Notices notices(usr1_at(120));
  notices.heard(notice(wire::NoticeKind::kWarning, "reclaim", 100), 1000 * kS);
  EXPECT_EQ(notices.due(1000 * kS), SIGUSR1);
  notices.heard(notice(wire::NoticeKind::kRequeue, "reclaim", 60), 1050 * kS);
  EXPECT_EQ(notices.next_ns(), 1110 * kS);
  EXPECT_EQ(notices.due(1110 * kS), SIGTERM);
}

TEST(Notices, LostServersRequeueToo) {
  Notices notices({});
  notices.requeue(1000 * kS);
  EXPECT_EQ(notices.due(1000 * kS), SIGTERM);
  EXPECT_EQ(notices.due(1030 * kS), SIGKILL);
}

TEST(Events, OneLineForEachNotice) {
  EXPECT_EQ(event_line(notice(wire::NoticeKind::kWarning, "the lease ends", 120), 1000),
            "{\"at\":1000,\"event\":\"warning\",\"in_s\":120,\"text\":\"the lease ends\"}\n");
  EXPECT_EQ(event_line(notice(wire::NoticeKind::kEnded, "idle"), 1000),
            "{\"at\":1000,\"event\":\"ended\",\"text\":\"idle\"}\n");
  const std::string hostile =
      event_line(notice(wire::NoticeKind::kPaused, "a\"b\n{\xff\x1b", UINT64_MAX), 1000);
  EXPECT_EQ(hostile.find('\n'), hostile.size() - 1);
  EXPECT_EQ(hostile.find('\x1b'), std::string::npos);
  EXPECT_TRUE(Events("/dev/null").check().ok());
  EXPECT_EQ(Events("/no/such/folder/events").check().code(), base::Code::kInvalid);
}

TEST(Notices, HostileTextAndTimes) {
  Notices notices(usr1_at(120));
  const std::string line =
      notices.heard(notice(wire::NoticeKind::kWarning, "\x1b[2J", UINT64_MAX), 1000 * kS);
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  EXPECT_GT(notices.next_ns(), 1000 * kS);
}

}  // namespace
}  // namespace tendril::cli

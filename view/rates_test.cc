// SPDX-License-Identifier: Apache-2.0
// Rates between two listings, and how they look.
#include "view/rates.h"

#include <gtest/gtest.h>

#include "view/text.h"

namespace tendril::view {
namespace {

ServerView at(uint64_t now_ns) {
  ServerView view;
  view.server = "rack7:7433";
  view.list.server = "rack7";
  view.list.now_ns = now_ns;
  wire::LeaseRecord lease;
  lease.lease_id = 3;
  lease.client = {"box", "ada", "tendril run", 1, "ada", "uid"};
  lease.slices.resize(1);
  lease.slices[0].share_millionths = 500'000;
  lease.slices[0].memory_bytes = 4ull << 30;
  view.list.leases = {lease};
  wire::SessionRecord session;
  session.session_id = 8;
  session.lease_id = 3;
  session.client = {"box", "ada", "train.py", 77, "ada", "uid"};
  session.memory_used_bytes = {1ull << 30};
  session.measured = true;
  view.list.sessions = {session};
  return view;
}

wire::SessionRecord& only(ServerView& view) { return view.list.sessions[0]; }

TEST(Top, RatesAreOfTheServersTime) {
  ServerView before = at(1'000'000'000), after = at(3'000'000'000);
  only(before).calls = 100;
  only(after).calls = 2'100;
  only(after).launches = 1'000;
  only(after).replies = 4;
  only(after).bytes_in = 2'000'000;
  only(after).awaited_ns = 500'000'000;
  only(after).gpu_ns = 800'000'000;
  only(before).processor_ns = 100'000'000;
  only(after).processor_ns = 400'000'000;
  const ServerRates rates = rates_between(before, after);
  ASSERT_EQ(rates.sessions.size(), 1u);
  const SessionRates& session = rates.sessions[0];
  EXPECT_DOUBLE_EQ(rates.interval_s, 2);
  EXPECT_DOUBLE_EQ(session.calls_per_s, 1'000);
  EXPECT_DOUBLE_EQ(session.launches_per_s, 500);
  EXPECT_DOUBLE_EQ(session.round_trips_per_s, 2);
  EXPECT_DOUBLE_EQ(session.bytes_in_per_s, 1e6);
  EXPECT_DOUBLE_EQ(session.waiting, 0.25);
  EXPECT_DOUBLE_EQ(session.delivered.value(), 0.4);
  EXPECT_DOUBLE_EQ(session.processors, 0.15);
  ASSERT_EQ(session.slices.size(), 1u);
  EXPECT_EQ(session.slices[0].share_millionths, 500'000u);
}

TEST(Top, ASessionThatBeganInBetweenCountsFromNothing) {
  ServerView before = at(1'000'000'000), after = at(2'000'000'000);
  before.list.sessions.clear();
  only(after).calls = 70;
  only(after).processor_ns = 300'000'000;  // most of it while the worker was made
  EXPECT_DOUBLE_EQ(rates_between(before, after).sessions[0].calls_per_s, 70);
  EXPECT_EQ(rates_between(before, after).sessions[0].processors, 0);
}

TEST(Top, NumbersThatGoBackAreNothing) {
  ServerView before = at(1'000'000'000), after = at(2'000'000'000);
  only(before).calls = UINT64_MAX;
  only(before).awaited_ns = 5;
  only(after).awaited_ns = UINT64_MAX;
  EXPECT_EQ(rates_between(before, after).sessions[0].calls_per_s, 0);
  EXPECT_EQ(rates_between(before, after).sessions[0].waiting, 1);
  EXPECT_EQ(rates_between(after, before).sessions[0].calls_per_s, 0) << "time that goes back";
}

TEST(Top, WhatIsNotMeasuredIsADash) {
  ServerView before = at(1'000'000'000), after = at(2'000'000'000);
  only(after).measured = false;
  only(after).launches = 12'340;
  const ServerRates rates = rates_between(before, after);
  EXPECT_FALSE(rates.sessions[0].delivered.has_value());
  const std::string text = top_text(rates);
  EXPECT_NE(text.find("ada@box"), std::string::npos) << text;
  EXPECT_NE(text.find("train.py"), std::string::npos) << text;
  EXPECT_NE(text.find("  -  "), std::string::npos) << text;
  EXPECT_NE(text.find("12.3k"), std::string::npos) << text;
  EXPECT_NE(text.find("1.0 GiB / 4.0 GiB"), std::string::npos) << text;
}

TEST(Top, SortsByAColumn) {
  std::vector<SessionRates> sessions(3);
  for (size_t i = 0; i < sessions.size(); ++i) sessions[i].session.session_id = i;
  sessions[1].launches_per_s = 7;
  sessions[2].launches_per_s = 3;
  const auto order = [&sessions] {
    std::string ids;
    for (const SessionRates& each : sessions) ids += std::to_string(each.session.session_id);
    return ids;
  };
  EXPECT_TRUE(sort_sessions(&sessions, "").ok());
  EXPECT_EQ(order(), "012");
  EXPECT_TRUE(sort_sessions(&sessions, "launches").ok());
  EXPECT_EQ(order(), "120");
  const base::Status none = sort_sessions(&sessions, "colour");
  EXPECT_EQ(none.code(), base::Code::kInvalid);
  EXPECT_NE(none.message().find("round-trips"), std::string::npos);
}

TEST(Top, ParkedLeasesHaveALine) {
  ServerView after = at(2'000'000'000);
  EXPECT_EQ(top_text(rates_between(at(1), after)).find("parked"), std::string::npos);
  after.list.leases[0].standing = wire::Standing::kParked;
  after.list.leases[0].standing_s = 8 * 3600;
  after.list.leases[0].memory_parked_bytes = {14ull << 30};
  const std::string text = top_text(rates_between(at(1), after));
  EXPECT_NE(text.find("\nlease 3: parked 14.0 GiB for 8h00m, tendril run\n"), std::string::npos)
      << text;
}

TEST(Top, AServerThatIsGoneIsOneLine) {
  ServerView after = at(0);
  after.status = base::Status(base::Code::kUnavailable, "nobody there");
  EXPECT_EQ(top_text(rates_between(at(1), after)), "rack7:7433: nobody there\n");
}

TEST(Top, Counts) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999.4), "999");
  EXPECT_EQ(count_text(999.6), "1.0k");
  EXPECT_EQ(count_text(999'949), "999.9k");
  EXPECT_EQ(count_text(999'951), "1.0M");
}

}  // namespace
}  // namespace tendril::view

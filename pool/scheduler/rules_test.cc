// SPDX-License-Identifier: Apache-2.0
// The scheduler with policies: who may ask, limits of leases that run, changes of the policy, and
// what the answers to commands contain.
#include <gtest/gtest.h>

#include <set>

#include "pool/scheduler/test_world.h"
#include "view/picture.h"

namespace tendril::pool {
namespace {

const char kPolicy[] = R"(
[pool]
name = "lab"
timezone = "UTC"

[[gpu_class]]
name = "top"
match = 'model ~ "H200"'

[[account]]
name = "vision"
quota = { top = 1 }
[[account]]
name = "nlp"
quota = { top = 1 }

[[user_class]]
name = "interactive"
gpu_classes = ["top"]
priority = 100
max_wall = "8h"
idle_timeout = "30m"
idle_unused_timeout = "10m"
idle_action = ["warn", "end"]
idle_grace = "5m"
[[user_class]]
name = "batch"
gpu_classes = ["top"]
max_wall = "1h"

[[assignment]]
match = 'user = "ann"'
account = "vision"
user_classes = ["interactive", "batch"]
[[assignment]]
match = 'user = "bob"'
account = "nlp"
user_classes = ["batch"]
)";

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class WithPolicy : public testing::Test {
 protected:
  void SetUp() override {
    server = &world.add("gpu1", 2);
    world.settle();
    const std::string answer = world.command("apply", {}, kPolicy);
    ASSERT_TRUE(has(answer, "\"policy_revision\":1")) << answer;
    world.pass(3);
  }
  wire::BookEntry& entry(uint64_t client) {
    return server->book.at(world.answer(client)->reply.parts[0].lease_id);
  }
  std::vector<wire::Order> told(wire::OrderKind kind) {
    std::vector<wire::Order> orders;
    for (const wire::Order& order : server->seen) {
      if (order.kind == kind) orders.push_back(order);
    }
    return orders;
  }

  TestWorld world;
  TestServer* server = nullptr;
};

TEST_F(WithPolicy, ServersGetItsText) {
  EXPECT_EQ(server->policy_revision, 1u);
  EXPECT_EQ(world.scheduler->policy_text(), kPolicy);
  EXPECT_TRUE(has(world.command("show"), "\"default\":false"));
}

TEST_F(WithPolicy, ABadOneChangesNothing) {
  const std::string answer = world.command("apply", {}, "[[account]]\nname = 7\n");
  EXPECT_TRUE(has(answer, "2:") || has(answer, "line 2")) << answer;
  EXPECT_EQ(world.scheduler->policy_revision(), 1u);
}

TEST_F(WithPolicy, WhoIsInNoAccountIsRefused) {
  const uint64_t client = world.ask("eve", 1, 1);
  world.settle();
  ASSERT_NE(world.answer(client), nullptr);
  EXPECT_EQ(world.answer(client)->status.code(), base::Code::kRefused);
  EXPECT_EQ(world.answer(client)->status.message().rfind("Account: no assignment ", 0), 0u)
      << world.answer(client)->status.message();
}

TEST_F(WithPolicy, TheGrantNamesAccountAndClass) {
  const uint64_t client = world.ask("ann", 1, 1);
  world.settle();
  ASSERT_NE(world.answer(client), nullptr);
  EXPECT_EQ(entry(client).account, "vision");
  EXPECT_EQ(entry(client).user_class, "interactive");
  const std::string status = world.command("status");
  EXPECT_TRUE(has(status, "\"used\":{\"top\":1}"));
  EXPECT_TRUE(has(status, "\"fair_share_gpus\":1,")) << status;
}

TEST_F(WithPolicy, OnlyALeaseThatSomebodyLooksAtIsCounted) {
  world.start("ann", 1, 0.5);
  world.start("bob", 1, 0.5);
  view::Picture picture = world.scheduler->picture(world.now);
  ASSERT_EQ(picture.leases.size(), 2u);
  EXPECT_FALSE(picture.leases[0].use.counts_calls);
  const uint64_t lease = picture.leases[0].id;
  world.scheduler->watch(lease, world.now);
  world.scheduler->watch(lease + 1000, world.now);  // there is none
  world.pass(5);
  EXPECT_EQ(server->watched.size(), 1u);
  picture = world.scheduler->picture(world.now);
  EXPECT_TRUE(picture.leases[0].use.counts_calls);
  EXPECT_EQ(picture.leases[0].use.calls, 70u);
  EXPECT_EQ(picture.leases[0].use.round_trips, 7u);
  EXPECT_EQ(picture.leases[0].use.bytes_in, 30u);
  EXPECT_EQ(picture.leases[0].links, "shm");
  EXPECT_FALSE(picture.leases[1].use.counts_calls);
  // Nobody looks any more.
  world.pass(30);
  EXPECT_TRUE(server->watched.empty());
  EXPECT_FALSE(world.scheduler->picture(world.now).leases[0].use.counts_calls);
}

TEST_F(WithPolicy, APictureSaysWhatIsParkedAndSinceWhen) {
  const uint64_t client = world.start("ann", 1, 0.5);
  constexpr uint64_t kGb = 1ull << 30;
  entry(client).memory_used_bytes = 3 * kGb;
  world.pass(3);
  view::Picture picture = world.scheduler->picture(world.now);
  ASSERT_EQ(picture.leases.size(), 1u);
  EXPECT_EQ(picture.leases[0].standing, "granted");
  EXPECT_EQ(picture.leases[0].standing_since_at, view::kNoMoment);
  EXPECT_EQ(picture.servers[0].gpus[0].given_millionths, 500'000u);
  entry(client).standing = wire::Standing::kParked;
  entry(client).stays_bytes = {kGb};
  world.pass(3);
  picture = world.scheduler->picture(world.now);
  EXPECT_EQ(picture.leases[0].standing, "parked");
  EXPECT_NEAR(double(picture.leases[0].standing_since_at), double(world.now.wall_s), 4);
  EXPECT_EQ(picture.leases[0].use.memory_parked_bytes, 2 * kGb);
  EXPECT_EQ(picture.servers[0].gpus[0].given_millionths, 0u) << "it holds no share";
  EXPECT_EQ(picture.servers[0].gpus[0].memory_promised_bytes, kGb);
  // The next scheduler does not know since when.
  world.begin(2);
  world.pass(3);
  picture = world.scheduler->picture(world.now);
  EXPECT_EQ(picture.leases[0].standing, "parked");
  EXPECT_EQ(picture.leases[0].standing_since_at, view::kNoMoment);
}

TEST_F(WithPolicy, ALeaseIsParkedAndWokenByHand) {
  const uint64_t client = world.start("ann", 1, 0.5);
  const std::string lease = std::to_string(world.answer(client)->reply.lease_id);
  world.pass(3);
  EXPECT_TRUE(has(world.command("park", {lease}), "\"lease\":" + lease));
  world.pass(3);
  ASSERT_EQ(told(wire::OrderKind::kPark).size(), 1u);
  EXPECT_EQ(told(wire::OrderKind::kPark)[0].lease_id,
            world.answer(client)->reply.parts[0].lease_id);
  EXPECT_TRUE(told(wire::OrderKind::kWake).empty());
  world.command("wake", {lease});
  world.pass(3);
  EXPECT_EQ(told(wire::OrderKind::kWake).size(), 1u);
  EXPECT_FALSE(has(world.command("park", {"4711"}), "\"lease\""));
}

// "ann" may have one GPU. While her lease is parked, she gets another one.
class WithALimit : public WithPolicy {
 protected:
  void SetUp() override {
    WithPolicy::SetUp();
    std::string policy = kPolicy;
    const std::string grace = "idle_grace = \"5m\"";
    policy.replace(policy.find(grace), grace.size(), grace + "\nmax_per_user = { gpus = 1 }");
    const std::string answer = world.command("apply", {}, policy.c_str());
    ASSERT_TRUE(has(answer, "\"policy_revision\":2")) << answer;
  }
  uint64_t start_and_park(double share) {
    const uint64_t client = world.start("ann", 1, share);
    entry(client).standing = wire::Standing::kParked;
    entry(client).stays_bytes = {0};
    world.pass(3);
    return client;
  }
  std::string number(uint64_t client) {
    return std::to_string(world.answer(client)->reply.lease_id);
  }
};

TEST_F(WithALimit, AParkedLeaseWakesWithoutAskingWhileItsUserHasRoom) {
  const uint64_t first = start_and_park(0.6);
  ASSERT_EQ(told(wire::OrderKind::kMayWake).size(), 1u);
  EXPECT_TRUE(told(wire::OrderKind::kAskToWake).empty());
  world.start("ann", 1, 0.3);
  world.pass(3);
  EXPECT_TRUE(told(wire::OrderKind::kAskToWake).empty()) << "0.9 of 1";
  // With this one it would be 1.2: from now on it asks.
  world.ask("ann", 1, 0.3);
  world.settle();
  ASSERT_EQ(told(wire::OrderKind::kAskToWake).size(), 1u) << "before that one has started";
  EXPECT_EQ(told(wire::OrderKind::kAskToWake)[0].lease_id, entry(first).lease_id);
  // The next scheduler tells it again.
  world.begin(2);
  world.pass(5);
  EXPECT_EQ(told(wire::OrderKind::kAskToWake).size(), 2u);
}

TEST_F(WithALimit, AParkedLeaseThatWakesWaitsForTheLimitOfItsUser) {
  const uint64_t first = start_and_park(0.8);
  const uint64_t second = world.start("ann", 1, 0.7);
  ASSERT_TRUE(world.answer(second)->status.ok());
  world.pass(3);
  entry(first).wants_wake = true;
  world.pass(30);
  EXPECT_EQ(entry(first).standing, wire::Standing::kParked);
  const std::vector<wire::Order> notices = told(wire::OrderKind::kNotice);
  ASSERT_EQ(notices.size(), 1u) << "once";
  EXPECT_EQ(notices[0].text,
            "it stays parked until a limit allows it to go on (UserLimit: ann has 0.7 of at most "
            "1.0 GPUs in class interactive)");
  // Its owner cannot order it either.
  const std::string by_owner = [&] {
    const uint64_t connection = world.next_connection++;
    world.scheduler->command(connection, TestWorld::who("ann"), {"wake", {number(first)}, ""},
                             world.now);
    world.settle();
    return world.commanded.at(connection).status.message();
  }();
  EXPECT_TRUE(has(by_owner, "cannot wake now: UserLimit: ann has 0.7 of at most 1.0")) << by_owner;
  server->end(world.answer(second)->reply.parts[0].lease_id, "done");
  world.pass(2);
  EXPECT_EQ(entry(first).standing, wire::Standing::kReturning);
  // It counts again: the next one waits.
  const uint64_t third = world.ask("ann", 1, 0.7);
  world.pass(3);
  EXPECT_EQ(world.answer(third), nullptr);
}

// What it was let have is its own from that moment on, not from when its server says so.
TEST_F(WithALimit, WhoWasLetWakeCountsAtOnce) {
  const uint64_t first = start_and_park(0.8), second = start_and_park(0.8);
  world.pass(3);
  entry(first).wants_wake = entry(second).wants_wake = true;
  world.pass(10);
  const bool one = entry(first).standing == wire::Standing::kReturning;
  const bool other = entry(second).standing == wire::Standing::kReturning;
  EXPECT_NE(one, other);
  // An administrator may let the other one pass the limit.
  const uint64_t left = one ? second : first;
  EXPECT_TRUE(has(world.command("wake", {number(left)}), "\"lease\""));
  world.pass(3);
  EXPECT_EQ(told(wire::OrderKind::kWake).size(), 1u);
}

TEST_F(WithALimit, MemoryOfALeaseGrowsWithinLimitsAndRoom) {
  const uint64_t usable = server->facts.gpus[0].memory_usable_bytes;
  ASSERT_NE(usable, 0u);
  const uint64_t first = world.start("ann", 1, 0.2), second = world.start("ann", 1, 0.2);
  const auto change = [&](double part) {
    const auto bytes = uint64_t(double(usable) * part) >> 20;
    return world.command("change", {number(first), "memory=" + std::to_string(bytes) + "M"});
  };
  EXPECT_EQ(change(0.5), "{\"lease\":" + number(first) + "}");
  EXPECT_NEAR(double(entry(first).slices[0].memory_bytes), double(usable) / 2, double(usable) / 50);
  // With this it would count as 0.9, beside 0.2.
  const std::string refused = change(0.9);
  EXPECT_TRUE(has(refused, "cannot have ")) << refused;
  EXPECT_TRUE(has(refused, "UserLimit: ann has ")) << refused;
  EXPECT_TRUE(has(refused, "of at most 1.0 GPUs in class interactive")) << refused;
  EXPECT_TRUE(has(world.command("change", {number(first), "memory=lots"}), "lots"));
  // A server that cannot take it away says so to who asked.
  server->refuses_changes = true;
  EXPECT_EQ(change(0.1), "others have it");
  server->refuses_changes = false;
  server->end(world.answer(second)->reply.parts[0].lease_id, "done");
  world.pass(3);
  EXPECT_EQ(change(0.9), "{\"lease\":" + number(first) + "}");
  EXPECT_NEAR(double(entry(first).slices[0].memory_bytes), 0.9 * double(usable),
              double(usable) / 50);
  entry(first).standing = wire::Standing::kParked;
  world.pass(3);
  EXPECT_TRUE(has(change(0.5), "is parked; wake it first"));
}

TEST_F(WithPolicy, AnIdleLeaseIsWarnedAndEnded) {
  const uint64_t client = world.start("ann", 1, 1);
  const uint64_t lease = world.answer(client)->reply.parts[0].lease_id;
  server->book.at(lease).was_attached = true;
  server->book.at(lease).idle_ns = 0;
  world.pass(29 * 60);
  EXPECT_TRUE(told(wire::OrderKind::kNotice).empty());
  world.pass(2 * 60);
  ASSERT_EQ(told(wire::OrderKind::kNotice).size(), 1u);
  EXPECT_EQ(told(wire::OrderKind::kNotice)[0].notice, wire::NoticeKind::kWarning);
  EXPECT_EQ(server->book.count(lease), 1u);
  world.pass(5 * 60);
  EXPECT_EQ(server->book.count(lease), 0u);
  ASSERT_EQ(told(wire::OrderKind::kEnd).size(), 1u);
  EXPECT_FALSE(told(wire::OrderKind::kEnd)[0].text.empty());
  EXPECT_EQ(world.scheduler->counts().leases, 0u);
}

// While it was small another lease of its user was given what it had. So it stays small until that
// one has ended, and its holder hears why.
TEST_F(WithPolicy, AShrunkLeaseGetsItsShareBackWithinItsUsersLimit) {
  std::string policy = kPolicy;
  const std::string ends = "idle_action = [\"warn\", \"end\"]\nidle_grace = \"5m\"";
  policy.replace(policy.find(ends), ends.size(),
                 "idle_action = [\"warn\", \"shrink\"]\nidle_grace = \"5m\"\n"
                 "max_per_user = { gpus = 1 }");
  const std::string answer = world.command("apply", {}, policy.c_str());
  ASSERT_TRUE(has(answer, "\"policy_revision\":2")) << answer;
  const uint64_t first = world.start("ann", 1, 0.8);
  wire::BookEntry& idle = entry(first);
  idle.was_attached = true;
  idle.idle_ns = 0;
  world.pass(40 * 60);
  ASSERT_EQ(idle.slices[0].share_millionths, 200'000u);
  const uint64_t second = world.start("ann", 1, 0.7);
  ASSERT_TRUE(world.answer(second)->status.ok());
  idle.idle_ns = 0;
  world.pass(60);
  EXPECT_EQ(idle.slices[0].share_millionths, 200'000u);
  ASSERT_FALSE(told(wire::OrderKind::kNotice).empty());
  EXPECT_EQ(told(wire::OrderKind::kNotice).back().text,
            "it works again and keeps its small share until there is room beside a limit of its "
            "user or account");
  const std::string lease = std::to_string(world.answer(first)->reply.lease_id);
  const std::string by_hand = world.command("change", {lease, "share=0.8"});
  world.pass(10);
  EXPECT_EQ(idle.slices[0].share_millionths, 200'000u) << by_hand;
  const size_t notices = told(wire::OrderKind::kNotice).size();
  server->refuses_changes = true;  // it granted something by itself meanwhile
  server->end(world.answer(second)->reply.parts[0].lease_id, "done");
  world.pass(10);
  EXPECT_EQ(idle.slices[0].share_millionths, 200'000u);
  server->refuses_changes = false;
  world.pass(10);
  EXPECT_EQ(idle.slices[0].share_millionths, 800'000u);
  EXPECT_EQ(told(wire::OrderKind::kNotice).size(), notices);
  EXPECT_EQ(told(wire::OrderKind::kChange).back().text, "it has what it had before");
}

// One line with the time of the reclaim, and no new one for every second that it moves.
TEST_F(WithPolicy, AReclaimIsForetoldOnce) {
  world.start("bob", 1, 1);
  world.start("bob", 1, 1);
  const uint64_t client = world.ask("ann", 1, 1);
  world.pass(2);
  ASSERT_FALSE(world.news[client].empty());
  const wire::News first = world.news[client].back();
  EXPECT_EQ(first.reason.rfind("Quota: vision holds 0.0 of 1.0 top, 1.0 lent to nlp; those are "
                               "reclaimed at 22:",
                               0),
            0u)
      << first.reason;
  EXPECT_EQ(first.start.rfind("between 22:", 0), 0u) << first.start;
  EXPECT_TRUE(has(world.command("queue"), "\"reclaimed_at\":17000"));
  world.news[client].clear();
  std::set<std::string> starts, reasons;
  world.pass(9 * 60);
  for (const wire::News& news : world.news[client]) {
    starts.insert(news.start);
    reasons.insert(news.reason);
  }
  EXPECT_EQ(reasons.size(), 1u) << *reasons.rbegin();
  EXPECT_EQ(starts.size(), 1u) << *starts.rbegin();
  EXPECT_TRUE(told(wire::OrderKind::kNotice).empty());
  world.pass(2 * 60);
  EXPECT_EQ(told(wire::OrderKind::kNotice).size(), 1u);
  world.pass(3 * 60);
  ASSERT_NE(world.answer(client), nullptr);
  EXPECT_TRUE(world.answer(client)->status.ok());
  for (const wire::News& news : world.news[client]) reasons.insert(news.reason);
  EXPECT_LE(reasons.size(), 2u);
}

TEST_F(WithPolicy, UnknownUseCountsAsActive) {
  const uint64_t client = world.start("ann", 1, 1);
  server->book.at(world.answer(client)->reply.parts[0].lease_id).was_attached = true;
  world.pass(60 * 60);
  EXPECT_TRUE(told(wire::OrderKind::kNotice).empty());
}

TEST_F(WithPolicy, TheLongestTimeEndsALeaseUnderAnotherSchedulerToo) {
  wire::PoolWish wish;
  wish.user_class = "batch";
  world.start("ann", 1, 1, wish);
  server->book.begin()->second.was_attached = true;
  world.pass(30 * 60);
  world.begin(2);
  world.pass(24 * 60);
  EXPECT_TRUE(told(wire::OrderKind::kNotice).empty());
  world.pass(2 * 60);
  EXPECT_EQ(told(wire::OrderKind::kNotice).size(), 1u);
  EXPECT_EQ(server->book.size(), 1u);
  world.pass(5 * 60);
  EXPECT_TRUE(server->book.empty());
}

// What a silent server could not tell the holder counts from when it was told.
// The wall's clock of the new scheduler is twenty minutes behind, and the server comes late.
TEST_F(WithPolicy, ASilentServerSaysHowLongItsLeasesHaveRun) {
  wire::PoolWish wish;
  wish.user_class = "batch";
  world.start("ann", 1, 1, wish);
  server->book.begin()->second.was_attached = true;
  world.pass(30 * 60);
  server->reachable = false;
  world.now.wall_s -= 20 * 60;
  world.begin(2);
  world.pass(30);
  server->reachable = true;
  world.pass(24 * 60);
  EXPECT_TRUE(told(wire::OrderKind::kNotice).empty());
  world.pass(2 * 60);
  EXPECT_EQ(told(wire::OrderKind::kNotice).size(), 1u);
  world.pass(5 * 60);
  EXPECT_TRUE(server->book.empty());
}

TEST_F(WithPolicy, AWarningThatIsHeardLateLastsAsLong) {
  wire::PoolWish wish;
  wish.user_class = "batch";
  world.start("ann", 1, 1, wish);
  server->book.begin()->second.was_attached = true;
  world.pass(54 * 60);
  server->reachable = false;
  world.pass(3 * 60);
  world.cut(*server);
  server->reachable = true;
  world.pass(3 * 60 + 30);
  EXPECT_EQ(told(wire::OrderKind::kNotice).size(), 1u);
  EXPECT_EQ(server->book.size(), 1u) << "its longest time is over, but it was warned late";
  world.pass(60);
  EXPECT_TRUE(server->book.empty());
}

TEST_F(WithPolicy, APolicyOutlivesTheScheduler) {
  world.begin(2);
  world.pass(3);
  EXPECT_EQ(world.scheduler->policy_revision(), 1u);
  EXPECT_EQ(world.scheduler->policy_text(), kPolicy);
}

TEST_F(WithPolicy, MovesQuota) {
  const std::string answer = world.command("move", {"vision", "nlp", "top=0.5"});
  EXPECT_TRUE(has(answer, "\"policy_revision\":2")) << answer;
  world.pass(2);
  EXPECT_TRUE(has(world.command("status"), "\"quota\":{\"top\":1.5}"));
  EXPECT_TRUE(has(world.command("move", {"vision", "nlp", "top=x"}), "CLASS=GPUS"));
}

TEST_F(WithPolicy, ADryRunTellsAndChangesNothing) {
  world.start("ann", 1, 1);
  std::string other = kPolicy;
  const size_t at = other.find("\"vision\"\nquota");
  other.replace(at, 8, "\"sight\"");
  for (size_t next = other.find("\"vision\""); next != std::string::npos;
       next = other.find("\"vision\"")) {
    other.replace(next, 8, "\"sight\"");
  }
  const std::string answer = world.command("dry-run", {}, other);
  EXPECT_TRUE(has(answer, "\"changes\":[")) << answer;
  EXPECT_TRUE(has(answer, "its account or class is gone")) << answer;
  EXPECT_EQ(world.scheduler->policy_revision(), 1u);
  EXPECT_EQ(server->book.size(), 1u);
}

TEST_F(WithPolicy, AccountingSaysWhatWasAskedAndUsed) {
  world.start("ann", 1, 0.5);
  wire::BookEntry& lease = server->book.begin()->second;
  lease.was_attached = true;
  lease.used_ns = 5'000'000'000;
  lease.idle_total_ns = 2'000'000'000;
  world.pass(5);
  server->end(lease.lease_id, "the program ended");
  world.pass(5);
  std::string record;
  for (const auto& [key, value] : world.store) {
    if (key.compare(0, 5, "used/") == 0) record = value;
  }
  EXPECT_TRUE(has(record, "\"owner\":\"ann\"")) << record;
  EXPECT_TRUE(has(record, "\"account\":\"vision\"")) << record;
  EXPECT_TRUE(has(record, "\"used_ns\":5000000000")) << record;
  EXPECT_TRUE(has(record, "\"idle_ns\":2000000000")) << record;
  EXPECT_TRUE(has(record, "\"share_millionths\":500000")) << record;
  EXPECT_TRUE(has(record, "\"exact\":true")) << record;
}

// A server started again. It kept what ended before and nobody had stored: a lease of the pool, and
// one that it lent by itself.
TEST_F(WithPolicy, WhatAServerKeptOverARestartIsRecordedOnce) {
  world.start("ann", 1, 1);
  const wire::BookEntry running = server->book.begin()->second;
  world.cut(*server);
  const uint64_t earlier = server->boot;
  const int64_t ended_s = world.now.wall_s + 3;
  world.now.monotonic_ns += 60'000'000'000;
  world.now.wall_s += 60;
  server->restart();
  const auto kept = [&](wire::BookEntry entry, uint64_t lease_id, uint64_t used_ns) {
    entry.lease_id = lease_id;
    entry.phase = wire::LeasePhase::kEnded;
    entry.boot = earlier;
    entry.was_attached = true;
    entry.used_ns = used_ns;
    entry.age_ns = 2'000'000'000;
    entry.ended_s = ended_s;
    entry.why = "the program ended";
    entry.ended_number = ++server->ended_count;
    server->ended.push_back(entry);
  };
  kept(running, running.lease_id, 700);
  wire::BookEntry local = running;
  local.pool_lease_id = 0;
  kept(local, running.lease_id + 1, 900);
  server->next_lease = running.lease_id + 2;
  world.pass(20);
  EXPECT_TRUE(server->ended.empty()) << "the server may forget them";
  std::string records;
  size_t found = 0;
  for (const auto& [key, value] : world.store) {
    if (key.compare(0, 5, "used/") != 0) continue;
    ++found;
    records += key + " " + value + "\n";
    EXPECT_TRUE(has(value, "\"exact\":true")) << value;
    EXPECT_TRUE(has(value, "\"ended_at\":" + std::to_string(ended_s))) << value;
    EXPECT_TRUE(has(value, "\"account\":\"vision\"")) << value;
  }
  EXPECT_EQ(found, 2u) << records;
  EXPECT_TRUE(has(records, "\"used_ns\":700")) << records;
  EXPECT_TRUE(has(records, "\"used_ns\":900")) << records;
}

TEST_F(WithPolicy, MaintenanceEndsWhatRuns) {
  world.start("ann", 1, 1);
  EXPECT_TRUE(has(world.command("maintenance", {"gpu1", "+20m", "+2h", "new", "fans"}),
                  "\"why\":\"new fans\""));
  world.pass(16 * 60);
  ASSERT_EQ(told(wire::OrderKind::kNotice).size(), 1u);
  world.pass(5 * 60);
  EXPECT_TRUE(server->book.empty());
  EXPECT_TRUE(has(world.command("maintenance", {"gpu1", "none"}), "\"maintenance\":[]"));
}

TEST_F(WithPolicy, AQueueHasTheKeysThatAreDocumented) {
  world.start("ann", 2, 1);
  world.ask("bob", 1, 1);
  world.pass(2);
  const std::string queue = world.command("queue");
  for (const char* key :
       {"request",       "place",       "of",       "queue",    "owner",  "account", "user_class",
        "program",       "host",        "slices",   "share",    "filter", "reason",  "numbers",
        "start_from_at", "start_to_at", "promised", "waited_s", "state",  "present"}) {
    EXPECT_TRUE(has(queue, '"' + std::string(key) + "\":")) << key << " in " << queue;
  }
  EXPECT_TRUE(has(queue, "\"account\":\"nlp\"")) << queue;
}

TEST_F(WithPolicy, ARefusalNamesTheFilterAndNothingElse) {
  wire::PoolWish wish;
  wish.filter = "label.room = attic";
  wish.apis.push_back({"cuda", 17});
  server->facts.apis = wish.apis;
  world.cut(*server);
  world.pass(3);
  const uint64_t client = world.ask("ann", 1, 1, wish);
  world.pass(1);
  ASSERT_NE(world.answer(client), nullptr);
  const std::string text = world.answer(client)->status.message();
  EXPECT_TRUE(has(text, "label.room = attic")) << text;
  EXPECT_FALSE(has(text, "cuda")) << text;
}

TEST_F(WithPolicy, WhoCanNeverStartAnyMoreIsToldSo) {
  EXPECT_TRUE(has(world.command("label", {"gpu1", "room=cellar"}), "cellar"));
  world.start("ann", 2, 1);
  wire::PoolWish wish;
  wish.filter = "label.room = cellar";
  const uint64_t second = world.ask("bob", 1, 1, wish);
  world.pass(3);
  EXPECT_EQ(world.answer(second), nullptr);
  world.command("label", {"gpu1", "room="});
  world.pass(5);
  ASSERT_NE(world.answer(second), nullptr);
  EXPECT_EQ(world.answer(second)->status.code(), base::Code::kRefused);
}

TEST_F(WithPolicy, LabelsAreFacts) {
  EXPECT_TRUE(has(world.command("label", {"gpu1", "room=cellar"}), "\"room\":\"cellar\""));
  wire::PoolWish wish;
  wish.filter = "label.room = attic";
  const uint64_t attic = world.ask("ann", 1, 1, wish);
  wish.filter = "label.room = cellar";
  const uint64_t cellar = world.ask("ann", 1, 1, wish);
  world.pass(1);
  ASSERT_NE(world.answer(cellar), nullptr);
  EXPECT_TRUE(world.answer(cellar)->status.ok());
  const Effects::ToClient* none = world.answer(attic);
  EXPECT_TRUE(none == nullptr || !none->status.ok());
}

}  // namespace
}  // namespace tendril::pool

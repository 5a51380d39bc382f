// SPDX-License-Identifier: Apache-2.0
// The scheduler in a small world that each test scripts: from requests to grants, what fails on the
// way, silence, other schedulers.
#include "pool/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include "pool/accounting/history.h"
#include "pool/accounting/used_record.h"
#include "pool/scheduler/test_world.h"

namespace tendril::pool {
namespace {

size_t stored(const TestWorld& world, const std::string& prefix) {
  size_t count = 0;
  for (const auto& [key, value] : world.store) count += key.compare(0, prefix.size(), prefix) == 0;
  return count;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

wire::PoolWish keyed(char key) {
  wire::PoolWish wish;
  wish.request_key = std::string(wire::kRequestKeyBytes, key);
  return wish;
}

TEST(Scheduler, GrantsWhatIsFree) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 2);
  world.settle();
  const uint64_t client = world.ask("ann", 2, 0.5);
  world.settle();
  const Effects::ToClient* answer = world.answer(client);
  ASSERT_NE(answer, nullptr);
  ASSERT_TRUE(answer->status.ok()) << answer->status.message();
  ASSERT_EQ(answer->reply.parts.size(), 1u);
  const wire::LeasePart& part = answer->reply.parts[0];
  EXPECT_EQ(part.server, "gpu1");
  EXPECT_EQ(part.endpoint, "gpu1:7433");
  EXPECT_EQ(part.slices.size(), 2u);
  EXPECT_EQ(part.secret, "secret " + std::to_string(part.lease_id));
  EXPECT_EQ(server.book.at(part.lease_id).phase, wire::LeasePhase::kCommitted);
  EXPECT_EQ(server.book.at(part.lease_id).owner_id, "ann");
  EXPECT_EQ(stored(world, "pool/grant/"), 1u);
  EXPECT_EQ(stored(world, "pool/request/"), 0u);

  world.claim(client);
  server.end(part.lease_id, "the program ended");
  world.pass(5);
  EXPECT_EQ(stored(world, "pool/grant/"), 0u);
  EXPECT_EQ(stored(world, "used/"), 1u);
  EXPECT_TRUE(server.ended.empty());
  EXPECT_EQ(world.scheduler->counts().leases, 0u);
}

TEST(Scheduler, ANewPoolWaitsForItsFirstServer) {
  TestWorld world;
  const uint64_t early = world.ask("ann", 1, 1);
  world.pass(2);
  EXPECT_EQ(world.answer(early), nullptr);
  ASSERT_FALSE(world.news[early].empty());
  EXPECT_NE(world.news[early].back().text.find("still reporting"), std::string::npos);
  world.add("gpu1", 1);
  world.pass(1);
  ASSERT_NE(world.answer(early), nullptr);
  EXPECT_TRUE(world.answer(early)->status.ok()) << world.answer(early)->status.message();

  TestWorld empty;
  const uint64_t hopeless = empty.ask("ann", 1, 1);
  empty.pass(11);
  ASSERT_NE(empty.answer(hopeless), nullptr);
  EXPECT_FALSE(empty.answer(hopeless)->status.ok());
}

TEST(Scheduler, AGangIsGrantedWholeOrNotAtAll) {
  TestWorld world;
  TestServer& one = world.add("gpu1", 1);
  TestServer& two = world.add("gpu2", 1);
  world.settle();
  two.refuses_commits = true;
  const uint64_t client = world.ask("ann", 2, 1);
  world.settle();
  EXPECT_EQ(world.answer(client), nullptr);
  EXPECT_TRUE(one.book.empty());
  EXPECT_TRUE(two.book.empty());
  EXPECT_EQ(stored(world, "pool/request/"), 1u);
  EXPECT_EQ(stored(world, "pool/grant/"), 0u);
  two.refuses_commits = false;
  world.pass(60);
  ASSERT_NE(world.answer(client), nullptr);
  EXPECT_EQ(world.answer(client)->reply.parts.size(), 2u);
}

// The other parts of a gang do not stay, whoever ended the first one and whether anybody heard it.
TEST(Scheduler, AGangThatLostAPartEnds) {
  for (const bool with_another_scheduler : {false, true}) {
    TestWorld world;
    world.add("gpu1", 1);
    TestServer& two = world.add("gpu2", 1);
    world.settle();
    const uint64_t client = world.start("ann", 2, 1);
    ASSERT_EQ(world.answer(client)->reply.parts.size(), 2u);
    const wire::LeasePart part = world.answer(client)->reply.parts[1];
    TestServer& one = *world.servers.at(part.server);
    TestServer& other = &one == &two ? *world.servers.at("gpu1") : two;
    one.end(part.lease_id, "not claimed");
    if (with_another_scheduler) world.begin(2);
    const size_t orders = other.seen.size();
    world.pass(4);
    EXPECT_EQ(other.seen.size(), orders) << "it may be ending by itself";
    world.pass(4);
    ASSERT_EQ(other.seen.size(), orders + 1);
    EXPECT_EQ(other.seen.back().kind, wire::OrderKind::kNotice);
    EXPECT_EQ(other.seen.back().in_s, 30u);
    EXPECT_NE(other.seen.back().text.find("lost a part: "), std::string::npos);
    world.pass(25);
    EXPECT_EQ(other.book.size(), 1u);
    world.pass(8);
    EXPECT_TRUE(other.book.empty());
    EXPECT_EQ(world.scheduler->counts().leases, 0u);
    EXPECT_EQ(stored(world, "used/"), 2u);
  }
}

TEST(Scheduler, ALossBeforeTheAnswerWasHeardEndsNoLaterLease) {
  for (const bool with_another_scheduler : {false, true}) {
    TestWorld world;
    for (const char* name : {"gpu1", "gpu2", "gpu3"}) world.add(name, 1);
    world.settle();
    const uint64_t first = world.ask("ann", 2, 1, keyed('g'));
    world.settle();
    ASSERT_NE(world.answer(first), nullptr);
    TestServer& lost = *world.servers.at(world.answer(first)->reply.parts[1].server);
    lost.restart();
    world.cut(lost);
    world.settle();
    if (with_another_scheduler) world.begin(2);
    const uint64_t again = world.ask("ann", 2, 1, keyed('g'));
    world.pass(with_another_scheduler ? 60 : 5);  // it waits for the lost server
    ASSERT_NE(world.answer(again), nullptr);
    ASSERT_EQ(world.answer(again)->reply.parts.size(), 2u) << world.answer(again)->status.message();
    world.claim(again);
    world.pass(60);
    EXPECT_EQ(world.scheduler->counts().leases, 1u);
    EXPECT_EQ(world.held_on("gpu1") + world.held_on("gpu2") + world.held_on("gpu3"), 2u);
  }
}

// Its grace begins when its server has passed the notice on.
TEST(Scheduler, AGangThatHearsLateOfItsLossHasAllItsGrace) {
  TestWorld world;
  TestServer& one = world.add("gpu1", 1);
  TestServer& two = world.add("gpu2", 1);
  world.settle();
  world.start("ann", 2, 1);
  for (TestServer* server : {&one, &two}) {
    server->reachable = false;
    world.cut(*server);
  }
  world.pass(12);
  world.command("forget", {"gpu1"});
  world.pass(20);
  two.reachable = true;
  world.pass(25);
  EXPECT_EQ(two.seen.back().kind, wire::OrderKind::kNotice);
  EXPECT_EQ(world.held_on("gpu2"), 1u) << "it heard of it 25 seconds ago";
  world.pass(8);
  EXPECT_EQ(two.seen.back().kind, wire::OrderKind::kEnd);
  EXPECT_EQ(world.held_on("gpu2"), 0u);
}

TEST(Scheduler, WaitsAndTellsWhy) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 1);
  world.settle();
  const uint64_t first = world.start("ann", 1, 1);
  const uint64_t second = world.ask("bob", 1, 1);
  world.pass(2);
  EXPECT_EQ(world.answer(second), nullptr);
  ASSERT_FALSE(world.news[second].empty());
  const wire::News& news = world.news[second].back();
  EXPECT_EQ(news.place, 1u);
  EXPECT_EQ(news.of, 1u);
  EXPECT_NE(news.queue.find("(account "), std::string::npos);
  EXPECT_EQ(news.reason.compare(0, 9, "Resources"), 0) << news.reason;
  server.end(world.answer(first)->reply.parts[0].lease_id, "done");
  world.pass(5);
  ASSERT_NE(world.answer(second), nullptr);
  EXPECT_TRUE(world.answer(second)->status.ok());
  EXPECT_GE(world.answer(second)->reply.waited_s, 1u);
}

TEST(Scheduler, HearsSoonerOfWhatBecameFreeWhileSomebodyWaits) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 1);
  world.settle();
  world.start("ann", 1, 1);
  world.pass(10);
  const uint64_t calm = server.number;
  world.pass(20);
  EXPECT_NEAR(double(server.number - calm), 20, 1);  // nobody waits: each second
  world.ask("bob", 1, 1);
  world.settle();
  const uint64_t busy = server.number;
  world.pass(20);
  EXPECT_NEAR(double(server.number - busy), 40, 2);  // this world looks twice a second
}

TEST(Scheduler, WhoWillNotWaitIsRefused) {
  TestWorld world;
  world.add("gpu1", 1);
  world.settle();
  const uint64_t first = world.ask("ann", 1, 1);
  world.settle();
  wire::PoolWish wish;
  wish.refuses_wait = true;
  const uint64_t second = world.ask("bob", 1, 1, wish);
  world.settle();
  ASSERT_NE(world.answer(second), nullptr);
  EXPECT_EQ(world.answer(second)->status.code(), base::Code::kUnavailable);
  EXPECT_TRUE(world.answer(first)->status.ok());
  EXPECT_EQ(stored(world, "pool/request/"), 0u);
}

TEST(Scheduler, AClientThatClosesLeavesTheQueue) {
  TestWorld world;
  world.add("gpu1", 1);
  world.settle();
  world.ask("ann", 1, 1);
  world.settle();
  const uint64_t second = world.ask("bob", 1, 1);
  world.settle();
  world.scheduler->left(second, true, world.now);
  world.settle();
  EXPECT_EQ(world.scheduler->counts().waiting, 0u);
  EXPECT_EQ(stored(world, "pool/request/"), 0u);
}

TEST(Scheduler, AClientThatIsCutOffKeepsItsPlaceForAWhile) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 1);
  world.settle();
  const uint64_t first = world.start("ann", 1, 1);
  const uint64_t second = world.ask("bob", 1, 1, keyed('b'));
  world.pass(1);
  const uint64_t third = world.ask("cat", 1, 1, keyed('c'));
  world.pass(1);
  world.scheduler->left(second, false, world.now);
  world.pass(10);
  const uint64_t again = world.ask("bob", 1, 1, keyed('b'));
  world.pass(1);
  server.end(world.answer(first)->reply.parts[0].lease_id, "done");
  world.pass(5);
  ASSERT_NE(world.answer(again), nullptr);
  EXPECT_TRUE(world.answer(again)->status.ok());
  EXPECT_EQ(world.answer(third), nullptr);
  // The same key has the same answer.
  const uint64_t once_more = world.ask("bob", 1, 1, keyed('b'));
  world.settle();
  ASSERT_NE(world.answer(once_more), nullptr);
  EXPECT_EQ(world.answer(once_more)->reply.lease_id, world.answer(again)->reply.lease_id);
  EXPECT_EQ(world.answer(once_more)->reply.parts[0].secret,
            world.answer(again)->reply.parts[0].secret);
  world.scheduler->left(third, false, world.now);
  world.pass(30);
  EXPECT_EQ(world.scheduler->counts().waiting, 0u);
}

TEST(Scheduler, ASilentServerKeepsWhatItHolds) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 1);
  world.settle();
  world.start("ann", 1, 1);
  server.reachable = false;
  world.cut(server);
  world.pass(60);
  EXPECT_EQ(world.scheduler->counts().servers_silent, 1u);
  EXPECT_EQ(world.scheduler->counts().leases, 1u);
  server.reachable = true;
  world.pass(5);
  EXPECT_EQ(world.scheduler->counts().servers_silent, 0u);
  EXPECT_EQ(world.scheduler->counts().leases, 1u);
  server.restart();
  world.cut(server);
  world.pass(5);
  EXPECT_EQ(world.scheduler->counts().leases, 0u);
  EXPECT_EQ(stored(world, "used/"), 1u);
}

TEST(Scheduler, AServerThatIsLostBeforeTheCommitCostsNothing) {
  TestWorld world;
  TestServer& one = world.add("gpu1", 1);
  TestServer& two = world.add("gpu2", 1);
  world.settle();
  two.reachable = false;  // orders are never answered
  const uint64_t client = world.ask("ann", 2, 1);
  world.pass(15);
  EXPECT_EQ(world.answer(client), nullptr);
  EXPECT_TRUE(one.book.empty());
  two.reachable = true;
  world.cut(two);
  world.pass(60);
  ASSERT_NE(world.answer(client), nullptr);
  EXPECT_EQ(world.answer(client)->reply.parts.size(), 2u);
  EXPECT_EQ(two.book.size(), 1u);
}

TEST(Scheduler, AnotherSchedulerGoesOn) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 2);
  world.settle();
  const uint64_t first = world.ask("ann", 1, 1, keyed('a'));
  const uint64_t committed = world.start("dan", 1, 1, keyed('d'));
  world.ask("bob", 1, 1, keyed('b'));
  world.pass(1);
  world.begin(2);
  world.settle();
  EXPECT_EQ(world.scheduler->counts().leases, 2u);
  const uint64_t again = world.ask("bob", 1, 1, keyed('b'));
  const uint64_t same = world.ask("dan", 1, 1, keyed('d'));
  world.pass(2);
  // A grant that nobody claimed has the same answer from the new scheduler.
  ASSERT_NE(world.answer(same), nullptr);
  EXPECT_EQ(world.answer(same)->reply.parts[0].secret,
            world.answer(committed)->reply.parts[0].secret);
  EXPECT_EQ(world.answer(again), nullptr);
  server.end(world.answer(first)->reply.parts[0].lease_id, "done");
  world.pass(5);
  ASSERT_NE(world.answer(again), nullptr);
  EXPECT_TRUE(world.answer(again)->status.ok());
  EXPECT_GE(world.answer(again)->reply.waited_s, 3u);
}

TEST(Scheduler, ALeaseOnASilentServerIsNotLostWithTheScheduler) {
  TestWorld world;
  world.add("gpu1", 1);
  world.add("gpu2", 1);
  world.settle();
  const uint64_t client = world.start("ann", 1, 1);
  const std::string name = world.answer(client)->reply.parts[0].server;
  TestServer& holder = *world.servers.at(name);
  holder.reachable = false;
  world.begin(2);
  world.pass(120);
  EXPECT_EQ(world.scheduler->counts().leases, 1u);
  EXPECT_EQ(world.scheduler->counts().waiting, 0u);
  holder.reachable = true;
  world.pass(5);
  EXPECT_EQ(world.scheduler->counts().leases, 1u);
  EXPECT_TRUE(holder.find(holder.seen.back()) != nullptr);
  holder.end(world.answer(client)->reply.parts[0].lease_id, "done");
  world.pass(5);
  EXPECT_EQ(world.scheduler->counts().leases, 0u);
  EXPECT_EQ(stored(world, "used/"), 1u);
  EXPECT_EQ(stored(world, "pool/grant/"), 0u);
}

// A scheduler that does not know yet whether a lease runs must not free it at once: the order to
// end it may be lost with that scheduler.
TEST(Scheduler, AReleasedLeaseOnASilentServerCountsUntilItEnded) {
  TestWorld world;
  world.add("gpu1", 1);
  world.settle();
  const uint64_t client = world.start("ann", 1, 1);
  TestServer& holder = *world.servers.at("gpu1");
  holder.reachable = false;
  world.begin(2);
  world.pass(1);
  world.command("release", {std::to_string(world.answer(client)->reply.lease_id)});
  EXPECT_EQ(world.scheduler->counts().leases, 1u);
  EXPECT_EQ(world.scheduler->counts().share_given_millionths, 1'000'000u);
  world.begin(3);
  world.pass(60);
  EXPECT_EQ(world.scheduler->counts().leases, 1u);
  EXPECT_EQ(world.scheduler->counts().share_given_millionths, 1'000'000u);
  world.command("release", {std::to_string(world.answer(client)->reply.lease_id)});
  EXPECT_EQ(world.scheduler->counts().share_given_millionths, 1'000'000u);
  holder.reachable = true;
  world.pass(5);
  EXPECT_TRUE(holder.book.empty());
  EXPECT_EQ(world.scheduler->counts().leases, 0u);
  EXPECT_EQ(world.scheduler->counts().share_given_millionths, 0u);
  EXPECT_EQ(stored(world, "used/"), 1u);
}

TEST(Scheduler, AReleaseOutlivesItsScheduler) {
  TestWorld world;
  TestServer& holder = world.add("gpu1", 1);
  world.settle();
  const uint64_t client = world.start("ann", 1, 1, keyed('a'));
  holder.reachable = false;
  world.cut(holder);
  world.pass(15);
  const uint64_t lease = world.answer(client)->reply.lease_id;
  EXPECT_TRUE(has(world.command("release", {std::to_string(lease)}), "\"lease\":"));
  world.begin(2);
  world.pass(30);
  EXPECT_TRUE(has(world.command("status"), "\"state\":\"ending\"")) << world.command("status");
  EXPECT_EQ(world.scheduler->counts().share_given_millionths, 1'000'000u);
  const uint64_t again = world.ask("ann", 1, 1, keyed('a'));
  world.settle();
  ASSERT_NE(world.answer(again), nullptr);
  EXPECT_TRUE(has(world.answer(again)->status.message(), "released by admin"));
  holder.reachable = true;
  world.pass(5);
  EXPECT_TRUE(holder.book.empty());
  EXPECT_EQ(world.scheduler->counts().leases, 0u);
  EXPECT_EQ(stored(world, "pool/grant/"), 0u);
  EXPECT_EQ(stored(world, "used/"), 1u);
}

// The same for a lease that its server granted by itself; numbers of another boot are others.
TEST(Scheduler, AReleaseOfALocalLeaseOutlivesItsScheduler) {
  for (const bool restarts : {false, true}) {
    TestWorld world;
    TestServer& server = world.add("gpu1", 2);
    server.grant(0, 500'000, "eve");
    world.settle();
    server.reachable = false;
    world.cut(server);
    world.pass(15);
    EXPECT_EQ(world.command("release", {"1"}), "{\"lease\":1}");
    EXPECT_EQ(stored(world, "pool/grant/"), 1u);
    world.begin(2);
    world.pass(15);
    EXPECT_EQ(world.scheduler->counts().share_given_millionths, 500'000u);
    if (restarts) {
      server.restart();
      server.next_lease = 1;
      server.grant(1, 250'000, "bob");
    }
    server.reachable = true;
    world.pass(5);
    EXPECT_EQ(server.book.size(), restarts ? 1u : 0u);
    EXPECT_EQ(world.scheduler->counts().leases, restarts ? 1u : 0u);
    EXPECT_EQ(stored(world, "pool/grant/"), 0u);
    EXPECT_EQ(stored(world, "used/"), 1u);
  }
}

// What a server may still hold of an attempt that was given up counts, until the server has
// cancelled it or it has expired there.
TEST(Scheduler, AnAttemptOnASilentServerCountsUntilItExpired) {
  TestWorld world;
  TestServer& one = world.add("gpu1", 1);
  TestServer& two = world.add("gpu2", 1);
  world.settle();
  two.reachable = false;  // its answer is lost on the way
  const uint64_t client = world.ask("ann", 2, 1);
  world.pass(8);
  EXPECT_EQ(world.answer(client), nullptr);
  EXPECT_TRUE(one.book.empty());
  EXPECT_EQ(world.scheduler->counts().share_given_millionths, 1'000'000u);
  world.pass(30);
  EXPECT_EQ(world.scheduler->counts().share_given_millionths, 0u);

  two.reachable = true;
  world.cut(two);
  world.pass(60);
  ASSERT_NE(world.answer(client), nullptr);
  EXPECT_EQ(world.scheduler->counts().share_given_millionths, 2'000'000u);
}

TEST(Scheduler, AnAttemptThatWasCancelledCountsNoLonger) {
  TestWorld world;
  world.add("gpu1", 1);
  TestServer& two = world.add("gpu2", 1);
  world.settle();
  two.refuses_commits = true;
  world.ask("ann", 2, 1);
  world.pass(2);
  EXPECT_EQ(world.scheduler->counts().share_given_millionths, 0u);
}

TEST(Scheduler, WhatEndedWhileNoSchedulerWasThereIsRecordedOnce) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 2);
  world.settle();
  const uint64_t client = world.ask("ann", 1, 1);
  const uint64_t other = world.start("bob", 1, 1);
  world.claim(other);
  server.end(world.answer(client)->reply.parts[0].lease_id, "done");
  world.begin(2);
  world.pass(15);
  EXPECT_EQ(world.scheduler->counts().leases, 1u);
  EXPECT_EQ(stored(world, "used/"), 1u);
  world.begin(3);
  world.pass(15);
  EXPECT_EQ(stored(world, "used/"), 1u);
  EXPECT_TRUE(server.ended.empty());
}

TEST(Scheduler, AStoreThatIsAwayStopsGrantsAndIsTold) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 1);
  world.settle();
  world.store_works = false;
  const uint64_t client = world.ask("ann", 1, 1);
  world.settle();
  world.scheduler->stored(99, base::Status(base::Code::kExhausted, "the disk is full"), world.now);
  world.pass(5);
  EXPECT_EQ(world.answer(client), nullptr);
  ASSERT_FALSE(world.news[client].empty());
  EXPECT_NE(world.news[client].back().text.find("the disk is full"), std::string::npos);
  EXPECT_EQ(world.news[client].back().place, 0u);
  for (const auto& [id, entry] : server.book) {
    EXPECT_EQ(entry.phase, wire::LeasePhase::kHeld);
  }
  world.store_works = true;
  world.pass(20);
  ASSERT_NE(world.answer(client), nullptr);
  EXPECT_TRUE(world.answer(client)->status.ok());
}

// The history's marks of requests that wait.
size_t waiting_marks(const TestWorld& world) {
  size_t rows = 0;
  for (const auto& [key, value] : world.store) {
    HistoryChunk chunk;
    if (key.rfind(keys::kHistoryMarks, 0) != 0) continue;
    EXPECT_TRUE(unpack_chunk(value, &chunk));
    for (const HistoryRow& row : chunk.rows) rows += row.who.server_lease == 0 && !row.last;
  }
  return rows;
}

// The scheduler died after it had taken the request out of the store, and before its last row.
TEST(Scheduler, ARequestWhoseLastRowIsMissingEndsInTheHistory) {
  TestWorld world;
  world.add("gpu1", 1);
  world.settle();
  world.start("ann", 1, 1);
  const uint64_t waits = world.ask("bob", 1, 1);
  world.pass(90);
  EXPECT_EQ(waiting_marks(world), 1u);
  world.scheduler->left(waits, true, world.now);
  world.settle();
  world.begin(2);
  world.pass(120);
  EXPECT_EQ(waiting_marks(world), 1u);
  world.pass(360);
  EXPECT_EQ(waiting_marks(world), 0u);
}

TEST(Scheduler, AdoptsWhatAServerGrantedByItself) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 1);
  const uint64_t lease = server.grant(0, 500'000, "eve");
  world.settle();
  EXPECT_EQ(world.scheduler->counts().leases, 1u);
  const uint64_t client = world.ask("ann", 1, 1);
  world.settle();
  EXPECT_EQ(world.answer(client), nullptr);
  server.end(lease, "done");
  world.pass(5);
  ASSERT_NE(world.answer(client), nullptr);
  EXPECT_EQ(stored(world, "used/"), 1u);
}

TEST(Scheduler, DrainsAndForgets) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 1);
  world.settle();
  EXPECT_NE(world.command("drain", {"gpu1", "new", "disk"}).find("\"draining\":true"),
            std::string::npos);
  const uint64_t client = world.ask("ann", 1, 1);
  world.pass(1);
  EXPECT_EQ(world.answer(client), nullptr);
  world.begin(2);  // it is in the store
  world.pass(3);
  EXPECT_NE(world.command("status").find("\"drain_why\":\"new disk\""), std::string::npos);
  world.command("undrain", {"gpu1"});
  EXPECT_NE(world.command("forget", {"gpu1"}).find("reports to this pool"), std::string::npos);
  server.reachable = false;
  world.cut(server);
  world.pass(12);
  EXPECT_EQ(world.command("forget", {"gpu1"}), "{\"server\":\"gpu1\",\"leases\":0}");
  EXPECT_EQ(world.scheduler->counts().servers, 0u);
  EXPECT_EQ(stored(world, "pool/server/"), 0u);
}

// Found by the simulation, seed 256: it stayed drained for ever.
TEST(Scheduler, AServerThatMissedItsUndrainHearsItWhenItIsBack) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 1);
  world.settle();
  world.command("drain", {"gpu1"});
  world.pass(3);
  EXPECT_TRUE(server.drained);
  for (const bool is_forgotten : {false, true}) {
    server.reachable = false;
    world.cut(server);
    world.command("undrain", {"gpu1"});
    world.pass(12);
    if (is_forgotten) world.command("forget", {"gpu1"});
    server.reachable = true;
    world.pass(3);
    EXPECT_FALSE(server.drained);
    if (!is_forgotten) world.command("drain", {"gpu1"});
    world.pass(3);
  }
}

TEST(Scheduler, ReleasesALease) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 1);
  world.settle();
  const uint64_t client = world.start("ann", 1, 1);
  const uint64_t lease = world.answer(client)->reply.lease_id;
  EXPECT_EQ(world.command("release", {std::to_string(lease)}),
            "{\"lease\":" + std::to_string(lease) + "}");
  world.pass(3);
  EXPECT_TRUE(server.book.empty());
  EXPECT_EQ(world.scheduler->counts().leases, 0u);
}

TEST(Scheduler, WhatIsHeldDoesNotStart) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 1);
  world.settle();
  const uint64_t first = world.start("ann", 1, 1);
  const uint64_t client = world.ask("bob", 1, 1, keyed('h')), other = world.ask("cyd", 1, 1);
  world.pass(6);
  const std::string queue = world.command("queue");
  const std::string number = queue.substr(queue.find("\"request\":") + 10, 4);
  const std::string request = number.substr(0, number.find(','));
  EXPECT_TRUE(has(world.command("hold", {request, "it", "is", "too", "large"}), "\"held\":true"));
  world.pass(6);
  EXPECT_TRUE(has(world.news[client].back().reason, "Schedule: held by admin: it is too large"))
      << world.news[client].back().reason;
  EXPECT_EQ(world.news[other].back().place, 1u);
  // Its owner may not undo what an operator did.
  const auto by_bob = [&](const std::string& verb) {
    const uint64_t connection = world.next_connection++;
    world.scheduler->command(connection, TestWorld::who("bob"), {verb, {request}, ""}, world.now);
    world.settle();
    return world.commanded.at(connection).status.message();
  };
  EXPECT_TRUE(has(by_bob("unhold"), "operators and administrators may change that"));
  server.end(world.answer(first)->reply.parts[0].lease_id, "done");
  world.pass(5);
  EXPECT_EQ(world.answer(client), nullptr);
  ASSERT_NE(world.answer(other), nullptr);
  world.claim(other);
  // Another scheduler knows it, too, when the client comes back.
  world.begin(2);
  world.pass(3);
  const uint64_t again = world.ask("bob", 1, 1, keyed('h'));
  server.end(world.answer(other)->reply.parts[0].lease_id, "done");
  world.pass(15);
  EXPECT_EQ(world.answer(again), nullptr);
  EXPECT_TRUE(has(world.command("unhold", {request}), "\"held\":false"));
  world.pass(3);
  ASSERT_NE(world.answer(again), nullptr);
  EXPECT_TRUE(world.answer(again)->status.ok()) << world.answer(again)->status.message();
  EXPECT_TRUE(has(world.command("hold", {request}), "waits no more"));
}

TEST(Scheduler, AnOwnerMayHoldAndReorderTheirRequests) {
  TestWorld world;
  world.add("gpu1", 1);
  world.settle();
  world.command("apply", {"p"}, "[[user_class]]\nname = \"a\"\nmax_priority = 5\n");
  world.start("ann", 1, 1);
  const uint64_t one = world.ask("bob", 1, 1), two = world.ask("bob", 1, 1);
  world.pass(6);
  ASSERT_EQ(world.news[one].back().place, 1u);
  const auto by_bob = [&](const std::string& verb, std::vector<std::string> words) {
    const uint64_t connection = world.next_connection++;
    world.scheduler->command(connection, TestWorld::who("bob"), {verb, words, ""}, world.now);
    world.settle();
    const auto& answer = world.commanded.at(connection);
    return answer.status.ok() ? answer.json : answer.status.message();
  };
  const std::string queue = world.command("queue");
  const size_t at = queue.rfind("\"request\":") + 10;
  const std::string second = queue.substr(at, queue.find(',', at) - at);
  EXPECT_TRUE(has(by_bob("change", {second, "priority=6"}), "allows a priority up to 5"));
  EXPECT_TRUE(has(by_bob("change", {second, "share=0.5"}), "waits: its priority can be changed"));
  for (const char* const bad :
       {"priority=", "priority=high", "priority=4x", "priority=99999999999"})
    EXPECT_TRUE(has(by_bob("change", {second, bad}), "expected share=GPUS")) << bad;
  EXPECT_TRUE(has(by_bob("change", {second, "priority=5"}), "\"priority\":5"));
  world.pass(6);
  EXPECT_EQ(world.news[two].back().place, 1u);
  EXPECT_EQ(world.news[one].back().place, 2u);
  EXPECT_TRUE(has(by_bob("hold", {second}), "\"held\":true"));
  world.pass(6);
  EXPECT_EQ(world.news[one].back().place, 1u);
  EXPECT_TRUE(has(by_bob("unhold", {second}), "\"held\":false"));
  EXPECT_TRUE(has(by_bob("unhold", {second}), "is not held"));
}

TEST(Scheduler, ALeaseMayBeRequeued) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 2);
  world.settle();
  wire::PoolWish wish = keyed('r');
  wish.requeues = true;
  const uint64_t client = world.start("ann", 1, 1, wish), plain = world.start("bob", 1, 1);
  const std::string lease = std::to_string(world.answer(client)->reply.lease_id);
  EXPECT_TRUE(has(world.command("requeue", {std::to_string(world.answer(plain)->reply.lease_id)}),
                  "was not asked for with `tendril run --requeue`"));
  EXPECT_TRUE(has(world.command("requeue", {lease, "new", "driver"}), "requeued by admin"));
  world.pass(3);
  EXPECT_EQ(server.seen.back().notice, wire::NoticeKind::kRequeue);
  EXPECT_EQ(server.seen.back().text, "requeued by admin: new driver");
  EXPECT_GE(server.seen.back().in_s, 10u);
  EXPECT_TRUE(has(world.command("requeue", {lease}), "is told to stop already"));
  world.pass(double(server.seen.back().in_s) + 5);
  EXPECT_EQ(server.book.size(), 1u) << "it did not stop";
}

TEST(Scheduler, ALeaseGetsLessAndNeverMore) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 1);
  world.settle();
  const uint64_t client = world.start("ann", 1, 0.5);
  const std::string lease = std::to_string(world.answer(client)->reply.lease_id);
  const std::string more = world.command("change", {lease, "share=0.75"});
  EXPECT_TRUE(has(more, "was granted 0.5 of each GPU and can get less, not more")) << more;
  const std::string higher = world.command("change", {lease, "priority=5"});
  EXPECT_TRUE(has(higher, "allows a priority up to 0")) << higher;
  EXPECT_TRUE(has(world.command("change", {lease, "share=x"}), "expected share=GPUS"));
  EXPECT_EQ(server.book.begin()->second.slices[0].share_millionths, 500'000u);
  EXPECT_EQ(world.command("change", {lease, "share=0.250000", "policy=cap"}),
            "{\"lease\":" + lease + "}");
  world.pass(3);
  EXPECT_EQ(server.book.begin()->second.slices[0].share_millionths, 250'000u);
  EXPECT_TRUE(server.seen.back().sets_terms);
  EXPECT_EQ(server.seen.back().terms.policy, wire::SharePolicy::kCap);
  EXPECT_EQ(world.scheduler->counts().share_given_millionths, 250'000u);
  // 3 s as half a GPU until here; the rest as a quarter. A later scheduler knows.
  world.begin(2);
  world.pass(10);
  wire::BookEntry& entry = server.book.begin()->second;
  const uint64_t age_ns = entry.age_ns;
  server.end(entry.lease_id, "done");
  world.pass(3);
  std::string record;
  for (const auto& [key, value] : world.store)
    if (key.rfind("used/", 0) == 0) record = value;
  UsedRecord used;
  ASSERT_TRUE(read_used(record, &used)) << record;
  EXPECT_EQ(used.sums.held_ns, age_ns);
  EXPECT_GT(used.sums.given_gpu_ns, age_ns / 4 + 500'000'000);
  EXPECT_LT(used.sums.given_gpu_ns, age_ns / 2);
  EXPECT_EQ(used.share_millionths, 250'000u);
}

TEST(Scheduler, FiguresSayWhatThereIs) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 2);
  world.add("gpu2", 1);
  world.settle();
  world.start("ann", 3, 1);
  world.ask("bob", 1, 1);
  world.pass(20);
  server.book.begin()->second.used_ns = 7;
  world.pass(3);
  const std::string figures = world.scheduler->figures(world.now);
  for (const char* const part :
       {"\"servers\":{\"draining\":0,\"joining\":0,\"silent\":0,\"up\":2}",
        "\"state\":\"full\",\"gpus\":3", "\"reason\":\"Resources\",\"requests\":1", "\"running\":1",
        "\"requests\":2,\"refused\":0,\"granted\":1", "\"used_ns\":7",
        "\"up_to_s\":1,\"grants\":1"})
    EXPECT_TRUE(has(figures, part)) << part << "\n" << figures;
  const std::string status = world.command("status");
  EXPECT_TRUE(has(status, "\"lent\":{\"any\":0}")) << status;
}

// A pool has more GPUs than fit into one message.
TEST(Scheduler, ListsGpusInParts) {
  TestWorld world;
  for (int i = 0; i < 5; ++i) world.add("gpu" + std::to_string(i), 4);
  world.settle();
  const uint64_t client = world.ask("ann", 1, 0.5);
  world.settle();
  ASSERT_TRUE(world.answer(client)->status.ok());
  wire::ListRequest request;
  request.parts = wire::kListServer;
  const wire::ListReply whole = world.scheduler->list(request, TestWorld::who("ann"), world.now);
  EXPECT_EQ(whole.gpus.size(), 20u);
  EXPECT_FALSE(whole.more_gpus);
  uint64_t used = 0;
  std::vector<std::string> names;
  for (request.gpu_limit = 6; request.gpus_after < 20;) {
    const wire::ListReply part = world.scheduler->list(request, TestWorld::who("ann"), world.now);
    ASSERT_FALSE(part.gpus.empty());
    ASSERT_LE(part.gpus.size(), 6u);
    for (const wire::GpuRecord& gpu : part.gpus) {
      EXPECT_EQ(gpu.index, names.size());
      names.push_back(gpu.name);
      used += gpu.share_used_millionths;
    }
    request.gpus_after += static_cast<uint32_t>(part.gpus.size());
    EXPECT_EQ(part.more_gpus, request.gpus_after < 20);
  }
  EXPECT_EQ(used, 500'000u);
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ(names[i], whole.gpus[i].name);
}

TEST(Scheduler, NamesItsServersToEachOther) {
  TestWorld world;
  TestServer& one = world.add("gpu1", 1);
  TestServer& two = world.add("gpu2", 1);
  one.facts.passage_id = std::string(wire::kPassageIdBytes, '\1');
  two.facts.passage_id = "of a wrong length";
  two.facts.data_endpoint = "10.1.0.2:7433";  // copies between servers have a network of their own
  world.settle();
  world.pass(3);
  EXPECT_EQ(one.peers, (std::map<std::string, std::string>{{"gpu2", "10.1.0.2:7433/0"}}));
  EXPECT_EQ(two.peers, (std::map<std::string, std::string>{{"gpu1", "gpu1:7433/16"}}));

  TestServer& three = world.add("gpu3", 1);
  three.facts.endpoint = std::string(wire::kPeerEndpointBytesMax + 1, 'x');
  world.pass(3);
  EXPECT_EQ(one.peers.size(), 1u) << "what one server writes must not spoil others' answers";
  EXPECT_EQ(three.peers.size(), 2u);

  EXPECT_EQ(world.command("apply", {"p.toml"}, "[pool]\nservers_are_peers = false\n").find("{"),
            0u);
  world.pass(3);
  EXPECT_TRUE(one.peers.empty());
  world.command("apply", {"p.toml"}, "[pool]\n");
  world.pass(3);
  EXPECT_EQ(one.peers.size(), 1u);
  // Another scheduler knows them from the store, before they report.
  world.begin(2);
  world.connect(one);
  world.pass(3);
  EXPECT_EQ(one.peers.size(), 1u);
  two.reachable = false;
  world.cut(two);
  world.pass(12);
  EXPECT_EQ(one.peers.size(), 1u) << "who is silent may still have a program's other half";
  world.command("forget", {"gpu2"});
  world.pass(3);
  EXPECT_TRUE(one.peers.empty());
}

TEST(Scheduler, ARefusalNamesItsReason) {
  TestWorld world;
  world.add("gpu1", 1);
  world.settle();
  const uint64_t client = world.ask("ann", 2, 1);
  world.settle();
  ASSERT_NE(world.answer(client), nullptr);
  EXPECT_EQ(world.answer(client)->status.message().rfind("NeverFits: ", 0), 0u)
      << world.answer(client)->status.message();
  const std::string wrong = world.command("apply", {"/etc/lab.toml"}, "[pool]\nx = 1\n");
  EXPECT_EQ(wrong.rfind("/etc/lab.toml, line 2, ", 0), 0u) << wrong;
}

TEST(Scheduler, AFilterMayLookAtTheLoad) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 2);
  world.settle();
  const uint64_t first = world.start("ann", 1, 0.5);
  wire::PoolWish alone;
  alone.filter = "tenants = 0 and memory > 1G";
  const uint64_t second = world.ask("bob", 1, 0.5, alone);
  world.settle();
  ASSERT_NE(world.answer(second), nullptr);
  ASSERT_TRUE(world.answer(second)->status.ok()) << world.answer(second)->status.message();
  const uint64_t third = world.ask("eve", 1, 0.5, alone);
  world.pass(3);
  EXPECT_EQ(world.answer(third), nullptr) << "half of each GPU is free, and none is empty";
  EXPECT_EQ(world.news[third].back().reason.rfind("Fragmented: ", 0), 0u)
      << world.news[third].back().reason;
  server.end(world.answer(first)->reply.parts[0].lease_id, "done");
  world.pass(5);
  ASSERT_NE(world.answer(third), nullptr);
  EXPECT_TRUE(world.answer(third)->status.ok());
  alone.filter = "tenants = 0 and memory > 1T";
  const uint64_t never = world.ask("bob", 1, 0.5, alone);
  world.settle();
  ASSERT_NE(world.answer(never), nullptr);
  EXPECT_EQ(world.answer(never)->status.message().rfind("NeverFits: ", 0), 0u);
}

TEST(Scheduler, AHigherTermDeposes) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 1);
  world.settle();
  wire::PoolReport report = server.report();
  report.newest_term = 2;
  world.scheduler->reported(server.connection, "gpu1", report, world.now);
  world.settle();
  const uint64_t client = world.ask("ann", 1, 1);
  world.settle();
  ASSERT_NE(world.answer(client), nullptr);
  EXPECT_EQ(world.answer(client)->status.code(), base::Code::kUnavailable);
}

TEST(Scheduler, AClientOfAnotherVersionIsToldWhatToDo) {
  TestWorld world;
  TestServer& server = world.add("gpu1", 1);
  server.facts.apis.push_back({"cuda", 17});
  world.settle();
  wire::PoolWish wish;
  wish.apis.push_back({"cuda", 18});
  const uint64_t client = world.ask("ann", 1, 1, wish);
  world.settle();
  ASSERT_NE(world.answer(client), nullptr);
  EXPECT_EQ(world.answer(client)->status.code(), base::Code::kMismatch);
  EXPECT_NE(world.answer(client)->status.message().find("0.1.0"), std::string::npos);
}

}  // namespace
}  // namespace tendril::pool

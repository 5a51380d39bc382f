// SPDX-License-Identifier: Apache-2.0
// What starts, what waits and why, rule by rule.
#include "pool/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "pool/life/life.h"

namespace tendril::pool {
namespace {

constexpr uint64_t kGigabyte = uint64_t{1} << 30;

EngineServer server(const std::string& name, uint32_t gpus, uint32_t gpu_class = 0) {
  return EngineServer{
      name, std::vector<EngineGpu>(gpus, EngineGpu{"H200", gpu_class, 140 * kGigabyte, 0})};
}

Ask ask(uint64_t id, uint32_t slices = 1, uint32_t share_millionths = kWholeGpu) {
  Ask ask;
  ask.id = id;
  ask.user = "ada";
  ask.gpu_classes = {0};
  ask.slices = slices;
  ask.share_millionths = share_millionths;
  return ask;
}

TEST(Engine, StartsWhatFits) {
  Engine engine;
  engine.set_policy(default_policy(), 0, 0);
  ASSERT_TRUE(engine.add_server(server("gpu1", 2)));
  ASSERT_TRUE(engine.submit(ask(1, 2, 500'000), 0));
  const EnginePlan plan = engine.plan(0);
  ASSERT_EQ(plan.starts.size(), 1U);
  EXPECT_EQ(plan.starts[0].slices.size(), 2U);
  EXPECT_EQ(plan.starts[0].slices[0].memory_bytes, 70 * kGigabyte);
  ASSERT_TRUE(engine.submit(ask(2), 0));
  EXPECT_TRUE(engine.plan(1).starts.empty());
  EXPECT_EQ(engine.waiting(1).size(), 1U);
  engine.ended(1, 2);
  EXPECT_EQ(engine.plan(2).starts.size(), 1U);
}

// Two accounts: vision has a quota of four and lends two of them, nlp has four and lends all.
PoolPolicy two_accounts() {
  PoolPolicy policy = default_policy();
  Account vision = policy.accounts[0];
  vision.name = "vision";
  vision.quota = {4 * kWholeGpu};
  vision.lending_limit = {2 * kWholeGpu};
  Account nlp = vision;
  nlp.name = "nlp";
  nlp.lending_limit = {kUnlimited};
  policy.accounts = {vision, nlp};
  policy.user_classes[0].preempt_exempt_time_s = 600;
  policy.user_classes[0].grace_time_s = 120;
  return policy;
}

Ask of(uint32_t account, Ask ask) {
  ask.account = account;
  return ask;
}

class Rules : public ::testing::Test {
 protected:
  void use(const PoolPolicy& policy) { engine_.set_policy(policy, 0, 0); }
  void servers(std::initializer_list<uint32_t> gpus) {
    for (uint32_t count : gpus)
      ASSERT_TRUE(engine_.add_server(server("gpu" + std::to_string(++servers_), count)));
  }
  void submit(const Ask& ask, int64_t now_s = 0) {
    const base::Status status = engine_.submit(ask, now_s);
    ASSERT_TRUE(status) << status.message();
  }
  std::vector<uint64_t> starts(int64_t now_s) {
    std::vector<uint64_t> ids;
    for (const EngineStart& start : engine_.plan(now_s).starts) ids.push_back(start.id);
    return ids;
  }
  EngineWaiting waiting(uint64_t id, int64_t now_s) {
    for (const EngineWaiting& each : engine_.waiting(now_s))
      if (each.id == id) return each;
    ADD_FAILURE() << id << " does not wait";
    return {};
  }
  Engine engine_;
  int servers_ = 0;
};

using Ids = std::vector<uint64_t>;

TEST_F(Rules, LendsAndTakesBack) {
  use(two_accounts());
  servers({4, 4});
  for (uint64_t id = 1; id <= 7; ++id) submit(of(1, ask(id)));
  EXPECT_EQ(starts(0), (Ids{1, 2, 3, 4, 5, 6}));
  const EngineWaiting more = waiting(7, 1);
  EXPECT_EQ(more.reason, WaitReason::kQuota);
  EXPECT_EQ(more.text, "nlp holds 6.0 of 4.0 any, and others lend no more");
  submit(of(0, ask(8, 3)), 100);
  EnginePlan plan = engine_.plan(100);
  EXPECT_TRUE(plan.reclaims.empty()) << "none has run for ten minutes";
  const EngineWaiting foretold = waiting(8, 100);
  EXPECT_EQ(foretold.reason, WaitReason::kQuota);
  EXPECT_EQ(foretold.text, "vision holds 0.0 of 4.0 any, 2.0 lent to nlp");
  EXPECT_EQ(foretold.reclaimed, "1.0");
  EXPECT_EQ(foretold.reclaimed_s, 720);
  EXPECT_EQ(foretold.start_from_s, 720);
  EXPECT_EQ(foretold.start_to_s, kNever) << "it is no promise before the reclaim has begun";
  plan = engine_.plan(700);
  ASSERT_EQ(plan.reclaims.size(), 1U) << "two are free, one more is needed";
  EXPECT_EQ(plan.reclaims[0].for_id, 8U);
  EXPECT_EQ(plan.reclaims[0].by_s, 820);
  EXPECT_EQ(plan.reclaims[0].why, "vision reclaims 3.0 any");
  const EngineWaiting told = waiting(8, 701);
  EXPECT_EQ(told.reason, WaitReason::kQuota);
  EXPECT_EQ(told.start_to_s, 820);
  EXPECT_EQ(told.reclaimed, "1.0");
  EXPECT_EQ(told.reclaimed_s, 820);
  EXPECT_TRUE(engine_.plan(710).reclaims.empty()) << "once is enough";
  engine_.failed(plan.reclaims[0].id, Engine::kNoServer, 815);
  EXPECT_EQ(starts(815), Ids{8}) << "what was reclaimed waits again";
}

// Whatever runs since when: what is foretold comes true, and nothing is told of what never comes.
TEST_F(Rules, ForetellsTheReclaim) {
  PoolPolicy policy = two_accounts();
  use(policy);
  servers({4, 4});
  submit(of(1, ask(1, 2)));
  ASSERT_EQ(starts(0), Ids{1});
  submit(of(1, ask(2)), 200);
  submit(of(1, ask(3)), 200);
  ASSERT_EQ(starts(200).size(), 2U);
  submit(of(1, ask(4, 2)), 300);
  ASSERT_EQ(starts(300), Ids{4}) << "nlp holds six";
  submit(of(0, ask(5, 4)), 310);
  EXPECT_TRUE(starts(310).empty());
  const EngineWaiting told = waiting(5, 310);
  EXPECT_EQ(told.text, "vision holds 0.0 of 4.0 any, 2.0 lent to nlp");
  EXPECT_EQ(told.reclaimed, "those");
  EXPECT_EQ(told.reclaimed_s, 720) << "lease 1 may be asked from 600 on";
  for (int64_t now_s = 311; now_s < 610; now_s += 3) {
    for (const EngineReclaim& reclaim : engine_.plan(now_s).reclaims) {
      EXPECT_EQ(reclaim.id, 1U);
      EXPECT_LE(reclaim.by_s, told.reclaimed_s + 5);
      EXPECT_GE(now_s, 600);
    }
    EXPECT_LE(waiting(5, now_s).reclaimed_s, told.reclaimed_s + 5) << now_s;
  }
  EXPECT_EQ(waiting(5, 610).start_why, "when lease 1 has made room");
  engine_.ended(1, 650);
  EXPECT_EQ(starts(650), Ids{5});
  engine_.ended(5, 700);
  submit(of(1, ask(6, 2)), 700);
  ASSERT_EQ(starts(700), Ids{6});
  policy.user_classes[0].reclaimable = false;
  engine_.set_policy(policy, 0, 701);
  submit(of(0, ask(7, 4)), 702);
  EXPECT_TRUE(starts(702).empty());
  EXPECT_EQ(waiting(7, 702).reclaimed, "") << "what is held over quota may stay";
}

TEST_F(Rules, ForetellsWhatAClassGivesUp) {
  PoolPolicy policy = two_accounts();
  UserClass first = policy.user_classes[0];
  first.name = "first";
  first.priority = 100;
  first.preempts = {0};
  policy.user_classes.push_back(first);
  use(policy);
  servers({4});
  submit(of(0, ask(1, 4)));
  ASSERT_EQ(starts(0), Ids{1});
  Ask ask_first = of(0, ask(2));
  ask_first.user_class = 1;
  submit(ask_first, 10);
  EXPECT_TRUE(starts(10).empty());
  const EngineWaiting told = waiting(2, 10);
  EXPECT_EQ(told.reason, WaitReason::kResources);
  EXPECT_EQ(told.reclaimed, "4.0 of class " + policy.user_classes[0].name);
  EXPECT_EQ(told.reclaimed_s, 720);
  EXPECT_EQ(told.start_from_s, 720);
}

TEST_F(Rules, StartsOthersBeforeTheHeadWhereTheyAreNotInItsWay) {
  servers({1, 1});
  Ask first = ask(1);
  first.most_s = 1000;
  submit(first);
  ASSERT_EQ(starts(0), Ids{1});
  Ask gang = ask(2, 2);
  gang.most_s = 100;
  submit(gang, 10);
  EXPECT_TRUE(starts(10).empty());
  EXPECT_EQ(waiting(2, 10).start_to_s, 1000);
  EXPECT_EQ(waiting(2, 10).start_why, "when lease 1 reaches its limit");
  Ask short_one = ask(3);
  short_one.most_s = 900;
  Ask long_one = ask(4);
  long_one.most_s = 1100;
  submit(long_one, 20);
  submit(short_one, 20);
  EXPECT_EQ(starts(20), Ids{3});
  const EngineWaiting behind = waiting(4, 20);
  EXPECT_EQ(behind.reason, WaitReason::kPriority);
  engine_.ended(3, 500);
  EXPECT_TRUE(starts(500).empty()) << "the other one would still be there at 1000";
  engine_.ended(1, 1000);
  EXPECT_EQ(starts(1000), Ids{2});
}

// A server ends a lease a moment after its time, because it heard of it a moment after the plan.
TEST_F(Rules, WaitsForALeaseThatOutstaysItsEnd) {
  servers({1});
  Ask first = ask(1);
  first.most_s = 1000;
  submit(first);
  ASSERT_EQ(starts(0), Ids{1});
  submit(ask(2), 10);
  EXPECT_TRUE(starts(10).empty());
  ASSERT_EQ(waiting(2, 10).start_to_s, 1000);
  submit(ask(3), 20);
  EXPECT_TRUE(starts(1000).empty()) << "lease 1 is still there";
  EXPECT_TRUE(starts(1001).empty());
  EXPECT_EQ(waiting(2, 1001).place, 1U);
  engine_.ended(1, 1002);
  EXPECT_EQ(starts(1002), Ids{2});
}

// What it was promised counts in the class where it was promised, so a start in another one may
// take what somebody else was promised there.
TEST_F(Rules, AHeadThatStartsInAnotherClassDelaysNobody) {
  PoolPolicy policy = two_accounts();
  GpuClass top = policy.gpu_classes[0];
  top.name = "top";
  policy.gpu_classes = {top, policy.gpu_classes[0]};
  for (Account& account : policy.accounts) account.quota = account.lending_limit = {};
  policy.accounts[0].limit = {kUnlimited, 2 * kWholeGpu};
  use(policy);
  ASSERT_TRUE(engine_.add_server(server("top1", 1, 0)));
  ASSERT_TRUE(engine_.add_server(server("any1", 2, 1)));
  ASSERT_TRUE(engine_.add_server(server("any2", 1, 1)));
  const auto lease = [&](uint64_t id, PlacedSlice where, int64_t most_s) {
    Ask theirs = of(1, ask(id));
    theirs.gpu_classes = {0, 1};
    theirs.most_s = most_s;
    engine_.adopt(theirs, {where}, 0);
  };
  lease(1, {0, 0, kWholeGpu, kGigabyte}, 900);
  lease(2, {1, 0, kWholeGpu, kGigabyte}, 1000);
  lease(3, {2, 0, kWholeGpu, kGigabyte}, 5000);
  Ask pair = ask(4, 2);
  pair.spread = Spread::kOneServer;
  pair.gpu_classes = {1};
  submit(pair, 10);
  EXPECT_TRUE(starts(10).empty());
  ASSERT_EQ(waiting(4, 10).start_to_s, 1000);
  Ask either = ask(5);
  either.gpu_classes = {0, 1};
  submit(either, 20);
  EXPECT_TRUE(starts(20).empty());
  ASSERT_EQ(waiting(5, 20).start_to_s, 900);
  engine_.ended(3, 500);
  EXPECT_TRUE(starts(500).empty()) << "then vision would have no right to two more at 1000";
  engine_.ended(1, 900);
  EXPECT_EQ(starts(900), Ids{5});
  engine_.ended(2, 1000);
  EXPECT_EQ(starts(1000), Ids{4});
}

// A pair that waits for two GPUs of one server, beside single ones that fit sooner.
Ask pair_on(uint32_t server, uint64_t id, int64_t most_s) {
  Ask pair = ask(id, 2);
  pair.filter_text = "server = gpu" + std::to_string(server + 1);
  pair.filter = [server](uint32_t other, uint32_t) { return other == server; };
  pair.most_s = most_s;
  return pair;
}

TEST_F(Rules, OverdueRequestsForOtherGpusWaitAtTheSameTime) {
  PoolPolicy policy = default_policy();
  policy.longest_wait_s = 100;
  use(policy);
  servers({2, 2});
  for (uint64_t id = 1; id <= 4; ++id) {  // on the servers in turn; the first ends last
    Ask single = ask(id);
    single.most_s = id == 1 ? 9000 : id == 2 ? 1000 : 500;
    single.filter_text = "of " + std::to_string(id);
    single.filter = [id](uint32_t server, uint32_t) { return server == (id - 1) % 2; };
    submit(single);
  }
  ASSERT_EQ(starts(0).size(), 4U);
  submit(pair_on(0, 10, 9000), 1);
  submit(pair_on(1, 11, 9000), 2);
  submit(pair_on(1, 12, 9000), 3);
  EXPECT_TRUE(starts(3).empty());
  EXPECT_TRUE(starts(110).empty());
  EXPECT_EQ(waiting(10, 110).start_to_s, 9000);
  EXPECT_EQ(waiting(11, 110).start_to_s, 1000) << "the other server's pair is not in its way";
  EXPECT_EQ(waiting(12, 110).start_to_s, 10'060) << "and starts when the pair before it has ended";
  Ask single = ask(20);
  single.most_s = 1000;
  submit(single, 450);
  engine_.ended(3, 500);
  engine_.ended(4, 500);
  Ask long_one = ask(21);
  submit(long_one, 450);
  EXPECT_EQ(starts(500), Ids{20}) << "the other may still be there at 9000";
  engine_.ended(2, 1000);
  EXPECT_EQ(starts(1000), Ids{11});
  engine_.ended(11, 2000);
  EXPECT_EQ(starts(2000), Ids{12});
}

// Its memory is half of a small GPU and a quarter of a large one, and its account may have less
// than a half.
TEST_F(Rules, StartsWhereItCountsAsLittleAsItMust) {
  PoolPolicy policy = default_policy();
  policy.accounts[0].limit = {400'000};
  policy.longest_wait_s = 100;
  use(policy);
  EngineServer mixed;
  mixed.name = "mixed";
  for (const uint64_t gigabytes : {80, 80, 160, 80})
    mixed.gpus.push_back(EngineGpu{"H" + std::to_string(gigabytes), 0, gigabytes * kGigabyte, 0});
  ASSERT_TRUE(engine_.add_server(mixed));
  Ask small = ask(1, 1, 0);
  small.memory_bytes = 40 * kGigabyte;
  small.most_s = 1000;
  submit(small);
  const EnginePlan plan = engine_.plan(0);
  ASSERT_EQ(plan.starts.size(), 1U);
  EXPECT_EQ(plan.starts[0].slices[0].gpu, 2U);
  small.id = 2;
  submit(small, 1);
  EXPECT_TRUE(starts(1).empty());
  EXPECT_TRUE(starts(110).empty());
  EXPECT_TRUE(waiting(2, 110).promised);
  EXPECT_EQ(waiting(2, 110).start_to_s, 1000) << "beside nobody, on the large one";
  engine_.ended(1, 900);
  EXPECT_EQ(starts(900), Ids{2});
  engine_.ended(2, 910);
  small.id = 3;
  small.filter_text = "not index = 2";
  small.filter = [](uint32_t, uint32_t gpu) { return gpu != 2; };
  submit(small, 910);
  EXPECT_TRUE(starts(910).empty());
  EXPECT_EQ(waiting(3, 910).reason, WaitReason::kQuota) << waiting(3, 910).text;
}

TEST_F(Rules, KeepsNoMoreThanOnePlaceFreeForWhatMayNeverEnd) {
  PoolPolicy policy = default_policy();
  policy.longest_wait_s = 100;
  use(policy);
  servers({2, 2});
  for (uint64_t id = 1; id <= 4; ++id) submit(ask(id));
  ASSERT_EQ(starts(0).size(), 4U);
  submit(pair_on(0, 10, kNever), 1);
  submit(pair_on(1, 11, kNever), 2);
  EXPECT_TRUE(starts(110).empty());
  submit(ask(20), 111);
  EXPECT_TRUE(starts(111).empty());
  for (uint64_t id = 1; id <= 4; ++id) {
    if (id == 4) break;
    engine_.ended(id, 120);
  }
  const Ids first = starts(120);
  EXPECT_EQ(first.size(), 2U) << "the pair whose GPUs are free, and the single one";
}

TEST_F(Rules, SaysWhatAUserMayHave) {
  PoolPolicy policy = default_policy();
  policy.user_classes[0].max_per_user.gpus = 2 * kWholeGpu;
  policy.user_classes[0].max_per_user.pending = 1;
  use(policy);
  servers({4});
  submit(ask(1, 2));
  ASSERT_EQ(starts(0), Ids{1});
  submit(ask(2));
  EXPECT_TRUE(starts(0).empty());
  EXPECT_EQ(waiting(2, 0).reason, WaitReason::kUserLimit);
  EXPECT_EQ(waiting(2, 0).text, "ada has 2.0 of at most 2.0 GPUs in class normal");
  const base::Status status = engine_.submit(ask(3), 0);
  EXPECT_EQ(status.code(), base::Code::kRefused);
  EXPECT_NE(status.message().find("1 requests waiting"), std::string::npos) << status.message();
  Ask back = ask(3);
  back.accepted = true;
  EXPECT_TRUE(engine_.submit(back, 0)) << "it has its place already";
  const base::Status never = engine_.submit(of(0, ask(4, 3)), 0);
  EXPECT_EQ(never.code(), base::Code::kRefused);
}

TEST_F(Rules, RefusesWhatNeverFitsAndNamesTheNearest) {
  servers({2, 4});
  Ask wide = ask(1, 6);
  wide.spread = Spread::kOneServer;
  const base::Status status = engine_.submit(wide, 0);
  EXPECT_EQ(status.code(), base::Code::kRefused);
  EXPECT_NE(status.message().find("the most that fits is 4"), std::string::npos)
      << status.message();
  Ask large = ask(2);
  large.memory_bytes = 200 * kGigabyte;
  EXPECT_NE(engine_.submit(large, 0).message().find("140"), std::string::npos);
  Ask filtered = ask(3);
  filtered.filter_text = "model ~ T4";
  filtered.filter = [](uint32_t, uint32_t) { return false; };
  EXPECT_NE(engine_.submit(filtered, 0).message().find("model ~ T4"), std::string::npos);
}

TEST_F(Rules, SpreadsAndPacks) {
  servers({2, 4, 4, 2});
  const auto servers_of = [&](uint64_t id, Spread spread) {
    Ask many = ask(id, 4, 100'000);
    many.spread = spread;
    EXPECT_TRUE(engine_.submit(many, 0));
    std::set<uint32_t> used;
    for (const EngineStart& start : engine_.plan(0).starts)
      for (const PlacedSlice& slice : start.slices) used.insert(slice.server);
    return used.size();
  };
  EXPECT_EQ(servers_of(1, Spread::kOneServer), 1U);
  EXPECT_EQ(servers_of(2, Spread::kPack), 1U);
  EXPECT_EQ(servers_of(3, Spread::kSpread), 4U);
}

TEST_F(Rules, ReservesWholeGpusForAnAccount) {
  PoolPolicy policy = two_accounts();
  Reservation course;
  course.name = "ml101";
  course.gpus = {2 * kWholeGpu};
  course.accounts = {1};
  course.from_s = 1000;
  course.to_s = 2000;
  policy.reservations = {course};
  use(policy);
  servers({3});
  Ask endless = ask(1, 2);
  submit(endless);
  EXPECT_TRUE(starts(0).empty()) << "one GPU is not reserved, and it has no end";
  EXPECT_EQ(waiting(1, 0).reason, WaitReason::kReservation);
  EXPECT_NE(waiting(1, 0).text.find("ml101"), std::string::npos);
  Ask in_time = ask(2, 2);
  in_time.most_s = 900;
  submit(in_time, 1);
  EXPECT_EQ(starts(1), Ids{2});
  engine_.ended(2, 500);
  Ask lesson = of(1, ask(3, 2));
  lesson.most_s = 800;
  submit(lesson, 1100);
  EXPECT_EQ(starts(1100), Ids{3}) << "the course may";
}

TEST_F(Rules, KeepsMaintenanceFree) {
  servers({1});
  engine_.set_maintenance(0, {Interval{1000, 2000}});
  Ask long_one = ask(1);
  long_one.most_s = 1200;
  submit(long_one);
  EXPECT_TRUE(starts(0).empty());
  EXPECT_EQ(waiting(1, 0).reason, WaitReason::kSchedule);
  EXPECT_EQ(waiting(1, 0).start_to_s, 2000);
  Ask short_one = ask(2);
  short_one.most_s = 900;
  submit(short_one);
  EXPECT_EQ(starts(1), Ids{2});
  engine_.ended(2, 900);
  EXPECT_EQ(starts(2000), Ids{1});
}

TEST_F(Rules, TellsSilentServersAndFragments) {
  servers({1, 1});
  submit(ask(1, 2, 600'000));
  ASSERT_EQ(starts(0), Ids{1});
  submit(ask(2, 1, 500'000));
  EXPECT_TRUE(starts(0).empty());
  EXPECT_EQ(waiting(2, 0).reason, WaitReason::kFragmented);
  engine_.set_state(0, ServerState::kSilent);
  engine_.set_state(1, ServerState::kSilent);
  EXPECT_TRUE(starts(10).empty());
  EXPECT_EQ(waiting(2, 10).reason, WaitReason::kServersDown);
  EXPECT_EQ(waiting(2, 10).text.compare(0, 21, "2 servers are silent;"), 0);
}

TEST_F(Rules, AvoidsAServerThatFailed) {
  servers({1, 1});
  submit(ask(1));
  const EnginePlan plan = engine_.plan(0);
  ASSERT_EQ(plan.starts.size(), 1U);
  const uint32_t first = plan.starts[0].slices[0].server;
  engine_.failed(1, first, 1);
  const EnginePlan again = engine_.plan(1);
  ASSERT_EQ(again.starts.size(), 1U);
  EXPECT_NE(again.starts[0].slices[0].server, first);
}

TEST_F(Rules, SaysThatTheOnlyServerFailedIt) {
  servers({1});
  submit(ask(1));
  ASSERT_EQ(starts(0), Ids{1});
  engine_.failed(1, 0, 1);
  EXPECT_TRUE(starts(1).empty());
  EXPECT_EQ(waiting(1, 1).reason, WaitReason::kServersDown);
  EXPECT_NE(waiting(1, 1).text.find("failed it just now"), std::string::npos);
  EXPECT_EQ(starts(30), Ids{1});
  engine_.failed(1, 0, 31);
  EXPECT_TRUE(starts(60).empty()) << "the second time it is avoided for longer";
  EXPECT_EQ(starts(71), Ids{1});
}

TEST_F(Rules, KeepsPackedSlicesApart) {
  servers({1});
  Ask packed = ask(1, 1, 300'000);
  packed.packed = true;
  submit(packed);
  ASSERT_EQ(starts(0), Ids{1});
  submit(ask(2, 1, 300'000));
  EXPECT_TRUE(starts(0).empty());
  packed.id = 3;
  submit(packed);
  EXPECT_EQ(starts(1), Ids{3});
}

TEST_F(Rules, UsageOutlivesTheEngine) {
  use(two_accounts());
  servers({8});
  submit(of(1, ask(1, 4)));
  ASSERT_EQ(starts(0), Ids{1});
  (void)engine_.plan(1000);
  EXPECT_NEAR(engine_.decayed_gpu_seconds(1), 4000, 10);
  Engine next;
  next.set_policy(two_accounts(), 0, 0);
  next.restore(engine_.usage(), engine_.durations(), 5);
  EXPECT_NEAR(next.decayed_gpu_seconds(1), 4000, 10);
  EXPECT_EQ(next.decayed_gpu_seconds(0), 0);
}

// When the ladder of pool/life has ended a lease of which it is wanted back from `now_s` on, though
// its program uses all its time.
int64_t ended_by_life_s(const PoolPolicy& policy, int64_t granted_s, int64_t now_s) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  LifeFacts facts;
  facts.granted_ns = granted_s * kSecondNs;
  facts.use.known = facts.use.attached = true;
  facts.can_requeue = facts.can_shrink = facts.reclaim = true;
  facts.reclaim_why = "vision reclaims 1.0 any";
  Life life;
  for (int64_t now_ns = now_s * kSecondNs; now_ns != kNever;) {
    const LifeAdvance advance =
        life.advance(life_rules(policy.user_classes[0], policy, 0), facts, now_ns);
    for (const LifeAction& action : advance.actions)
      if (action.act == LifeAct::kEnd) return now_ns / kSecondNs;
    now_ns = advance.again_ns;
  }
  return kNever;
}

TEST(Engine, WhatIsReclaimedIsGoneWhenItSays) {
  const std::vector<std::pair<std::vector<Action>, uint64_t>> ladders = {
      {{Action::kWarn, Action::kEnd}, 120},
      {{Action::kShrink, Action::kEnd}, 0},
      {{Action::kWarn, Action::kRequeue, Action::kEnd}, 0},
      {{Action::kPause, Action::kEnd}, 7},
      {{Action::kWarn, Action::kShrink, Action::kPause, Action::kRequeue, Action::kEnd}, 30}};
  for (const auto& [steps, grace_s] : ladders) {
    SCOPED_TRACE(std::to_string(steps.size()) + " steps, grace " + std::to_string(grace_s));
    PoolPolicy policy = two_accounts();
    policy.user_classes[0].preempt_mode = steps;
    policy.user_classes[0].grace_time_s = grace_s;
    Engine engine;
    engine.set_policy(policy, 0, 0);
    ASSERT_TRUE(engine.add_server(server("gpu1", 8)));
    for (uint64_t id = 1; id <= 6; ++id) ASSERT_TRUE(engine.submit(of(1, ask(id)), 0));
    ASSERT_EQ(engine.plan(0).starts.size(), 6U);
    ASSERT_TRUE(engine.submit(of(0, ask(8, 3)), 100));
    const EnginePlan plan = engine.plan(700);
    ASSERT_EQ(plan.reclaims.size(), 1U);
    EXPECT_EQ(plan.reclaims[0].by_s, ended_by_life_s(policy, 0, 700));
    // A reservation takes back what has only begun, too; but not while it is exempt.
    Reservation course;
    course.name = "course";
    course.gpus = {6 * kWholeGpu};
    course.users = {"eve"};
    course.from_s = 1000;
    course.to_s = 2000;
    policy.reservations = {course};
    Engine booked;
    ASSERT_TRUE(booked.add_server(server("gpu1", 6)));
    booked.set_policy(policy, 0, 0);
    booked.adopt(of(1, ask(1)), {{0, 0, kWholeGpu, kGigabyte}}, 700);
    for (int64_t now_s = 701; now_s < 1000; now_s += 5) {
      const EnginePlan wanted = booked.plan(now_s);
      if (wanted.reclaims.empty()) continue;
      EXPECT_EQ(wanted.reclaims[0].by_s, ended_by_life_s(policy, 700, now_s));
      EXPECT_GE(wanted.reclaims[0].by_s, 1300);
      booked.ended(1, now_s);
      break;
    }
    EXPECT_EQ(booked.running_count(), 0U) << "it was never reclaimed";
  }
}

// A lease that was made smaller gets its share back when its user may have that much again.
TEST_F(Rules, AShrunkLeaseGrowsWithinItsUsersLimit) {
  PoolPolicy policy = default_policy();
  policy.user_classes[0].max_per_user.gpus = kWholeGpu;
  use(policy);
  servers({2});
  const auto slice = [](uint32_t gpu, uint32_t share_millionths) {
    return std::vector<PlacedSlice>{{0, gpu, share_millionths, kGigabyte}};
  };
  engine_.adopt(ask(1, 1, 800'000), slice(0, 800'000), 0);
  engine_.resize(1, slice(0, 200'000));
  submit(ask(2, 1, 700'000), 10);
  ASSERT_EQ(starts(10), Ids{2});
  std::string why;
  EXPECT_FALSE(engine_.grow(1, slice(0, 800'000), 20, &why));
  EXPECT_EQ(why, "a limit of its user or account");
  EXPECT_EQ(engine_.used_by_user(0, "ada"), 900'000U) << "nothing has changed";
  engine_.ended(2, 30);
  EXPECT_TRUE(engine_.grow(1, slice(0, 800'000), 30, &why)) << why;
  EXPECT_EQ(engine_.used_by_user(0, "ada"), 800'000U);
  EXPECT_FALSE(engine_.grow(7, slice(0, 800'000), 30, &why)) << "no such lease";
}

// Parked leases hold nothing. They may all wake as far as their user's limit goes.
TEST_F(Rules, ThoseThatGrowTogetherPassALimitOneAfterTheOther) {
  PoolPolicy policy = default_policy();
  policy.user_classes[0].max_per_user.gpus = kWholeGpu;
  use(policy);
  servers({2});
  const auto slice = [](uint32_t share_millionths) {
    return std::vector<PlacedSlice>{
        {0, 0, share_millionths, share_millionths == 0 ? 0 : kGigabyte}};
  };
  for (const uint64_t id : {1, 2, 3}) engine_.adopt(ask(id, 1, 400'000), slice(0), 0);
  const auto beyond = engine_.beyond_limits(
      {{1, slice(400'000)}, {2, slice(400'000)}, {3, slice(400'000)}, {9, slice(1)}});
  ASSERT_EQ(beyond.size(), 1U);
  EXPECT_EQ(beyond.begin()->first, 3U);
  EXPECT_NE(beyond.begin()->second.find("of at most 1.0 GPUs in class"), std::string::npos)
      << beyond.begin()->second;
  EXPECT_EQ(engine_.used_by_user(0, "ada"), 0U) << "nothing has changed";
  EXPECT_TRUE(engine_.beyond_limits({{3, slice(400'000)}}).empty());
}

TEST_F(Rules, AShrunkLeaseGrowsWhereThereIsRoomAndNobodyWasPromisedIt) {
  use(default_policy());
  servers({1});
  const auto slice = [](uint32_t share_millionths) {
    return std::vector<PlacedSlice>{{0, 0, share_millionths, kGigabyte}};
  };
  Ask first = ask(1, 1, 800'000);
  first.most_s = 10'000;
  engine_.adopt(first, slice(800'000), 0);
  engine_.resize(1, slice(200'000));
  Ask second = ask(2, 1, 600'000);
  second.most_s = 1'000;
  submit(second, 10);
  ASSERT_EQ(starts(10), Ids{2});
  std::string why;
  EXPECT_FALSE(engine_.grow(1, slice(800'000), 20, &why));
  EXPECT_EQ(why, "others who were given what it had");
  // Another is promised what the second leaves, from then on.
  Ask third = ask(3, 1, 700'000);
  third.most_s = 100'000;
  submit(third, 30);
  EXPECT_TRUE(starts(30).empty());
  EXPECT_EQ(waiting(3, 30).start_to_s, 1'010);
  engine_.ended(2, 500);
  EXPECT_FALSE(engine_.grow(1, slice(800'000), 500, &why));
  EXPECT_EQ(why, "others to whom it is promised or reserved");
  EXPECT_EQ(starts(500), Ids{3});
  engine_.ended(3, 600);
  EXPECT_TRUE(engine_.grow(1, slice(800'000), 600, &why)) << why;
  submit(ask(4, 1, 300'000), 600);
  EXPECT_TRUE(starts(600).empty()) << "the grown lease counts at once";
}

// The cost of a decision, counted in places that are looked at: a clock would measure the machine.
TEST(Engine, ADecisionLooksAtFewPlaces) {
  constexpr uint32_t kServers = 1'213, kGpus = 6'212, kLeases = 10'000, kRounds = 2'000;
  Engine engine;
  engine.set_policy(default_policy(), 0, 0);
  for (uint32_t i = 0; i < kServers; ++i)
    ASSERT_TRUE(engine.add_server(server("gpu", i < kGpus % kServers ? 6 : 5)));
  std::mt19937_64 dice(1);
  std::vector<uint64_t> running;
  size_t looks = 0;
  uint64_t id = 0;
  int64_t now_s = 0;
  const auto start = [&] {
    static const std::vector<uint32_t> shares = {100'000, 250'000, 400'000, 500'000, kWholeGpu};
    // one after the other, because compilers evaluate arguments in different orders
    const uint32_t share = shares[dice() % shares.size()], count = dice() % 10 == 0 ? 4 : 1;
    Ask next = ask(++id, count, share);
    next.user = "user" + std::to_string(dice() % 500);
    next.most_s = 60 + static_cast<int64_t>(dice() % 86'400);
    next.submitted_s = now_s;
    next.filter_text = "counts";
    next.filter_changes = true;  // so it is asked each time
    next.filter = [&looks](uint32_t, uint32_t) {
      ++looks;
      return true;
    };
    ASSERT_TRUE(engine.submit(next, now_s));
    for (const EngineStart& each : engine.plan(now_s).starts) running.push_back(each.id);
  };
  while (running.size() < kLeases && id < 2 * kLeases) start();
  std::vector<size_t> of_decisions;
  for (uint32_t round = 0; round < kRounds; ++round) {
    now_s += 1;
    std::swap(running[dice() % running.size()], running.back());
    engine.ended(running.back(), now_s);
    running.pop_back();
    looks = 0;
    start();
    of_decisions.push_back(looks);
  }
  std::sort(of_decisions.begin(), of_decisions.end());
  EXPECT_LE(of_decisions[kRounds / 2], 10U);
  EXPECT_LE(of_decisions[kRounds * 99 / 100], kGpus / 50);
}

}  // namespace
}  // namespace tendril::pool

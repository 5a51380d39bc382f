// SPDX-License-Identifier: Apache-2.0
// What starts, what waits and why, rule by rule.
#include "pool/engine/engine.h"

#include <gtest/gtest.h>

#include <set>

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
  plan = engine_.plan(700);
  ASSERT_EQ(plan.reclaims.size(), 1U) << "two are free, one more is needed";
  EXPECT_EQ(plan.reclaims[0].for_id, 8U);
  EXPECT_EQ(plan.reclaims[0].by_s, 820);
  EXPECT_EQ(plan.reclaims[0].why, "vision reclaims 3.0 any");
  const EngineWaiting told = waiting(8, 701);
  EXPECT_EQ(told.reason, WaitReason::kQuota);
  EXPECT_EQ(told.start_to_s, 820);
  EXPECT_TRUE(engine_.plan(710).reclaims.empty()) << "once is enough";
  engine_.failed(plan.reclaims[0].id, Engine::kNoServer, 815);
  EXPECT_EQ(starts(815), Ids{8}) << "what was reclaimed waits again";
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

}  // namespace
}  // namespace tendril::pool

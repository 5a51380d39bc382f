// SPDX-License-Identifier: Apache-2.0
// The rules between workers' pages and leases, to the microsecond. Time passes when the test says
// so. A worker is what the test writes on its page. tests/simulation/turns_test.cc adds real gates
// and GPUs. arbiter_test.cc adds threads, bells and a timer.
#include "lease/lease_turns.h"

#include <gtest/gtest.h>
#include <time.h>

#include <functional>
#include <memory>
#include <vector>

namespace tendril::lease {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;
constexpr uint64_t kStepNs = 10 * kUs;  // all times here are exact to this

std::vector<wire::SliceGrant> slice(uint32_t share_millionths, bool packed = false) {
  wire::SliceGrant grant;
  grant.share_millionths = share_millionths;
  grant.packed = packed;
  return {grant};
}

std::vector<wire::SliceGrant> halves(std::initializer_list<uint32_t> gpus) {
  std::vector<wire::SliceGrant> grants;
  for (const uint32_t gpu : gpus) {
    grants.push_back(slice(500'000)[0]);
    grants.back().gpu_index = gpu;
  }
  return grants;
}

std::vector<const wire::TurnPart*> woken;

// tendrild with its sessions.
class Server {
 public:
  explicit Server(uint64_t grace_ns = 120 * kMs, bool hardware_slices = true)
      : turns_({{.grace_ns = grace_ns}, hardware_slices},
               [](wire::TurnPart* part) { woken.push_back(part); }) {
    woken.clear();
  }

  uint64_t now_ns() const { return now_ns_; }
  void open(uint64_t lease, const std::vector<wire::SliceGrant>& slices) {
    turns_.open(now_ns_, lease, slices, {});
  }
  void change(uint64_t lease, const std::vector<wire::SliceGrant>& slices,
              const wire::LeaseTerms& terms = {}) {
    turns_.change(now_ns_, lease, slices, terms);
  }
  wire::SliceUse use_of(uint64_t lease) { return turns_.use_of(now_ns_, lease)[0]; }
  LeaseTurns& turns() { return turns_; }

  void sleep(uint64_t ns) {
    eventually([] { return false; }, ns);
  }
  bool eventually(const std::function<bool()>& holds, uint64_t within_ns = 2 * kSecond) {
    for (const uint64_t end_ns = now_ns_ + within_ns; now_ns_ < end_ns; now_ns_ += kStepNs) {
      if (turns_.look_again_ns() <= now_ns_) turns_.hear(now_ns_, {});
      if (holds()) return true;
    }
    return false;
  }

 private:
  uint64_t now_ns_ = kSecond;
  LeaseTurns turns_;
};

// A session's worker.
class Worker {
 public:
  Worker(Server* server, uint64_t session, uint64_t lease) : server_(*server), session_(session) {
    server_.turns().join(session, lease, page_.get());
  }
  wire::TurnPart& part(uint32_t slice = 0) { return page_->slices[slice]; }
  void ring() { server_.turns().hear(server_.now_ns(), {session_}); }
  void want(uint32_t slice = 0, uint32_t wants = wire::kWantsTurn) {
    part(slice).wants = wants;
    ring();
  }
  bool holds(uint32_t slice = 0) { return part(slice).turn.load() != part(slice).drained.load(); }
  bool over(uint32_t slice = 0) { return part(slice).until_ns.load() <= server_.now_ns(); }
  void drain(uint32_t wants, uint32_t slice = 0) {
    part(slice).wants = wants;
    part(slice).drained = part(slice).turn.load();
    ring();
  }
  // Always has more to do.
  void work() {
    if (holds() && over()) drain(wire::kWantsTurn);
  }
  void leave() { server_.turns().leave(server_.now_ns(), session_); }

 private:
  Server& server_;
  const uint64_t session_;
  const std::unique_ptr<wire::TurnPage> page_ = std::make_unique<wire::TurnPage>();
};

// Its number may come when workers have joined. The first one stays.
TEST(LeaseTurns, AGangIsNumberedOnce) {
  Server server;
  server.open(1, slice(500'000));
  server.open(2, slice(1'000'000));
  Worker early(&server, 11, 1);
  EXPECT_EQ(early.part().ends_exactly, 0u);
  server.turns().set_gang(1, 0);
  EXPECT_FALSE(server.turns().in_gang(1));
  server.turns().set_gang(1, 5);
  server.turns().set_gang(1, 0);
  EXPECT_TRUE(server.turns().in_gang(1));
  EXPECT_EQ(early.part().ends_exactly, 1u);
  Worker late(&server, 12, 1);
  EXPECT_EQ(late.part().ends_exactly, 1u);
  server.turns().set_gang(2, 5);
  EXPECT_FALSE(server.turns().in_gang(2)) << "a whole GPU needs no turns";
  server.turns().set_gang(3, 5);
  EXPECT_FALSE(server.turns().in_gang(3)) << "there is no such lease";
}

TEST(LeaseTurns, SharesArriveAndTurnsDoNotOverlap) {
  Server server;
  server.open(1, slice(250'000));
  server.open(2, slice(750'000));
  Worker one(&server, 11, 1), two(&server, 12, 2);
  one.want();
  two.want();
  uint64_t had_ns = 0;
  for (const uint64_t end_ns = server.now_ns() + 2 * kSecond; server.now_ns() < end_ns;
       server.sleep(kStepNs)) {
    ASSERT_FALSE(one.holds() && two.holds());
    had_ns += two.holds() ? kStepNs : 0;
    one.work();
    two.work();
  }
  const wire::SliceUse first = server.use_of(1), second = server.use_of(2);
  const auto used_ns = static_cast<double>(first.used_ns + second.used_ns);
  EXPECT_NEAR(used_ns, 2 * kSecond, kMs);
  EXPECT_NEAR(static_cast<double>(first.used_ns) / used_ns, 0.25, 0.01);
  EXPECT_NEAR(first.recent_millionths, 250'000, 10'000);
  EXPECT_TRUE(second.measured);
  EXPECT_NEAR(static_cast<double>(first.waited_ns + first.used_ns), used_ns, kMs);
  EXPECT_NEAR(static_cast<double>(had_ns), static_cast<double>(second.used_ns), 5 * kMs);
  EXPECT_GE(server.turns().turns_given(0), 50u);
  EXPECT_EQ(server.turns().used_ns(server.now_ns(), 0), first.used_ns + second.used_ns);
}

TEST(LeaseTurns, AloneATurnLastsUntilAnotherComes) {
  Server server;
  server.open(1, slice(100'000));
  server.open(2, slice(100'000));
  Worker one(&server, 11, 1), two(&server, 12, 2);
  one.want();
  ASSERT_TRUE(one.holds());
  EXPECT_EQ(one.part().until_ns.load(), wire::kTurnWithoutEnd);
  const uint64_t wide_ns = one.part().window_ns.load();
  server.sleep(15 * kMs);
  two.want();
  EXPECT_LE(one.part().until_ns.load(), server.now_ns() + 15 * kMs)
      << "more than a quantum of two is left";
  EXPECT_LT(one.part().window_ns.load(), wide_ns);
  EXPECT_FALSE(two.holds());
  one.drain(wire::kWantsNothing);
  ASSERT_TRUE(two.holds());
  EXPECT_EQ(two.part().until_ns.load(), wire::kTurnWithoutEnd);
  // The neighbour may be back soon. Until it has stayed away for a while, little may be unfinished.
  const uint64_t alone_ns = server.now_ns();
  ASSERT_TRUE(server.eventually([&] { return two.part().window_ns.load() == wide_ns; }));
  EXPECT_NEAR(static_cast<double>(server.now_ns() - alone_ns), kSecond, 2 * kMs);
}

// The worker is about to have its turn. From here on it need not sleep.
TEST(LeaseTurns, TheNextWorkerIsWokenWhenATurnEnds) {
  Server server;
  server.open(1, slice(500'000));
  server.open(2, slice(500'000));
  Worker one(&server, 11, 1), two(&server, 12, 2);
  one.want();
  two.want();
  woken.clear();
  ASSERT_TRUE(server.eventually([&] { return !woken.empty(); }));
  EXPECT_EQ(woken, std::vector<const wire::TurnPart*>{&two.part()});
  EXPECT_TRUE(one.over());
  EXPECT_LE(server.now_ns(), one.part().until_ns.load() + kStepNs);
  EXPECT_FALSE(two.holds());
}

TEST(LeaseTurns, AWorkerThatHangsInItsTurnDoesNotStopTheOthers) {
  Server server(30 * kMs);
  server.open(1, slice(500'000));
  server.open(2, slice(500'000));
  Worker one(&server, 11, 1), two(&server, 12, 2);
  one.want();
  two.want();
  ASSERT_TRUE(server.eventually([&] { return two.holds(); }));
  EXPECT_GE(server.now_ns(), one.part().until_ns.load() + 30 * kMs);
  EXPECT_LE(server.now_ns(), one.part().until_ns.load() + 30 * kMs + kStepNs);
  EXPECT_TRUE(one.holds());
  const uint64_t hung_ns = server.use_of(1).used_ns;
  server.sleep(20 * kMs);
  EXPECT_NEAR(static_cast<double>(server.use_of(1).used_ns),
              static_cast<double>(hung_ns + 10 * kMs), 50 * kUs)
      << "it pays for its half";
  // The same turn continues now and then, because it may be waiting for its own next launch.
  const uint32_t turn = one.part().turn.load();
  const uint64_t until_ns = one.part().until_ns.load();
  ASSERT_TRUE(server.eventually([&] { return one.part().until_ns.load() > until_ns; }));
  EXPECT_EQ(one.part().turn.load(), turn);
}

// The hardware then divides only what is queued. So the holder of the turn may queue more than its
// slice lasts.
TEST(LeaseTurns, BesideAHungWorkerSlicesAreShortAndQueuesLong) {
  Server server(30 * kMs);
  server.open(1, slice(500'000));
  server.open(2, slice(250'000));
  Worker hung(&server, 11, 1), other(&server, 12, 2);
  hung.want();
  other.want();
  ASSERT_TRUE(server.eventually([&] { return other.holds(); }));
  EXPECT_EQ(hung.part().hardware_slice_us.load(), 1'500u);
  EXPECT_EQ(other.part().hardware_slice_us.load(), 3'000u);
  EXPECT_GE(other.part().window_ns.load(), 2 * other.part().hardware_slice_us.load() * 1000u);
  hung.drain(wire::kWantsNothing);
  EXPECT_EQ(hung.part().hardware_slice_us.load(), 20'000u);
  EXPECT_EQ(other.part().hardware_slice_us.load(), 10'000u);
  EXPECT_LT(other.part().window_ns.load(), 2 * kMs);
}

TEST(LeaseTurns, SessionsOfOneLeaseHaveTheirTurnsTogether) {
  Server server;
  server.open(1, slice(500'000));
  server.open(2, slice(500'000));
  Worker first(&server, 11, 1), second(&server, 12, 1), other(&server, 13, 2);
  first.want();
  ASSERT_TRUE(first.holds());
  EXPECT_FALSE(second.holds());
  second.want();  // joins
  ASSERT_TRUE(second.holds());
  other.want();
  ASSERT_NE(first.part().until_ns.load(), wire::kTurnWithoutEnd);
  EXPECT_EQ(second.part().until_ns.load(), first.part().until_ns.load());
  ASSERT_TRUE(server.eventually([&] { return first.over(); }));
  first.drain(wire::kWantsTurn);
  server.sleep(10 * kMs);
  EXPECT_FALSE(other.holds());  // the second is still working
  second.drain(wire::kWantsTurn);
  ASSERT_TRUE(other.holds());
  EXPECT_FALSE(first.holds());
  other.drain(wire::kWantsNothing);
  EXPECT_TRUE(first.holds() && second.holds());
}

TEST(LeaseTurns, TheWholeGpuIsFreeAndMayBecomeShared) {
  Server server;
  server.open(1, slice(1'000'000));
  server.open(2, slice(500'000, true));
  Worker whole(&server, 11, 1), packed(&server, 12, 2);
  EXPECT_EQ(whole.part().regime.load(), wire::TurnRegime::kFree);
  EXPECT_EQ(whole.part().hardware_slice_us.load(), 0u);
  EXPECT_EQ(packed.part().regime.load(), wire::TurnRegime::kFree);
  EXPECT_FALSE(server.use_of(1).measured);
  server.change(1, slice(500'000), {wire::SharePolicy::kCap, 3});
  EXPECT_EQ(whole.part().regime.load(), wire::TurnRegime::kTurns);
  EXPECT_EQ(whole.part().share_millionths.load(), 500'000u);
  EXPECT_EQ(whole.part().hardware_slice_us.load(), 20'000u);
  whole.want();
  ASSERT_TRUE(whole.holds());
  EXPECT_NE(whole.part().until_ns.load(), wire::kTurnWithoutEnd);  // its lease is capped
  server.sleep(5 * kMs);
  whole.drain(wire::kWantsTurn);
  const uint32_t turn = whole.part().turn.load();
  woken.clear();
  server.change(1, slice(1'000'000));
  EXPECT_EQ(whole.part().regime.load(), wire::TurnRegime::kFree);
  EXPECT_NE(whole.part().turn.load(), turn);  // nobody sleeps on it any more
  EXPECT_EQ(woken, std::vector<const wire::TurnPart*>{&whole.part()});
  EXPECT_EQ(server.use_of(1).used_ns, 5 * kMs);
}

// The lease's calls have one order. So a turn on one of its GPUs is soon useless without the other.
TEST(LeaseTurns, APausedLeaseGetsNoTurnUntilItIsResumed) {
  Server server;
  server.open(1, slice(500'000));
  server.open(2, slice(500'000));
  Worker one(&server, 11, 1), two(&server, 12, 2);
  one.want();
  ASSERT_TRUE(one.holds());
  server.turns().pause(server.now_ns(), 1, true);
  EXPECT_TRUE(one.over());  // although nobody else wanted the GPU
  one.drain(wire::kWantsTurn);
  server.sleep(kSecond);
  EXPECT_FALSE(one.holds());
  two.want();
  EXPECT_TRUE(two.holds());
  EXPECT_EQ(two.part().until_ns.load(), wire::kTurnWithoutEnd);
  const uint64_t before_ns = server.use_of(1).used_ns;
  server.sleep(kSecond);
  EXPECT_EQ(server.use_of(1).used_ns, before_ns);
  // It need not ring again.
  server.turns().pause(server.now_ns(), 1, false);
  EXPECT_TRUE(server.eventually([&] {
    two.work();
    return one.holds() && !one.over();
  }));
}

TEST(LeaseTurns, AWorkerThatComesToAPausedLeaseWaits) {
  Server server;
  server.open(1, slice(1'000'000));
  server.turns().pause(server.now_ns(), 1, true);
  Worker one(&server, 11, 1);
  EXPECT_EQ(one.part().regime.load(), wire::TurnRegime::kTurns);
  one.want();
  server.sleep(kSecond);
  EXPECT_FALSE(one.holds());
  server.turns().pause(server.now_ns(), 1, false);
  EXPECT_EQ(one.part().regime.load(), wire::TurnRegime::kFree);
}

TEST(LeaseTurns, AWholeGpuIsPausedAndResumed) {
  Server server;
  server.open(1, slice(1'000'000));
  Worker one(&server, 11, 1);
  EXPECT_EQ(one.part().regime.load(), wire::TurnRegime::kFree);
  server.turns().pause(server.now_ns(), 1, true);
  EXPECT_EQ(one.part().regime.load(), wire::TurnRegime::kTurns);
  EXPECT_TRUE(one.over());
  one.want();
  server.sleep(kSecond);
  EXPECT_FALSE(one.holds());
  server.turns().pause(server.now_ns(), 1, false);
  EXPECT_EQ(one.part().regime.load(), wire::TurnRegime::kFree);
  EXPECT_EQ(one.part().until_ns.load(), wire::kTurnWithoutEnd);
}

TEST(LeaseTurns, ASliceThatIsShrunkWhilePausedComesBackSmaller) {
  Server server;
  server.open(1, slice(1'000'000));
  Worker one(&server, 11, 1);
  server.turns().pause(server.now_ns(), 1, true);
  one.want();
  server.change(1, slice(500'000));
  server.sleep(kSecond);
  EXPECT_FALSE(one.holds());
  server.turns().pause(server.now_ns(), 1, false);
  EXPECT_EQ(one.part().regime.load(), wire::TurnRegime::kTurns);
  EXPECT_TRUE(one.holds());
  EXPECT_FALSE(one.over());
}

TEST(LeaseTurns, ALeaseHasItsTurnsOnSeveralGpusTogether) {
  Server server;
  server.open(1, halves({0, 1}));
  server.open(2, halves({0}));
  server.open(3, halves({1}));
  Worker both(&server, 11, 1), first(&server, 12, 2), second(&server, 13, 3);
  first.want();
  second.want();
  ASSERT_TRUE(first.holds() && second.holds());
  both.want(1, wire::kWantsTurnToo);
  server.sleep(20 * kMs);
  EXPECT_EQ(second.part().until_ns.load(),
            wire::kTurnWithoutEnd);  // without the other GPU the turn is not wanted
  both.want(0);
  ASSERT_TRUE(server.eventually([&] { return first.over(); }));
  first.drain(wire::kWantsTurn);
  ASSERT_TRUE(both.holds(0));
  EXPECT_GT(both.part(0).await_ns.load(), 0u);
  ASSERT_TRUE(server.eventually([&] { return second.over(); }));
  EXPECT_FALSE(both.holds(1));
  second.drain(wire::kWantsTurn);
  ASSERT_TRUE(both.holds(1));  // it did not ask
  // They also end together, whichever ends first.
  ASSERT_TRUE(server.eventually([&] { return both.over(0); }));
  EXPECT_LE(both.part(1).until_ns.load(), both.part(0).until_ns.load() + 5 * kMs);
  EXPECT_TRUE(both.holds(0) && both.holds(1));
}

TEST(LeaseTurns, OfTwoLeasesThatHoldOneGpuEachOneGetsBoth) {
  Server server;
  server.open(1, halves({0, 1}));
  server.open(2, halves({0, 1}));
  Worker one(&server, 11, 1), two(&server, 12, 2);
  one.want(0);
  two.want(1);
  ASSERT_TRUE(one.holds(0) && two.holds(1));
  // Each now waits for the other's GPU, and gives up its own.
  two.part(0).wants = wire::kWantsTurn;
  one.want(1);
  two.drain(wire::kWantsTurnToo, 1);
  ASSERT_TRUE(one.holds(1));
  EXPECT_TRUE(one.holds(0));
  ASSERT_TRUE(server.eventually([&] { return one.over(0); }));
  one.drain(wire::kWantsTurn, 0);
  one.drain(wire::kWantsTurnToo, 1);
  EXPECT_TRUE(two.holds(0) && two.holds(1));
}

TEST(LeaseTurns, HardwareSlicesFollowTheShares) {
  for (const bool wanted : {true, false}) {
    Server server(kSecond, wanted);
    const std::pair<uint32_t, uint32_t> cases[] = {
        {10'000, 1'000}, {100'000, 4'000}, {500'000, 20'000}, {900'000, 30'000}};
    uint64_t id = 1;
    for (const auto& [share, us] : cases) {
      server.open(id, slice(share));
      Worker worker(&server, 100 + id, id);
      EXPECT_EQ(worker.part().hardware_slice_us.load(), wanted ? us : 0u);
      worker.leave();
      server.turns().close(server.now_ns(), id++);
    }
  }
}

std::vector<wire::SliceGrant> quarter() { return slice(250'000); }

// Its neighbour's turn ends with unfinished work. Afterwards the same turn continues.
TEST(LeaseTurns, AHigherClassGetsItsTurnAtOnce) {
  for (const bool hardware_slices : {true, false}) {
    Server server(120 * kMs, hardware_slices);
    server.open(1, slice(500'000));
    server.open(2, quarter());
    server.change(2, quarter(), {.priority = 1});
    Worker low(&server, 11, 1), high(&server, 12, 2);
    low.want();
    server.sleep(5 * kMs);
    ASSERT_TRUE(low.holds());
    const uint32_t turn = low.part().turn.load();
    high.want();
    EXPECT_TRUE(low.over());
    EXPECT_EQ(high.holds(), hardware_slices);
    if (!hardware_slices) continue;  // it waits until the running work is done
    const uint64_t used_ns = server.use_of(1).used_ns;
    server.sleep(kMs);
    EXPECT_EQ(server.use_of(1).used_ns, used_ns) << "the other one's time is not its";
    high.drain(wire::kWantsNothing);
    EXPECT_TRUE(low.holds());
    EXPECT_FALSE(low.over());
    EXPECT_EQ(low.part().turn.load(), turn);
    EXPECT_NEAR(static_cast<double>(low.part().preempted_ns.load()), kMs, 2.0 * kStepNs);
    EXPECT_NEAR(static_cast<double>(server.use_of(2).used_ns), kMs, 2.0 * kStepNs);
  }
}

TEST(LeaseTurns, AWorkerThatHangsIsOverdueAlsoWhereOneOfAHigherClassComesAgainAndAgain) {
  Server server(30 * kMs);
  for (uint64_t lease = 1; lease <= 3; ++lease) server.open(lease, quarter());
  server.change(3, quarter(), {.priority = 1});
  Worker hung(&server, 11, 1), other(&server, 12, 2), high(&server, 13, 3);
  hung.want();
  server.sleep(kMs);
  other.want();
  for (int i = 0; i < 200 && !other.holds(); ++i) {
    high.want();
    EXPECT_TRUE(high.holds());
    server.sleep(300 * kUs);
    high.drain(wire::kWantsNothing);
    server.sleep(2 * kMs);
  }
  EXPECT_TRUE(other.holds());
  EXPECT_LE(server.now_ns(),
            kSecond + 80 * kMs);  // a turn, the grace, and the others' part of both
}

TEST(LeaseTurns, HardwareSlicesFollowTheClasses) {
  Server server;
  server.open(1, slice(500'000));
  server.open(2, quarter());
  Worker low(&server, 11, 1), high(&server, 12, 2);
  low.want();
  EXPECT_EQ(low.part().hardware_slice_us.load(), 20'000u);
  server.change(2, quarter(), {.priority = 1});
  EXPECT_EQ(low.part().hardware_slice_us.load(), 100u);
  EXPECT_EQ(high.part().hardware_slice_us.load(), 20'000u);
  server.change(2, quarter());
  EXPECT_EQ(low.part().hardware_slice_us.load(), 20'000u);
  EXPECT_EQ(high.part().hardware_slice_us.load(), 10'000u);
}

// A worker that rings and writes nonsense costs the others nothing.
TEST(LeaseTurns, AHostileWorkerTakesNobodysTurn) {
  Server server(20 * kMs);
  server.open(1, slice(500'000));
  server.open(2, slice(500'000));
  Worker hostile(&server, 11, 1), honest(&server, 12, 2);
  honest.want();
  uint64_t had_ns = 0;
  uint32_t i = 0;
  for (const uint64_t end_ns = server.now_ns() + kSecond; server.now_ns() < end_ns;
       server.sleep(kStepNs), ++i) {
    wire::TurnPart& part = hostile.part();
    part.wants = i * 2654435761u;
    part.drained = i % 7;
    part.turn = i;
    part.until_ns = i;
    hostile.ring();
    had_ns += honest.holds() ? kStepNs : 0;
    honest.work();
  }
  EXPECT_GE(had_ns, kSecond / 2);
}

uint64_t processor_ns() {
  timespec used = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<uint64_t>(used.tv_sec) * kSecond + static_cast<uint64_t>(used.tv_nsec);
}

// Tenants on four GPUs. One of `launching` has a launch each millisecond, of 0.2 ms. Returns the
// processor time for one of them.
uint64_t launch_cost_ns(uint64_t tenants, uint64_t launching) {
  Server server;
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint64_t lease = 1; lease <= tenants; ++lease) {
    std::vector<wire::SliceGrant> grant = slice(4'000);
    grant[0].gpu_index = static_cast<uint32_t>(lease % 4);
    server.open(lease, grant);
    workers.push_back(std::make_unique<Worker>(&server, tenants + lease, lease));
  }
  constexpr uint64_t kLaunches = 4'000;
  uint64_t given = 0;
  const uint64_t before_ns = processor_ns();
  for (uint64_t launch = 0; launch < kLaunches; ++launch) {
    Worker& worker = *workers[launch % launching];
    worker.want();
    given += worker.holds() ? 1 : 0;
    server.sleep(200 * kUs);
    worker.drain(wire::kWantsNothing);
    server.sleep(800 * kUs);
  }
  const uint64_t cost_ns = (processor_ns() - before_ns) / kLaunches;
  EXPECT_EQ(given, kLaunches);
  return cost_ns;
}

TEST(LeaseTurns, TenantsWithoutWorkCostNothing) {
  const uint64_t few_ns = launch_cost_ns(40, 40), many_ns = launch_cost_ns(4000, 40);
  EXPECT_LT(many_ns, 3 * few_ns + 5 * kUs);
  // A launch a second each: a tenth of a processor would be 100 us for each launch.
  EXPECT_LT(launch_cost_ns(1000, 1000), 50 * kUs);
}

TEST(LeaseTurns, EndingALeaseCostsTheSameAmongThousands) {
  Server server;
  const auto end_all_ns = [&server](uint64_t leases) {
    for (uint64_t lease = 1; lease <= leases; ++lease) {
      std::vector<wire::SliceGrant> grant = slice(1'000);
      grant[0].gpu_index = static_cast<uint32_t>(lease % 4);
      server.open(lease, grant);
    }
    const uint64_t before_ns = processor_ns();
    for (uint64_t lease = 1; lease <= leases; ++lease) server.turns().close(server.now_ns(), lease);
    return (processor_ns() - before_ns) / leases;
  };
  const uint64_t few_ns = end_all_ns(40);
  EXPECT_LT(end_all_ns(4000), 3 * few_ns + 5 * kUs);
}

// The window of a turn without end is wide only if no other tenant wanted the GPU of late. This
// must hold when the tenant that was last is the one whose turn it is, or has gone.
TEST(LeaseTurns, AWindowIsNarrowWhileANeighbourIsNear) {
  Server server;
  for (const uint64_t lease : {1, 2, 3}) server.open(lease, slice(100'000));
  Worker one(&server, 11, 1), two(&server, 12, 2), three(&server, 13, 3);
  const auto visit = [&server](Worker* worker) {
    worker->want();
    server.sleep(kMs);
    worker->drain(wire::kWantsNothing);
    server.sleep(kMs);
  };
  one.want();
  const uint64_t wide_ns = one.part().window_ns.load();
  one.drain(wire::kWantsNothing);
  visit(&two);
  visit(&three);
  one.want();
  const uint64_t narrow_ns = one.part().window_ns.load();
  EXPECT_LT(narrow_ns, wide_ns);
  one.drain(wire::kWantsNothing);
  three.leave();
  server.turns().close(server.now_ns(), 3);
  one.want();
  EXPECT_EQ(one.part().window_ns.load(), narrow_ns) << "the second is still near";
  server.sleep(1100 * kMs);
  EXPECT_EQ(one.part().window_ns.load(), wide_ns);
  two.want();
  EXPECT_EQ(one.part().window_ns.load(), narrow_ns);
}

}  // namespace
}  // namespace tendril::lease

// SPDX-License-Identifier: Apache-2.0
// The ladder on simulated time: each cause alone, then all of them by chance with seeds.
#include "pool/life/life.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

namespace tendril::pool {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class Lease {
 public:
  LifeRules rules;
  LifeFacts facts;
  Life life;
  int64_t now_ns = 0;
  std::vector<std::string> log;  // "300 warn", ...
  std::vector<LifeAction> actions;

  Lease() {
    facts.use = {true, true, false, 0};
    rules.warn_s = 120;
  }
  // Asks every second, while the program is idle.
  void idle_until(int64_t second) {
    for (; now_ns <= second * kSecond; now_ns += kSecond) {
      step();
      facts.use.idle_ns += kSecond;
    }
  }
  void busy_until(int64_t second) {
    for (; now_ns <= second * kSecond; now_ns += kSecond) {
      facts.use.idle_ns = 0;
      step();
    }
  }
  // Asks only when it was told to.
  void alarms_until(int64_t second) {
    for (int64_t again_ns = now_ns; again_ns <= second * kSecond;) {
      now_ns = again_ns;
      again_ns = step();
      ASSERT_GT(again_ns, now_ns);
    }
    now_ns = second * kSecond;
  }
  int64_t step() {
    LifeAdvance advance = life.advance(rules, facts, now_ns);
    for (LifeAction& action : advance.actions) {
      log.push_back(std::to_string(now_ns / kSecond) + " " + life_act_name(action.act));
      actions.push_back(std::move(action));
    }
    return advance.again_ns;
  }
};

using Log = std::vector<std::string>;

TEST(Life, EndsAtItsLongestTimeAfterAWarning) {
  Lease lease;
  lease.rules.max_wall_s = 28'800;
  lease.alarms_until(30'000);
  EXPECT_EQ(lease.log, (Log{"28680 warn", "28800 end"}));
  EXPECT_EQ(lease.actions[0].text, "it reaches its longest time, 8 h: it ends in 2 min");
  EXPECT_EQ(lease.actions[0].next_s, 120u);
  EXPECT_EQ(lease.actions[0].gone_s, 120u);
  EXPECT_TRUE(lease.life.over());
}

TEST(Life, ALongestTimeShorterThanTheWarningHolds) {
  Lease lease;
  lease.rules.max_wall_s = 30;
  lease.alarms_until(100);
  EXPECT_EQ(lease.log, (Log{"0 warn", "30 end"}));
}

TEST(Life, WarnsAgainUnderANewSchedulerAndGivesTheWholeTime) {
  Lease lease;
  lease.rules.max_wall_s = 600;
  lease.now_ns = 590 * kSecond;
  lease.alarms_until(2'000);
  EXPECT_EQ(lease.log, (Log{"590 warn", "695 end"}));
}

TEST(Life, ALaterEndWithdrawsTheWarning) {
  Lease lease;
  lease.rules.max_wall_s = 600;
  lease.busy_until(500);
  lease.rules.max_wall_s = 1'200;
  lease.busy_until(1'200);
  EXPECT_EQ(lease.log, (Log{"480 warn", "501 resume", "1080 warn", "1200 end"}));
  EXPECT_EQ(lease.actions[1].text, "the warning is withdrawn");
}

TEST(Life, AFixedEndIsWarnedOfToo) {
  Lease lease;
  lease.facts.end_ns = 1'000 * kSecond;
  lease.facts.end_why = "maintenance of gpu3";
  lease.alarms_until(2'000);
  EXPECT_EQ(lease.log, (Log{"880 warn", "1000 end"}));
  EXPECT_EQ(lease.actions[0].text, "maintenance of gpu3: it ends in 2 min");
}

TEST(Life, AnIdleLeaseGoesDownTheLadderInItsOrder) {
  Lease lease;
  lease.rules.idle_timeout_s = 1'800;
  lease.rules.idle_steps = {Action::kShrink, Action::kPause, Action::kEnd};
  lease.facts.can_shrink = true;
  lease.idle_until(4'000);
  EXPECT_EQ(lease.log, (Log{"1800 warn", "2100 shrink", "2160 pause", "2460 end"}));
  EXPECT_EQ(lease.actions[0].text, "it did nothing for 30 min: it shrinks in 5 min");
  EXPECT_EQ(lease.actions[0].gone_s, 660u);
}

TEST(Life, WorkUndoesTheStepsOfIdleness) {
  Lease lease;
  lease.rules.idle_timeout_s = 100;
  lease.rules.idle_steps = {Action::kPause, Action::kEnd};
  lease.idle_until(450);
  lease.facts.use.waiting = true;  // a paused program cannot submit; it waits for a turn
  lease.step();
  lease.facts.use.waiting = false;
  lease.facts.use.idle_ns = 0;
  lease.busy_until(2'000);
  EXPECT_EQ(lease.log, (Log{"100 warn", "400 pause", "451 resume"}));
  EXPECT_EQ(lease.actions.back().text, "it has what it had before");
  EXPECT_FALSE(lease.life.paused());
}

TEST(Life, ParkingIsTheLastStepAndWorkEndsIt) {
  Lease lease;
  lease.rules.idle_timeout_s = 300;
  lease.rules.idle_grace_s = 60;
  lease.rules.idle_steps = {Action::kWarn, Action::kPark};
  lease.idle_until(5000);
  EXPECT_EQ(lease.log, (Log{"300 warn", "360 park"}));
  EXPECT_NE(lease.actions[0].text.find("it is parked in 60 s"), std::string::npos)
      << lease.actions[0].text;
  EXPECT_EQ(lease.actions[0].gone_s, UINT64_MAX) << "it never ends for that";
  lease.log.clear();
  lease.busy_until(5100);
  lease.idle_until(5600);
  EXPECT_EQ(lease.log, (Log{"5001 resume", "5401 warn", "5461 park"})) << "again, the whole way";
}

TEST(Life, UnknownUseCountsAsActive) {
  Lease lease;
  lease.rules.idle_timeout_s = 100;
  lease.rules.idle_unused_timeout_s = 100;
  lease.facts.use.known = false;
  lease.facts.use.attached = false;
  lease.idle_until(5'000);
  EXPECT_TRUE(lease.log.empty());
}

TEST(Life, WhatNothingAttachesToEnds) {
  Lease lease;
  lease.rules.idle_unused_timeout_s = 600;
  lease.rules.idle_timeout_s = 50;  // does not count before something attached
  lease.facts.use.attached = false;
  lease.idle_until(5'000);
  EXPECT_EQ(lease.log, (Log{"600 warn", "900 end"}));

  Lease attached;
  attached.rules.idle_unused_timeout_s = 600;
  attached.facts.use.attached = false;
  attached.idle_until(700);
  attached.facts.use.attached = true;
  attached.busy_until(5'000);
  EXPECT_EQ(attached.log, (Log{"600 warn", "701 resume"}));
}

TEST(Life, AReclaimWaitsForTheExemptTimeAndTheGrace) {
  Lease lease;
  lease.rules.preempt_exempt_s = 600;
  lease.rules.reclaim_steps = {Action::kShrink, Action::kRequeue, Action::kEnd};
  lease.facts.can_requeue = true;
  lease.facts.reclaim = true;
  lease.facts.reclaim_why = "nlp reclaims 2.0 top";
  EXPECT_EQ(reclaimed_by_ns(lease.rules, 0, 0, true), 900 * kSecond);
  lease.alarms_until(5'000);
  EXPECT_EQ(lease.log, (Log{"600 warn", "720 requeue", "840 end"}));
  EXPECT_EQ(lease.actions[0].text, "nlp reclaims 2.0 top: it is requeued in 2 min");
}

TEST(Life, StopsInTimeToBeStartedAgain) {
  Lease lease;
  lease.rules.max_wall_s = 600;
  lease.rules.wall_requeues = true;
  lease.facts.can_requeue = true;
  lease.alarms_until(5'000);
  EXPECT_EQ(lease.log, (Log{"480 warn", "540 requeue", "600 end"}));
}

TEST(Life, TakesItsRulesFromTheClass) {
  PoolPolicy policy = default_policy();
  policy.pause_limit_s = 77;
  UserClass batch;
  batch.max_wall_s = 1'000;
  batch.wall_action = {Action::kWarn, Action::kRequeue};
  batch.preempt_mode = {Action::kWarn, Action::kShrink, Action::kEnd};
  const LifeRules rules = life_rules(batch, policy, 0);
  EXPECT_EQ(rules.max_wall_s, 1'000u);
  EXPECT_EQ(life_rules(batch, policy, 500).max_wall_s, 500u);
  EXPECT_EQ(life_rules(UserClass{}, policy, 0).max_wall_s, 0u);
  EXPECT_TRUE(rules.wall_requeues);
  EXPECT_EQ(rules.idle_timeout_s, 0u);
  EXPECT_EQ(rules.pause_s, 77u);
  EXPECT_EQ(rules.warn_s, 300u);
  EXPECT_EQ(reclaimed_by_ns(rules, 0, 0, false), (600 + 120 + 60) * kSecond);
}

TEST(Life, AnOperatorMayAskForARequeue) {
  Lease lease;
  lease.rules.grace_s = 30;
  lease.facts.can_requeue = true;
  lease.idle_until(5);
  LifeAdvance asked = lease.life.ask_again(lease.rules, lease.facts, "by root", lease.now_ns);
  ASSERT_EQ(asked.actions.size(), 1u);
  EXPECT_EQ(asked.actions[0].act, LifeAct::kRequeue);
  EXPECT_EQ(asked.actions[0].next_s, 30u);
  EXPECT_EQ(asked.actions[0].text, "by root");
  EXPECT_TRUE(
      lease.life.ask_again(lease.rules, lease.facts, "again", lease.now_ns).actions.empty());
  lease.idle_until(60);
  EXPECT_EQ(lease.log, Log{"36 end"}) << "it did not stop";
}

TEST(Life, WhatCannotBeRequeuedEnds) {
  Lease lease;
  lease.rules.reclaim_steps = {Action::kRequeue};
  lease.facts.reclaim = true;
  lease.alarms_until(5'000);
  EXPECT_EQ(lease.log, (Log{"0 warn", "120 end"}));
}

TEST(Life, AProgramThatIsToSaveItsWorkIsNotPaused) {
  Lease lease;
  lease.rules.reclaim_steps = {Action::kPause, Action::kRequeue};
  lease.facts.can_requeue = true;
  lease.facts.reclaim = true;
  lease.alarms_until(5'000);
  EXPECT_EQ(lease.log, (Log{"0 warn", "120 pause", "420 resume", "420 requeue", "540 end"}));
}

TEST(Life, APauseIsBoundedEvenIfNoStepFollows) {
  Lease lease;
  lease.rules.reclaim_steps = {Action::kPause};
  lease.facts.reclaim = true;
  lease.alarms_until(5'000);
  EXPECT_EQ(lease.log, (Log{"0 warn", "120 pause", "420 resume"}));
  EXPECT_EQ(reclaimed_by_ns(lease.rules, 0, 0, true), kNever);
}

TEST(Life, AReclaimThatIsNoLongerNeededIsUndone) {
  Lease lease;
  lease.rules.reclaim_steps = {Action::kShrink, Action::kEnd};
  lease.facts.can_shrink = true;
  lease.facts.reclaim = true;
  lease.busy_until(150);
  lease.facts.reclaim = false;
  lease.busy_until(1'000);
  EXPECT_EQ(lease.log, (Log{"0 warn", "120 shrink", "151 resume"}));
}

TEST(Life, WhatAnEarlierSchedulerPausedIsResumed) {
  Lease lease;
  lease.life = Life(true, true);
  lease.busy_until(10);
  EXPECT_EQ(lease.log, (Log{"0 resume"}));
}

TEST(Life, AGangIsActiveIfOnePartIs) {
  const LifeUse idle{true, true, false, 500 * kSecond}, busy{true, true, false, 3};
  const LifeUse unused{true, false, false, 900 * kSecond}, unknown{};
  EXPECT_EQ(together({idle, busy}).idle_ns, 3);
  EXPECT_TRUE(together({idle, busy}).known);
  EXPECT_TRUE(together({idle, unused}).attached);
  EXPECT_FALSE(together({idle, unknown}).known);
  EXPECT_FALSE(together({}).known);
}

// Whatever the rules and facts are: the promises of README.md hold.
class Chance {
 public:
  explicit Chance(uint64_t seed) : random_(seed) {
    rules_.max_wall_s = pick(3) ? 0 : 100 + pick(4'000);
    rules_.warn_s = pick(300);
    rules_.idle_timeout_s = pick(3) ? 50 + pick(500) : 0;
    rules_.idle_unused_timeout_s = pick(3) ? 50 + pick(500) : 0;
    rules_.idle_grace_s = pick(400);
    rules_.grace_s = pick(200);
    rules_.preempt_exempt_s = pick(600);
    rules_.pause_s = 1 + pick(300);
    rules_.step_s = pick(100);
    rules_.idle_steps = steps();
    rules_.reclaim_steps = steps();
    facts_.can_requeue = pick(2);
    facts_.can_shrink = pick(2);
    facts_.use.known = true;
  }

  void run() {
    for (now_ns_ = 0; now_ns_ < 20'000 * kSecond && !life_.over();) {
      change();
      const LifeAdvance advance = life_.advance(rules_, facts_, now_ns_);
      for (const LifeAction& action : advance.actions) check(action);
      EXPECT_TRUE(life_.advance(rules_, facts_, now_ns_).actions.empty());
      if (life_.paused()) {
        EXPECT_LE(now_ns_ - paused_ns_, 2 * static_cast<int64_t>(rules_.pause_s) * kSecond);
      }
      if (life_.over()) break;
      ASSERT_GT(advance.again_ns, now_ns_);
      const int64_t step_ns =
          std::min(advance.again_ns - now_ns_, static_cast<int64_t>(1 + pick(60)) * kSecond);
      now_ns_ += step_ns;
      facts_.use.idle_ns += step_ns;
    }
  }

 private:
  uint64_t pick(uint64_t below) { return random_() % below; }
  std::vector<Action> steps() {
    std::vector<Action> chosen;
    for (int i = 0; i <= static_cast<int>(Action::kEnd); ++i) {
      if (pick(2)) chosen.push_back(static_cast<Action>(i));
    }
    return chosen;
  }

  void change() {
    if (pick(200) == 0) facts_.use.attached = true;
    if (pick(50) == 0) facts_.use.idle_ns = 0;
    if (pick(300) == 0) facts_.use.known = !facts_.use.known;
    if (pick(100) == 0) facts_.reclaim = !facts_.reclaim;
    if (pick(2'000) == 0) facts_.end_ns = now_ns_ + static_cast<int64_t>(pick(900)) * kSecond;
    if (pick(500) == 0) facts_.end_ns = kNever;
  }

  void check(const LifeAction& action) {
    const size_t cause = static_cast<size_t>(action.cause);
    const int64_t seconds = (now_ns_ - warned_ns_[cause]) / kSecond;
    EXPECT_EQ(action.shrunk, life_.shrunk());
    switch (action.act) {
      case LifeAct::kWarn:
        warned_ns_[cause] = now_ns_;
        warned_[cause] = true;
        return;
      case LifeAct::kResume:
        return;
      case LifeAct::kPause:
        paused_ns_ = now_ns_;
        break;
      case LifeAct::kShrink:
        EXPECT_TRUE(facts_.can_shrink);
        break;
      case LifeAct::kPark:
        EXPECT_EQ(action.cause, LifeCause::kIdle);
        EXPECT_EQ(rules_.idle_steps.back(), Action::kPark);
        break;
      case LifeAct::kRequeue:
        EXPECT_TRUE(facts_.can_requeue);
        EXPECT_FALSE(life_.paused());
        requeued_ = true;
        break;
      case LifeAct::kEnd:
        if (requeued_) return;
        break;
    }
    const bool idle = action.cause == LifeCause::kIdle || action.cause == LifeCause::kUnused;
    const bool reclaim = action.cause == LifeCause::kReclaim;
    const uint64_t grace = idle ? rules_.idle_grace_s : reclaim ? rules_.grace_s : 0;
    EXPECT_GE(seconds, static_cast<int64_t>(grace));
    EXPECT_TRUE(warned_[cause] || rules_.warn_s == 0);
    if (action.cause == LifeCause::kIdle) {
      EXPECT_TRUE(facts_.use.known);
    }
    if (reclaim) {
      EXPECT_GE(now_ns_, static_cast<int64_t>(rules_.preempt_exempt_s) * kSecond);
    }
  }

  std::mt19937_64 random_;
  LifeRules rules_;
  LifeFacts facts_;
  Life life_;
  int64_t now_ns_ = 0, paused_ns_ = 0;
  int64_t warned_ns_[5] = {};
  bool warned_[5] = {};
  bool requeued_ = false;
};

TEST(Life, KeepsItsPromisesWhateverHappens) {
  const char* only = getenv("TENDRIL_SEED");
  const uint64_t first = only ? strtoull(only, nullptr, 10) : 1;
  for (uint64_t seed = first; seed < (only ? first + 1 : 2'000); ++seed) {
    Chance(seed).run();
    if (HasFailure()) FAIL() << "TENDRIL_SEED=" << seed << " replays it";
  }
}

}  // namespace
}  // namespace tendril::pool

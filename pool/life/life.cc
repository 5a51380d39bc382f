// SPDX-License-Identifier: Apache-2.0
// The ladders of one lease: what each cause asks for now, and what follows from all of them
// together.
#include "pool/life/life.h"

#include <algorithm>

namespace tendril::pool {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr uint64_t kMostSeconds = 1'000'000'000;  // thirty years: sums never overflow

int64_t span_ns(uint64_t seconds) {
  return static_cast<int64_t>(std::min(seconds, kMostSeconds)) * kSecondNs;
}

int64_t sum_ns(int64_t time_ns, uint64_t seconds) {
  const int64_t span = span_ns(seconds);
  return time_ns > kNever - span ? kNever : time_ns + span;
}

uint64_t seconds_until(int64_t time_ns, int64_t now_ns) {
  if (time_ns == kNever) return UINT64_MAX;
  return time_ns <= now_ns ? 0 : static_cast<uint64_t>((time_ns - now_ns) / kSecondNs);
}

std::string span_text(uint64_t seconds) {
  if (seconds >= 86'400 && seconds % 86'400 == 0) return std::to_string(seconds / 86'400) + " d";
  if (seconds >= 3'600 && seconds % 3'600 == 0) return std::to_string(seconds / 3'600) + " h";
  if (seconds >= 120 && seconds % 60 == 0) return std::to_string(seconds / 60) + " min";
  return std::to_string(seconds) + " s";
}

const char* third_person(Action step) {
  switch (step) {
    case Action::kShrink:
      return "shrinks";
    case Action::kPause:
      return "pauses";
    case Action::kRequeue:
      return "is requeued";
    case Action::kPark:
      return "is parked";
    case Action::kWarn:
    case Action::kEnd:
      return "ends";
  }
  return "ends";
}

// What a step of the class is for this lease. Nothing: it is left out.
std::optional<Action> step_for(Action step, bool can_shrink, bool can_requeue) {
  if (step == Action::kWarn || (step == Action::kShrink && !can_shrink)) return {};
  if (step == Action::kRequeue && !can_requeue) return Action::kEnd;
  return step;
}

bool leaves(Action step) { return step == Action::kRequeue || step == Action::kEnd; }

uint64_t length_s(const LifeRules& rules, Action step) {
  return step == Action::kPause ? rules.pause_s : rules.step_s;
}

// A program that is told to stop needs some time even if the class gives none.
uint64_t stop_s(const LifeRules& rules) { return std::max<uint64_t>(rules.grace_s, 10); }

}  // namespace

struct Life::Call {
  const LifeRules& rules;
  const LifeFacts& facts;
  int64_t now_ns;
  LifeAdvance out;
  bool calmed = false;  // a cause is gone
  LifeCause changed = LifeCause::kIdle;
  std::string why;
  std::optional<LifeAction> leaving;  // kRequeue or kEnd: the last action

  void again(int64_t time_ns) { out.again_ns = std::min(out.again_ns, time_ns); }
};

const char* life_cause_name(LifeCause cause) {
  switch (cause) {
    case LifeCause::kMaxWall:
      return "longest time";
    case LifeCause::kFixedEnd:
      return "fixed end";
    case LifeCause::kIdle:
      return "idle";
    case LifeCause::kUnused:
      return "unused";
    case LifeCause::kReclaim:
      return "reclaim";
  }
  return "unknown";
}

const char* life_act_name(LifeAct act) {
  switch (act) {
    case LifeAct::kWarn:
      return "warn";
    case LifeAct::kShrink:
      return "shrink";
    case LifeAct::kPause:
      return "pause";
    case LifeAct::kResume:
      return "resume";
    case LifeAct::kRequeue:
      return "requeue";
    case LifeAct::kEnd:
      return "end";
    case LifeAct::kPark:
      return "park";
  }
  return "unknown";
}

LifeRules life_rules(const UserClass& user_class, const PoolPolicy& policy, uint64_t wall_s) {
  const auto limit = [](uint64_t value_s) { return value_s == kUnlimited ? 0 : value_s; };
  LifeRules rules;
  rules.max_wall_s =
      limit(wall_s == 0 ? user_class.max_wall_s : std::min(wall_s, user_class.max_wall_s));
  rules.warn_s = user_class.warn_time_s;
  for (const Action action : user_class.wall_action) {
    rules.wall_requeues = rules.wall_requeues || action == Action::kRequeue;
  }
  rules.idle_timeout_s = limit(user_class.idle_timeout_s);
  rules.idle_unused_timeout_s = limit(user_class.idle_unused_timeout_s);
  rules.idle_grace_s = user_class.idle_grace_s;
  rules.idle_steps = user_class.idle_action;
  rules.grace_s = user_class.grace_time_s;
  rules.preempt_exempt_s = user_class.preempt_exempt_time_s;
  rules.reclaim_steps = user_class.preempt_mode;
  rules.pause_s = policy.pause_limit_s;
  return rules;
}

LifeUse together(const std::vector<LifeUse>& parts) {
  LifeUse all;
  if (parts.empty()) return all;
  all.known = true;
  all.idle_ns = INT64_MAX;
  for (const LifeUse& part : parts) {
    all.known = all.known && part.known;
    all.attached = all.attached || part.attached;
    all.waiting = all.waiting || part.waiting;
    all.idle_ns = std::min(all.idle_ns, part.idle_ns);
  }
  return all;
}

LifeAdvance Life::advance(const LifeRules& rules, const LifeFacts& facts, int64_t now_ns) {
  Call call{rules, facts, now_ns, {}, false, LifeCause::kIdle, {}, {}};
  if (over_) return std::move(call.out);
  if (requeue_end_ns_ != kNever) {
    if (now_ns >= requeue_end_ns_) {
      leave(&call, LifeCause::kReclaim, false, "it was told to stop and did not");
      call.out.actions.push_back(std::move(*call.leaving));
    } else {
      call.again(requeue_end_ns_);
    }
    return std::move(call.out);
  }
  const int64_t wall_end_ns =
      rules.max_wall_s == 0 ? kNever : sum_ns(facts.granted_ns, rules.max_wall_s);
  fixed(&call, &max_wall_, LifeCause::kMaxWall, wall_end_ns,
        std::min(rules.warn_s, rules.max_wall_s), rules.wall_requeues && facts.can_requeue,
        "it reaches its longest time, " + span_text(rules.max_wall_s));
  fixed(&call, &fixed_end_, LifeCause::kFixedEnd, facts.end_ns, rules.warn_s, facts.can_requeue,
        std::string(facts.end_why));

  const LifeUse& use = facts.use;
  const bool may_idle = rules.idle_timeout_s != 0 && use.known && use.attached && !use.waiting;
  const bool idle = may_idle && use.idle_ns >= span_ns(rules.idle_timeout_s);
  if (may_idle && !idle) {
    const int64_t rest_ns = span_ns(rules.idle_timeout_s) - use.idle_ns;
    call.again(now_ns + std::max(rest_ns, kSecondNs));
  }
  climb(&call, &idle_, LifeCause::kIdle, idle, rules.idle_grace_s, rules.idle_steps,
        "it did nothing for " + span_text(rules.idle_timeout_s));

  const bool may_unused = rules.idle_unused_timeout_s != 0 && use.known && !use.attached;
  const int64_t unused_ns = sum_ns(facts.granted_ns, rules.idle_unused_timeout_s);
  if (may_unused && now_ns < unused_ns) call.again(unused_ns);
  climb(&call, &unused_, LifeCause::kUnused, may_unused && now_ns >= unused_ns, rules.idle_grace_s,
        {Action::kEnd}, "nothing attached for " + span_text(rules.idle_unused_timeout_s));

  const int64_t exempt_ns = sum_ns(facts.granted_ns, rules.preempt_exempt_s);
  if (facts.reclaim && now_ns < exempt_ns) call.again(exempt_ns);
  climb(&call, &reclaim_, LifeCause::kReclaim, facts.reclaim && now_ns >= exempt_ns, rules.grace_s,
        rules.reclaim_steps, std::string(facts.reclaim_why));
  settle(&call);
  return std::move(call.out);
}

LifeAdvance Life::ask_again(const LifeRules& rules, const LifeFacts& facts, const std::string& why,
                            int64_t now_ns) {
  Call call{rules, facts, now_ns, {}, false, LifeCause::kReclaim, {}, {}};
  if (leaving()) return std::move(call.out);
  leave(&call, LifeCause::kReclaim, true, why);
  settle(&call);
  return std::move(call.out);
}

void Life::delay(int64_t span_ns) {
  const auto move = [span_ns](int64_t* time_ns) {
    if (*time_ns != kNever) *time_ns += std::min(span_ns, kNever - 1 - *time_ns);
  };
  for (Ladder* ladder : {&max_wall_, &fixed_end_, &idle_, &unused_, &reclaim_}) {
    if (!ladder->begun()) continue;
    move(&ladder->begun_ns);
    move(&ladder->next_ns);
  }
  move(&requeue_end_ns_);
}

// A warning as long before the end as it should be, or a later end. A warning that comes a little
// late because of the caller's timers does not move the end.
void Life::fixed(Call* call, Ladder* ladder, LifeCause cause, int64_t end_ns, uint64_t lead_s,
                 bool requeues, const std::string& why) {
  if (over_) return;
  const int64_t warn_ns = end_ns == kNever ? kNever : end_ns - span_ns(lead_s);
  if (call->now_ns < warn_ns || end_ns == kNever) {
    call->again(warn_ns);
    if (!ladder->begun()) return;
    *ladder = Ladder{};
    call->calmed = true;
    call->changed = cause;
    return;
  }
  const bool first = !ladder->begun();
  if (first) ladder->begun_ns = call->now_ns;
  ladder->next_ns = std::max(end_ns, ladder->begun_ns + span_ns(lead_s) / 8 * 7);
  if (first && lead_s != 0) warn(call, *ladder, cause, {Action::kEnd}, why);
  if (call->now_ns >= ladder->next_ns) return leave(call, cause, false, why);
  const int64_t stop_ns = ladder->next_ns - span_ns(std::min(lead_s / 2, stop_s(call->rules)));
  if (requeues && call->now_ns >= stop_ns) return leave(call, cause, true, why);
  call->again(requeues ? stop_ns : ladder->next_ns);
}

void Life::climb(Call* call, Ladder* ladder, LifeCause cause, bool wanted, uint64_t grace_s,
                 const std::vector<Action>& steps, const std::string& why) {
  if (leaving()) return;
  if (!wanted) {
    if (!ladder->begun()) return;
    *ladder = Ladder{};
    call->calmed = true;
    call->changed = cause;
    return;
  }
  if (!ladder->begun()) {
    ladder->begun_ns = call->now_ns;
    ladder->next_ns = sum_ns(call->now_ns, grace_s);
    warn(call, *ladder, cause, steps, why);
  }
  while (ladder->next_ns <= call->now_ns && !leaving()) take(call, ladder, cause, steps, why);
  call->again(ladder->next_ns);
}

void Life::take(Call* call, Ladder* ladder, LifeCause cause, const std::vector<Action>& steps,
                const std::string& why) {
  call->changed = cause;
  call->why = why;
  ladder->next_ns = kNever;  // no step is left
  ladder->pause = false;     // a pause lasts until the next step
  while (ladder->step < steps.size()) {
    const std::optional<Action> step =
        step_for(steps[ladder->step++], call->facts.can_shrink, call->facts.can_requeue);
    if (!step) continue;
    if (leaves(*step)) return leave(call, cause, *step == Action::kRequeue, why);
    if (*step == Action::kPark) {
      ladder->park = true;
      return;
    }
    (*step == Action::kShrink ? ladder->shrink : ladder->pause) = true;
    ladder->next_ns = sum_ns(call->now_ns, std::max<uint64_t>(length_s(call->rules, *step), 1));
    return;
  }
}

void Life::warn(Call* call, const Ladder& ladder, LifeCause cause, const std::vector<Action>& steps,
                const std::string& why) {
  LifeAction action{LifeAct::kWarn,
                    cause,
                    shrunk_,
                    paused_,
                    {},
                    seconds_until(ladder.next_ns, call->now_ns),
                    0,
                    why};
  int64_t time_ns = ladder.next_ns;
  int64_t gone_ns = kNever;
  for (const Action listed : steps) {
    const auto step = step_for(listed, call->facts.can_shrink, call->facts.can_requeue);
    if (!step) continue;
    if (!action.next) action.next = step;
    if (leaves(*step)) {
      gone_ns = time_ns;
      break;
    }
    time_ns = sum_ns(time_ns, std::max<uint64_t>(length_s(call->rules, *step), 1));
  }
  action.gone_s = seconds_until(gone_ns, call->now_ns);
  if (action.next) {
    action.text +=
        std::string(": it ") + third_person(*action.next) + " in " + span_text(action.next_s);
  }
  call->out.actions.push_back(std::move(action));
}

void Life::leave(Call* call, LifeCause cause, bool requeue, const std::string& why) {
  LifeAction action{LifeAct::kEnd, cause, shrunk_, false, {}, 0, 0, why};
  if (requeue) {
    requeue_end_ns_ = std::min({sum_ns(call->now_ns, stop_s(call->rules)), max_wall_.next_ns,
                                fixed_end_.next_ns, kNever - 1});
    if (requeue_end_ns_ <= call->now_ns) return leave(call, cause, false, why);
    action.act = LifeAct::kRequeue;
    action.next = Action::kEnd;
    action.next_s = action.gone_s = seconds_until(requeue_end_ns_, call->now_ns);
    call->again(requeue_end_ns_);
    // A program that is to save its work needs turns.
    for (Ladder* ladder : {&idle_, &unused_, &reclaim_}) ladder->pause = false;
  } else {
    over_ = true;
    call->out.again_ns = kNever;
  }
  call->leaving = std::move(action);
}

// Orders what the ladders ask for together, if that is not what holds.
void Life::settle(Call* call) {
  bool shrink = false, pause = false;
  for (const Ladder* ladder : {&idle_, &unused_, &reclaim_}) {
    shrink = shrink || ladder->shrink;
    pause = pause || ladder->pause;
  }
  const bool looser = (shrunk_ && !shrink) || (paused_ && !pause);
  const bool shrinks = shrink && !shrunk_, pauses = pause && !paused_;
  // Its work wakes it, so nothing is ordered when the ladder is gone.
  const bool parks = idle_.park && !parked_;
  parked_ = idle_.park;
  shrunk_ = shrink;
  paused_ = pause;
  if (!over_) {
    LifeAction action{LifeAct::kResume, call->changed, shrink, pause, {}, 0, UINT64_MAX, call->why};
    if (looser || (call->calmed && !call->leaving)) {
      LifeAction resume = action;
      resume.text = looser ? "it has what it had before" : "the warning is withdrawn";
      call->out.actions.push_back(std::move(resume));
    }
    action.act = LifeAct::kShrink;
    if (shrinks) call->out.actions.push_back(action);
    action.act = LifeAct::kPause;
    if (pauses) call->out.actions.push_back(action);
    action.act = LifeAct::kPark;
    if (parks) call->out.actions.push_back(action);
  }
  if (over_) call->out.again_ns = kNever;
  if (call->leaving) call->out.actions.push_back(std::move(*call->leaving));
  for (LifeAction& action : call->out.actions) {
    action.shrunk = shrunk_;
    action.paused = paused_;
  }
}

int64_t reclaimed_by_ns(const LifeRules& rules, int64_t granted_ns, int64_t now_ns,
                        bool can_requeue) {
  int64_t time_ns = std::max(now_ns, sum_ns(granted_ns, rules.preempt_exempt_s));
  time_ns = sum_ns(time_ns, rules.grace_s);
  for (const Action listed : rules.reclaim_steps) {
    const std::optional<Action> step = step_for(listed, true, can_requeue);
    if (!step) continue;
    if (*step == Action::kRequeue) return sum_ns(time_ns, stop_s(rules));
    if (*step == Action::kEnd) return time_ns;
    time_ns = sum_ns(time_ns, std::max<uint64_t>(length_s(rules, *step), 1));
  }
  return kNever;
}

}  // namespace tendril::pool

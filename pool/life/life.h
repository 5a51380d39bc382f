// SPDX-License-Identifier: Apache-2.0
// What happens to a lease that runs for too long, is idle, was never used, or holds what somebody
// else is entitled to: a warning, a grace, then the steps of its class in their order. Pure: time
// is passed in, and nothing is remembered outside `Life`. The pool's scheduler asks it for each
// lease whenever something about the lease changed, and at the time that the last answer names.
//
// A lease with slices on several servers is one lease here. So its parts move together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pool/policy/policy.h"

namespace tendril::pool {

// What applies to a lease, from its class and its request. All times in seconds; 0: no such limit.
// Lists of actions need not begin with kWarn: the holder is always warned.
struct LifeRules {
  uint64_t max_wall_s = 0;  // since the grant
  uint64_t warn_s = 300;  // how long before `max_wall_s` or another fixed end the holder is warned
  bool wall_requeues = false;          // before `max_wall_s` it is told to stop and to ask again
  uint64_t idle_timeout_s = 0;         // no submission and no copy
  uint64_t idle_unused_timeout_s = 0;  // granted, and nothing ever attached
  uint64_t idle_grace_s = 300;         // from a warning to the first step
  std::vector<Action> idle_steps = {Action::kEnd};
  uint64_t grace_s = 120;         // the same for a reclaim; and from kRequeue to kEnd, or 10
  uint64_t preempt_exempt_s = 0;  // after the grant; until then nothing is reclaimed
  std::vector<Action> reclaim_steps = {Action::kEnd};
  uint64_t step_s = 60;    // from kShrink to the next step, if the cause still holds
  uint64_t pause_s = 300;  // the longest pause. Watchdogs in programs do not bear longer ones
};

// Those of a class. `wall_s` is the longest time of the request, if it is shorter than the class's;
// 0: it names none.
LifeRules life_rules(const UserClass& user_class, const PoolPolicy& policy, uint64_t wall_s);

// What a server last reported about its part of a lease.
struct LifeUse {
  bool known = false;     // false, if the server is silent or did not measure: counts as active
  bool attached = false;  // something attached since the grant
  bool waiting = false;   // a submission waits for a turn. So a paused program counts as active
  int64_t idle_ns = 0;    // since the last submission or copy; since the grant, if there was none
};
// The use of a lease with several parts: active if one is, attached if one is.
LifeUse together(const std::vector<LifeUse>& parts);

struct LifeFacts {
  int64_t granted_ns = 0;  // may be negative: before this scheduler started
  LifeUse use;
  bool can_requeue = false;      // the holder can start the program again. If not, kRequeue is kEnd
  bool can_shrink = false;       // a smaller share exists that helps. If not, kShrink is left out
  bool reclaim = false;          // somebody is entitled to what it holds
  std::string_view reclaim_why;  // "nlp reclaims 2.0 top"
  int64_t end_ns = kNever;       // a fixed end, for example of a drain or at a maintenance window
  std::string_view end_why;      // "maintenance of gpu3"
};

// kReclaim is also an operator's wish (`Life::ask_again`).
enum class LifeCause : uint8_t { kMaxWall = 0, kFixedEnd, kIdle, kUnused, kReclaim };
const char* life_cause_name(LifeCause cause);

enum class LifeAct : uint8_t {
  kWarn = 0,  // tell the holder: `next` follows in `next_s` seconds
  kShrink,    // order a smaller share
  kPause,     // order no turns
  kResume,    // order the share that was granted, and turns, unless `paused` or `shrunk` say else
  kRequeue,   // tell the holder to stop the program and to ask again
  kEnd,       // end it now
  kPark,      // order its GPU memory to its servers' host memory, until it works again
};
const char* life_act_name(LifeAct act);

struct LifeAction {
  LifeAct act = LifeAct::kWarn;
  LifeCause cause = LifeCause::kIdle;
  bool shrunk = false, paused = false;  // what holds after it
  std::optional<Action> next;           // what follows if the cause stays
  uint64_t next_s = 0;                  // in so many seconds
  uint64_t gone_s = UINT64_MAX;         // until the earliest kRequeue or kEnd, if the cause stays
  std::string text;                     // for the holder, without a full stop
};

struct LifeAdvance {
  std::vector<LifeAction> actions;
  int64_t again_ns = kNever;  // ask again at this time, or earlier if a fact changes
};

// Where a lease is on its ladders. A new scheduler starts with an empty one, and with what the
// servers report as shrunk or paused. So the holder is warned again, and has the whole grace again.
class Life {
 public:
  Life() = default;
  Life(bool shrunk, bool paused) : shrunk_(shrunk), paused_(paused) {}

  // What is to be done at `now_ns`. The same facts at the same time a second time: nothing.
  LifeAdvance advance(const LifeRules& rules, const LifeFacts& facts, int64_t now_ns);

  // Its holder is to stop the program and to ask again, whatever the limits say. Nothing: it is
  // leaving already.
  LifeAdvance ask_again(const LifeRules& rules, const LifeFacts& facts, const std::string& why,
                        int64_t now_ns);

  // The holder heard of the last actions this much later than they were ordered: all that was
  // begun has the more time.
  void delay(int64_t span_ns);

  bool shrunk() const { return shrunk_; }
  bool paused() const { return paused_; }
  bool over() const { return over_; }  // told to end
  bool leaving() const { return over_ || requeue_end_ns_ != kNever; }

 private:
  struct Ladder {
    int64_t begun_ns = kNever;  // when the holder was warned
    int64_t next_ns = kNever;   // when the next step is due
    size_t step = 0;
    bool shrink = false, pause = false;  // what this ladder asks for now
    bool park = false;  // it took its last step: the lease is parked until it works
    bool begun() const { return begun_ns != kNever; }
  };
  struct Call;  // one call of advance()

  void fixed(Call* call, Ladder* ladder, LifeCause cause, int64_t end_ns, uint64_t lead_s,
             bool requeues, const std::string& why);
  void climb(Call* call, Ladder* ladder, LifeCause cause, bool wanted, uint64_t grace_s,
             const std::vector<Action>& steps, const std::string& why);
  void take(Call* call, Ladder* ladder, LifeCause cause, const std::vector<Action>& steps,
            const std::string& why);
  void warn(Call* call, const Ladder& ladder, LifeCause cause, const std::vector<Action>& steps,
            const std::string& why);
  void leave(Call* call, LifeCause cause, bool requeue, const std::string& why);
  void settle(Call* call);

  Ladder max_wall_, fixed_end_, idle_, unused_, reclaim_;
  int64_t requeue_end_ns_ = kNever;  // told to requeue; ended at this time if it is still there
  bool shrunk_ = false, paused_ = false, parked_ = false, over_ = false;
};

// When a reclaim that begins at `now_ns` has taken all of the lease at the latest: the time that a
// waiting request may be told. kNever: its steps never end it.
int64_t reclaimed_by_ns(const LifeRules& rules, int64_t granted_ns, int64_t now_ns,
                        bool can_requeue);

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// Who may use a GPU next, and until when: the arithmetic behind turns
// (docs/decisions/0012-turns.md), one object per GPU. Pure: no clock, lock or I/O;
// lease/lease_turns.h calls it with the time, which never runs backwards, and tells the workers
// what it decided. Every tenant has a virtual time: what it used, divided by its share. The tenants
// that compete have a level: their mean, weighted by share. A tenant that is not ahead of the level
// may go. Among several, the higher class goes first, then the one whose next quantum would be due
// first. So nobody is ever further from its share than about a quantum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace tendril::lease {

struct TurnRules {
  // About that with four tenants, overruns included. With fewer it is longer, as a switch costs
  // about 0.3 ms; with many it is shorter, so that each has enough turns in a second.
  uint64_t quantum_ns = 10'000'000;
  // A turn that is cut short for somebody who asks for little, often one that waits for each piece
  // of its work, still lasts this long: each turn has its price.
  uint64_t cut_ns = 3'000'000;
  // Work that is not done this long after its turn's end is overdue: others run beside it.
  uint64_t grace_ns = 120'000'000;  // two kernels of 50 ms still fit
  // A higher class need not wait until the work of the turn that it ends is done: the hardware
  // takes the GPU from that at once. LeaseTurns sets it where the hardware's slices are in use.
  bool preempts = false;
};

struct TurnTerms {
  uint32_t share_millionths = 1'000'000;
  bool capped = false;   // never more than its share; otherwise also what nobody else wants
  int32_t priority = 0;  // higher goes first; when, not how much
};

class TurnPolicy {
 public:
  using Tenant = uint64_t;
  static constexpr uint64_t kNever = UINT64_MAX;

  explicit TurnPolicy(const TurnRules& rules) : rules_(rules) {}

  // A tenant begins without wants. Unknown tenants are passed over by all others.
  void add(uint64_t now_ns, Tenant tenant, const TurnTerms& terms);
  void remove(uint64_t now_ns, Tenant tenant);
  void change(uint64_t now_ns, Tenant tenant, const TurnTerms& terms);

  // It has work, to submit or unfinished; or it has none any more.
  void set_wanting(uint64_t now_ns, Tenant tenant, bool wanting);
  // It gave its turn up and all its work is done. For `excused_ns` of the turn the GPU had nothing
  // to do; that time is not charged.
  void drained(uint64_t now_ns, Tenant tenant, uint64_t excused_ns = 0);

  // It used so much during another tenant's turn. Most likely that was the tenant that had the GPU
  // before it, so that one is not charged for this time.
  void charge(uint64_t now_ns, Tenant tenant, uint64_t ns);

  // For a tenant whose lease has another GPU or soon will: the lease's calls will stop there until
  // it has this GPU too. If it wants this GPU and is at most half a quantum ahead, it goes before
  // the others of its class until its turn begins, and the running turn ends. False: it is ahead.
  enum class Cut : uint8_t {
    kNone,
    kSoon,
    kNow
  };  // the running turn goes on; ends when it has lasted cut_ns; ends at once
  bool claim(uint64_t now_ns, Tenant tenant, Cut cut);
  void disclaim(Tenant tenant);
  // Its turn ends if others want the GPU: its lease's turn on another GPU has ended, so its calls
  // will stop there.
  void cut(uint64_t now_ns, Tenant tenant);

  struct Turn {
    Tenant tenant;
    uint64_t until_ns;  // kNever: until somebody else wants the GPU
    bool begins;        // otherwise its end was moved, either way. One that is overdue begins anew
  };
  // What to tell workers. Call it after all of the above, and at look_again_ns().
  std::vector<Turn> decide(uint64_t now_ns);
  uint64_t look_again_ns() const { return look_again_ns_; }
  // An exclusive turn that ends for somebody else's sake, and for whose. kNever: there is none.
  struct Ending {
    uint64_t until_ns = kNever;
    Tenant next = 0;
  };
  Ending ending();

  struct Use {
    uint64_t used_ns = 0;    // in turns, overruns included; of what overlaps, a part by its share
    uint64_t waited_ns = 0;  // with work and without a turn, held back by its cap included
    bool wanting = false, holding = false, overdue = false, preempted = false;
    uint64_t preempted_ns = 0;  // of its turns, had by those of a higher class
  };
  Use use(uint64_t now_ns, Tenant tenant);
  bool is_overdue(Tenant tenant) const;  // as of the last decision

 private:
  struct State {
    TurnTerms terms;
    bool wanting = false, holding = false, blocked = false;
    bool overdue = false;  // of a holder: past its grace; others run beside it
    bool preempted =
        false;          // of a holder: one of a higher class has the GPU, and it goes on afterwards
    bool came = false;  // began to compete since the last decision
    bool claims = false;
    double virtual_ns = 0;
    double owed_ns = 0;    // of its share, when it last ceased to compete
    double credit_ns = 0;  // of a capped one: what it may use now
    uint64_t granted_ns = 0, until_ns = 0;
    uint64_t grace_ns = 0;     // none for a turn that continues one that was overdue
    uint64_t cut_ns = kNever;  // where its turn ends for somebody else's sake
    uint64_t overrun_ns = 0;   // of late: its turns last so much longer than they should
    uint64_t last_overrun_ns = UINT64_MAX;
    uint64_t usual_ns = kNever;  // of late: how much of a turn it uses, where it ends it itself
    uint64_t used_ns = 0, waited_ns = 0, preempted_ns = 0, preempted_at_ns = 0;
  };

  static double share_of(const State& state) { return state.terms.share_millionths / 1e6; }
  bool is_capped(const State& state) const;
  static bool is_exclusive(const State& state) {
    return state.holding && !state.overdue && !state.preempted;
  }
  uint64_t resumes_ns(const State& state) const;
  bool may_resume(const State& state) const;
  // Takes part in the competition: its virtual time counts for the level.
  static bool competes(const State& state);
  uint64_t quantum_ns() const;
  double longer_ns(const State& holder) const;
  // When its next turn would be over if it always got its share: who asks for little is due soon.
  double due(const State& state) const;
  void advance(uint64_t now_ns);
  void enter(State* state);
  void leave(State* state);
  void measure_level();
  bool is_level(const State& state) const;
  uint64_t level_in_ns(const State& state) const;
  State* find(Tenant tenant);
  State* holder(Tenant* tenant);
  bool is_due_before(const State& one, const State& other) const;
  bool others_compete(const State* holder) const;
  // The best of those that compete and hold no turn, or are preempted, and of `also`.
  std::pair<const Tenant, State>* best(const State* also);
  static void excuse(State* state, uint64_t ns);
  void learn(uint64_t now_ns, State* state);
  void begin(uint64_t now_ns, State* state);
  uint64_t late_before_ns(const State& holder) const;
  uint64_t end_of_turn(uint64_t now_ns, State* holder);
  bool may_claim(const State& state) const;
  bool is_level_beside(const State& one, const State& other) const;
  bool is_better(const State& one, const State& other) const;
  void cut_for_those_who_came(uint64_t now_ns, State* holder);
  bool is_preempted(uint64_t now_ns, const State& holder);
  State* preempted_before(const State& next);
  void give_next(uint64_t now_ns, std::vector<Turn>* turns);
  void plan_next_look(uint64_t now_ns);

  const TurnRules rules_;
  std::map<Tenant, State> tenants_;
  Tenant last_ = 0, before_last_ = 0;  // that had an exclusive turn
  uint64_t now_ns_ = 0;
  uint64_t look_again_ns_ = kNever;
  double level_ = 0;
  size_t competitors_ = 0;
  double shares_ = 1;            // of those that compete
  int32_t lowest_priority_ = 0;  // of those that compete
};

}  // namespace tendril::lease

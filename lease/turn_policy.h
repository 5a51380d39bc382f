// SPDX-License-Identifier: Apache-2.0
// Who may use a GPU next, and until when: the arithmetic behind turns
// (docs/decisions/0012-turns.md). There is one object per GPU. It is pure: no clock, lock or I/O.
// lease/lease_turns.h passes the time, which never runs backwards, and passes the decisions on to
// the workers.
//
// Every tenant has a virtual time: the time that it used, divided by its share. The tenants that
// compete have a level: the mean of their virtual times, weighted by share. A tenant that is not
// ahead of the level may go. Among several, a higher class goes first, then the tenant whose next
// quantum would be due first. So nobody is ever further from its share than about a quantum.
//
// A tenant without work costs nothing: it is brought up to date when it has work again. So each
// function takes time by the number of tenants that have work or a turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace tendril::lease {

struct TurnRules {
  // The approximate length of a turn with four tenants, overruns included. With fewer tenants turns
  // are longer, because a switch costs about 0.3 ms. With many they are shorter, so that each
  // tenant has enough turns in a second.
  uint64_t quantum_ns = 10'000'000;
  // The least length of a turn that is cut short for a tenant that asks for little. Such a tenant
  // often waits for each piece of its work. The least length exists because each turn has its
  // price.
  uint64_t cut_ns = 3'000'000;
  // Work that is not done this long after its turn's end is overdue. Others then run beside it.
  uint64_t grace_ns = 120'000'000;  // two kernels of 50 ms still fit
  // A higher class need not wait for the work of the turn that it ends, because the hardware takes
  // the GPU away from that work at once. LeaseTurns sets this where hardware slices are in use.
  bool preempts = false;
};

struct TurnTerms {
  uint32_t share_millionths = 1'000'000;
  bool capped = false;   // never more than its share; otherwise also time that nobody else wants
  int32_t priority = 0;  // higher goes first; it decides when, not how much
};

class TurnPolicy {
 public:
  using Tenant = uint64_t;
  static constexpr uint64_t kNever = UINT64_MAX;

  explicit TurnPolicy(const TurnRules& rules) : rules_(rules) {}

  // A new tenant wants nothing. Functions that get an unknown tenant do nothing.
  void add(uint64_t now_ns, Tenant tenant, const TurnTerms& terms);
  void remove(uint64_t now_ns, Tenant tenant);
  void change(uint64_t now_ns, Tenant tenant, const TurnTerms& terms);

  // `wanting`: the tenant has work to submit or unfinished work.
  void set_wanting(uint64_t now_ns, Tenant tenant, bool wanting);
  // The tenant gave up its turn and all its work is done. During `excused_ns` of the turn the GPU
  // had nothing to do; this time is not charged.
  void drained(uint64_t now_ns, Tenant tenant, uint64_t excused_ns = 0);

  // The tenant used this time during another tenant's turn, most likely the turn before its own. So
  // the tenant of that turn is not charged for it.
  void charge(uint64_t now_ns, Tenant tenant, uint64_t ns);

  // For a tenant whose lease has another GPU or soon will: the lease's calls will stop there until
  // it has this GPU too. The claim holds if the tenant wants this GPU and is at most half a quantum
  // ahead. It then goes before the others of its class until its turn begins. `cut` says when the
  // running turn ends. False: the tenant is ahead.
  enum class Cut : uint8_t {
    kNone,
    kSoon,
    kNow
  };  // the running turn goes on; ends when it has lasted cut_ns; ends at once
  bool claim(uint64_t now_ns, Tenant tenant, Cut cut);
  void disclaim(Tenant tenant);
  // A window of a gang: the tenant's parts on other servers have their turns now, too. Until
  // `end_ns` the tenant is of a higher class than the others of its priority, and its turn ends
  // then. After that it has only what nobody else wants, until the next window, and the others'
  // turns end when that begins.
  void open_window(uint64_t now_ns, Tenant tenant, uint64_t end_ns, uint64_t next_ns);
  // The tenant's turn ends if others want the GPU. Its lease's turn on another GPU has ended, so
  // its calls will stop here.
  void cut(uint64_t now_ns, Tenant tenant);

  struct Turn {
    Tenant tenant;
    uint64_t until_ns;  // kNever: until somebody else wants the GPU
    bool begins;  // otherwise the end moved, either way; the turn of an overdue tenant begins again
  };
  // The changes that workers must know. Call it after all functions above, and at look_again_ns().
  std::vector<Turn> decide(uint64_t now_ns);
  uint64_t look_again_ns() const { return look_again_ns_; }
  // The end of an exclusive turn that ends for another tenant's sake, and that tenant. kNever:
  // none.
  struct Ending {
    uint64_t until_ns = kNever;
    Tenant next = 0;
  };
  Ending ending();

  struct Use {
    uint64_t used_ns = 0;    // in turns, overruns included; when turns overlap, a part by its share
    uint64_t waited_ns = 0;  // with work but without a turn, even if its cap holds it back
    bool wanting = false, holding = false, overdue = false, preempted = false;
    uint64_t preempted_ns = 0;  // time of its turns that higher classes took
  };
  Use use(uint64_t now_ns, Tenant tenant);
  bool is_overdue(Tenant tenant) const;        // as of the last decision
  uint64_t preempted_ns(Tenant tenant) const;  // likewise
  // Grows whenever a tenant becomes overdue or ceases to be.
  uint64_t overdue_changes() const { return overdue_changes_; }
  uint64_t overdue_millionths() const;  // sum of the shares of overdue tenants

  // The tenants that have work or a turn, by number. Only they use time or wait.
  std::vector<Tenant> active() const;
  // The tenants whose preempted_ns has grown since the last call.
  std::vector<Tenant> take_preempted();

 private:
  struct State {
    TurnTerms terms;
    bool wanting = false, holding = false, blocked = false;
    bool overdue = false;    // of a holder: past its grace; others run beside it
    bool preempted = false;  // of a holder: a higher class has the GPU; it continues afterwards
    bool came = false;       // began to compete since the last decision
    bool claims = false;
    bool in_gang = false;           // it has windows
    bool windowed = false;          // its turn ends with its window
    bool unknown = false;           // is listed in unknown_
    bool preempted_untold = false;  // is listed in preempted_untold_
    uint64_t window_end_ns = 0, next_window_ns = 0;
    uint64_t resting_since_ns = 0;  // of a tenant without work: as of when credit_ns is known
    double virtual_ns = 0;
    double owed_ns = 0;    // of its share, as of when it last ceased to compete
    double credit_ns = 0;  // of a capped tenant: what it may use now
    uint64_t granted_ns = 0, until_ns = 0;
    uint64_t grace_ns = 0;     // none for a turn that continues one that was overdue
    uint64_t cut_ns = kNever;  // where its turn ends for another tenant's sake
    uint64_t overrun_ns = 0;   // recently: how much longer its turns last than they should
    uint64_t last_overrun_ns = UINT64_MAX;
    // recently: how much of a turn it uses when it ends the turn itself
    uint64_t usual_ns = kNever;
    uint64_t used_ns = 0, waited_ns = 0, preempted_ns = 0, preempted_at_ns = 0;
  };

  using Entry = std::pair<const Tenant, State>;

  static double share_of(const State& state) { return state.terms.share_millionths / 1e6; }
  static bool is_active(const State& state) { return state.wanting || state.holding; }
  bool is_capped(const State& state) const;
  static bool is_exclusive(const State& state) {
    return state.holding && !state.overdue && !state.preempted;
  }
  uint64_t resumes_ns(const State& state) const;
  bool may_resume(const State& state) const;
  // True if the tenant takes part in the competition. Its virtual time then counts for the level.
  static bool competes(const State& state);
  uint64_t quantum_ns() const;
  double longer_ns(const State& holder) const;
  // The virtual time at which its next turn would be over if it always got its share. A tenant that
  // asks for little is due soon.
  double due(const State& state) const;
  void advance(uint64_t now_ns);
  void settle_accounts(uint64_t passed_ns);
  void catch_up(State* state) const;
  void list(Entry* entry);
  void unlist(State* state);
  void list_as_unknown(Entry* entry);
  void set_overdue(State* state, bool overdue);
  void enter(State* state);
  void leave(State* state);
  void measure_level();
  bool is_level(const State& state) const;
  uint64_t level_in_ns(const State& state) const;
  State* find(Tenant tenant);
  Entry* find_entry(Tenant tenant);
  State* holder(Tenant* tenant);
  bool is_due_before(const State& one, const State& other) const;
  bool others_compete(const State* holder) const;
  // The best tenant among those that compete and hold no turn, those that are preempted, and
  // `also`.
  Entry* best(const State* also);
  void excuse(Entry* entry, uint64_t ns);
  void learn(uint64_t now_ns, State* state);
  void begin(uint64_t now_ns, State* state);
  uint64_t late_before_ns(const State& holder) const;
  uint64_t end_of_turn(uint64_t now_ns, State* holder);
  bool may_claim(const State& state) const;
  bool in_window(const State& state) const { return now_ns_ < state.window_end_ns; }
  bool is_put_off(const State& state) const { return state.in_gang && !in_window(state); }
  int32_t class_of(const State& state) const;
  void end_earlier(uint64_t now_ns, const State& state, Cut cut);
  bool is_level_beside(const State& one, const State& other) const;
  bool is_better(const State& one, const State& other) const;
  void cut_for_those_who_came(uint64_t now_ns, State* holder);
  bool is_preempted(uint64_t now_ns, const State& holder);
  State* preempted_before(const State& next);
  void give_next(uint64_t now_ns, std::vector<Turn>* turns);
  void plan_next_look(uint64_t now_ns);

  const TurnRules rules_;
  std::map<Tenant, State> tenants_;
  std::vector<Entry*> active_;         // the tenants with work or a turn, by number
  std::vector<const State*> counted_;  // of measure_level
  // Tenants that had no turn so far. All of them know of overruns of at least unknown_overrun_ns_.
  std::vector<Tenant> unknown_;
  uint64_t unknown_overrun_ns_ = 0;
  std::vector<Tenant> preempted_untold_;
  uint64_t overdue_changes_ = 0;
  bool stale_ = false;                 // something changed since all accounts were settled
  Tenant last_ = 0, before_last_ = 0;  // the last tenants with an exclusive turn
  uint64_t now_ns_ = 0;
  uint64_t look_again_ns_ = kNever;
  double level_ = 0;
  size_t competitors_ = 0;
  double shares_ = 1;            // sum over competing tenants
  int32_t lowest_priority_ = 0;  // lowest among competing tenants
};

}  // namespace tendril::lease

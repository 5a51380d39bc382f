// SPDX-License-Identifier: Apache-2.0
// See turn_policy.h.
#include "lease/turn_policy.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tendril::lease {
namespace {

// If the holder would be chosen again at the end of a quantum, its turn gets that quantum at once.
// A turn has at most this many.
constexpr int kQuantaMax = 10;
// What a tenant is still owed when it returns after a time without work, at most. It is one turn of
// another tenant, which may be longer than a quantum.
constexpr double kOwedQuanta = 2;
// A tenant whose lease has another GPU goes first only while it is at most this far ahead of its
// share.
constexpr double kClaimQuanta = 0.5;
// Two tenants that differ by less are alike. Such a difference does not put one before the other.
constexpr double kAlikeQuanta = 0.25;
// A tenant with more than the mean share has longer turns, up to this many quanta.
constexpr double kLongestTurnQuanta = 2.5;

// The quantum, in percent of the rules' quantum, for that many tenants or fewer. Cycles of two,
// three, four and twenty equal tenants then fit 30, 27, 24 and 7 times into a second. So each
// second holds the same number of turns of every tenant.
struct QuantumOfCompetitors {
  size_t competitors_max;
  uint64_t percent;
};
constexpr QuantumOfCompetitors kQuanta[] = {{2, 166}, {3, 123}, {7, 104}, {15, 83}};
constexpr uint64_t kQuantumOfManyPercent = 71;
// How much time a capped tenant may save up while it waits, and how far it may exceed its share
// within a turn. Together they are less than 20 ms, so no second holds more than 2 points too much.
constexpr double kCapSavedQuanta = 1.4, kCapQuanta = 0.5;

}  // namespace

bool TurnPolicy::is_capped(const State& state) const {
  return state.terms.capped && state.terms.share_millionths < 1'000'000;
}

bool TurnPolicy::competes(const State& state) {
  return state.holding ? !state.overdue : state.wanting && !state.blocked;
}

// Overdue work may need further submissions before it can end, for example when a stream waits for
// a later launch. So it gets a quantum beside the others now and then, as often as its share
// allows.
uint64_t TurnPolicy::resumes_ns(const State& state) const {
  return state.until_ns + state.grace_ns +
         static_cast<uint64_t>(static_cast<double>(rules_.quantum_ns) / share_of(state));
}

uint64_t TurnPolicy::quantum_ns() const {
  for (const auto& [competitors_max, percent] : kQuanta) {
    if (competitors_ <= competitors_max) return rules_.quantum_ns * percent / 100;
  }
  return rules_.quantum_ns * kQuantumOfManyPercent / 100;
}

double TurnPolicy::longer_ns(const State& holder) const {
  const double times_mean = share_of(holder) * static_cast<double>(competitors_) / shares_;
  return static_cast<double>(quantum_ns()) * (std::clamp(times_mean, 1.0, kLongestTurnQuanta) - 1);
}

double TurnPolicy::due(const State& state) const {
  const uint64_t next_ns = std::min(quantum_ns() + state.overrun_ns, state.usual_ns);
  return state.virtual_ns + static_cast<double>(next_ns) / share_of(state);
}

TurnPolicy::Entry* TurnPolicy::find_entry(Tenant tenant) {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? nullptr : &*found;
}

TurnPolicy::State* TurnPolicy::find(Tenant tenant) {
  Entry* const entry = find_entry(tenant);
  return entry == nullptr ? nullptr : &entry->second;
}

// Accounts for the time in which the tenant had no work. It saved nothing up, but paid back.
void TurnPolicy::catch_up(State* state) const {
  if (is_active(*state)) return;
  const double passed = static_cast<double>(now_ns_ - state->resting_since_ns);
  state->credit_ns = std::min(state->credit_ns + passed * share_of(*state), 0.0);
  state->blocked = is_capped(*state) && state->credit_ns < -0.5;
  state->resting_since_ns = now_ns_;
}

// Call it before the tenant becomes active.
void TurnPolicy::list(Entry* entry) {
  if (is_active(entry->second)) return;
  catch_up(&entry->second);
  const auto at = std::lower_bound(
      active_.begin(), active_.end(), entry,
      [](const Entry* one, const Entry* other) { return one->first < other->first; });
  active_.insert(at, entry);
}

// Call it when the tenant may have ceased to be active.
void TurnPolicy::unlist(State* state) {
  if (is_active(*state)) return;
  const auto at = std::find_if(active_.begin(), active_.end(),
                               [state](const Entry* entry) { return &entry->second == state; });
  if (at == active_.end()) return;
  active_.erase(at);
  state->resting_since_ns = now_ns_;
}

void TurnPolicy::list_as_unknown(Entry* entry) {
  State* const state = &entry->second;
  if (state->unknown || state->used_ns != 0) return;
  state->unknown = true;
  unknown_.push_back(entry->first);
  unknown_overrun_ns_ = std::min(unknown_overrun_ns_, state->overrun_ns);
}

void TurnPolicy::set_overdue(State* state, bool overdue) {
  overdue_changes_ += state->overdue != overdue;
  state->overdue = overdue;
}

uint64_t TurnPolicy::overdue_millionths() const {
  uint64_t sum = 0;
  for (const Entry* entry : active_)
    sum += entry->second.overdue ? entry->second.terms.share_millionths : 0;
  return sum;
}

std::vector<TurnPolicy::Tenant> TurnPolicy::active() const {
  std::vector<Tenant> tenants;
  tenants.reserve(active_.size());
  for (const Entry* entry : active_) tenants.push_back(entry->first);
  return tenants;
}

std::vector<TurnPolicy::Tenant> TurnPolicy::take_preempted() {
  for (const Tenant tenant : preempted_untold_) {
    if (State* const state = find(tenant)) state->preempted_untold = false;
  }
  return std::exchange(preempted_untold_, {});
}

// Before it resumes, a capped tenant must have paid for what it used.
bool TurnPolicy::may_resume(const State& state) const {
  return state.overdue && state.wanting && (!is_capped(state) || state.credit_ns >= 0);
}

// Charges all tenants for the time since the last call.
void TurnPolicy::advance(uint64_t now_ns) {
  const uint64_t passed_ns = now_ns > now_ns_ ? now_ns - now_ns_ : 0;
  if (passed_ns == 0 && !stale_) return;
  now_ns_ = std::max(now_ns, now_ns_);
  settle_accounts(passed_ns);
}

void TurnPolicy::settle_accounts(uint64_t passed_ns) {
  stale_ = false;
  const double passed = static_cast<double>(passed_ns);
  const double saved = kCapSavedQuanta * static_cast<double>(rules_.quantum_ns);
  double holding = 0;
  const auto runs = [](const State& state) { return state.holding && !state.preempted; };
  for (const Entry* entry : active_) holding += runs(entry->second) ? share_of(entry->second) : 0;
  for (Entry* const entry : active_) {
    State& state = entry->second;
    if (state.preempted && passed_ns != 0) {
      state.preempted_ns += passed_ns;
      if (!state.preempted_untold) preempted_untold_.push_back(entry->first);
      state.preempted_untold = true;
    }
    if (runs(state)) {
      // Tenants that run at the same time get what the hardware gives them. It divides by the
      // shares.
      const double had = passed * share_of(state) / holding;
      state.used_ns += static_cast<uint64_t>(had + 0.5);
      state.virtual_ns += had / share_of(state);
      state.credit_ns -= had;
    } else if (state.wanting) {
      state.waited_ns += passed_ns;
    }
    state.credit_ns = std::min(state.credit_ns + passed * share_of(state), saved);
  }
  // While nobody competes, nobody waits. Debts then age as if all shares were in use.
  if (competitors_ == 0) level_ += passed;
  measure_level();
  for (Entry* const entry : active_) {
    State& state = entry->second;
    const bool blocked = is_capped(state) && !state.holding && state.credit_ns < -0.5;
    if (blocked == state.blocked) continue;
    stale_ = true;  // the level does not follow before the next call
    if (blocked) {
      leave(&state);
      state.blocked = true;
    } else {
      state.blocked = false;
      enter(&state);
    }
  }
}

void TurnPolicy::measure_level() {
  std::vector<const State*>& counted = counted_;
  counted.clear();
  lowest_priority_ = INT32_MAX;
  for (const Entry* entry : active_) {
    const State& state = entry->second;
    if (!competes(state)) continue;
    counted.push_back(&state);
    lowest_priority_ = std::min(lowest_priority_, class_of(state));
  }
  competitors_ = counted.size();
  shares_ = 0;
  for (const State* state : counted) shares_ += share_of(*state);
  if (counted.empty()) return;
  // A tenant that is further ahead than this has been overdue. It does not lift the level, so a
  // newcomer need not wait until the others have caught up with it.
  const double debt = static_cast<double>(rules_.quantum_ns + 2 * rules_.grace_ns);
  for (size_t before = 0; before != counted.size();) {
    before = counted.size();
    double sum = 0, shares = 0;
    for (const State* state : counted) {
      sum += state->virtual_ns * share_of(*state);
      shares += share_of(*state);
    }
    level_ = sum / shares;
    const auto indebted = [&](const State* state) {
      return (state->virtual_ns - level_) * share_of(*state) > debt;
    };
    counted.erase(std::remove_if(counted.begin(), counted.end(), indebted), counted.end());
  }
}

bool TurnPolicy::is_level(const State& state) const {
  // A higher class may go in two cases. Either it has used no more than its share: the mean may
  // have fallen because of an overdue tenant. Or it is ahead by less than a quantum.
  const bool higher = class_of(state) > lowest_priority_;
  if (higher && state.credit_ns >= 0) return true;
  const double ahead = higher ? static_cast<double>(quantum_ns()) / share_of(state) : 0;
  // The level is a mean. Because of rounding, even the lowest tenant may seem to be above it.
  return state.virtual_ns <= level_ + ahead + 1 + std::abs(level_) * 1e-12;
}

// The tenant begins to compete. It starts level with the others, except for its debt, or for what
// it was owed when it left (at most kOwedQuanta; nothing is saved up). That was measured from a
// mean that included the tenant, and the new mean will include it again. From the mean of the
// others alone the distance is larger (`apart`).
void TurnPolicy::enter(State* state) {
  if (!competes(*state)) return;
  const double apart = shares_ > 0 ? (shares_ + share_of(*state)) / shares_ : 1;
  state->virtual_ns =
      std::max(state->virtual_ns, level_ - apart * state->owed_ns / share_of(*state));
  state->owed_ns = 0;
  state->came = true;
  measure_level();
}

void TurnPolicy::leave(State* state) {
  if (!competes(*state)) return;
  const double owed = (level_ - state->virtual_ns) * share_of(*state);
  state->owed_ns = std::clamp(owed, 0.0, kOwedQuanta * static_cast<double>(rules_.quantum_ns));
  state->came = false;
}

void TurnPolicy::add(uint64_t now_ns, Tenant tenant, const TurnTerms& terms) {
  advance(now_ns);
  const auto [entry, is_new] = tenants_.try_emplace(tenant);
  State& state = entry->second;
  catch_up(&state);
  state.terms = terms;
  state.virtual_ns = level_;
  list_as_unknown(&*entry);
  stale_ = true;
}

void TurnPolicy::remove(uint64_t now_ns, Tenant tenant) {
  advance(now_ns);
  State* const state = find(tenant);
  if (state == nullptr) return;
  set_overdue(state, false);
  state->wanting = state->holding = false;
  unlist(state);
  if (state->unknown) unknown_.erase(std::find(unknown_.begin(), unknown_.end(), tenant));
  tenants_.erase(tenant);
  measure_level();
  stale_ = true;
}

void TurnPolicy::change(uint64_t now_ns, Tenant tenant, const TurnTerms& terms) {
  advance(now_ns);
  State* const state = find(tenant);
  if (state == nullptr) return;
  catch_up(state);
  // What the tenant is owed or owes stays the same amount of time.
  const double owed = (level_ - state->virtual_ns) * share_of(*state);
  if (is_capped(*state) != (terms.capped && terms.share_millionths < 1'000'000))
    state->credit_ns = 0;
  state->terms = terms;
  state->virtual_ns = level_ - owed / share_of(*state);
  if (state->blocked && !is_capped(*state)) {
    state->blocked = false;
    enter(state);
  }
  state->came = true;  // its new class may justify a cut
  measure_level();
  stale_ = true;
}

void TurnPolicy::set_wanting(uint64_t now_ns, Tenant tenant, bool wanting) {
  advance(now_ns);
  Entry* const entry = find_entry(tenant);
  State* const state = entry == nullptr ? nullptr : &entry->second;
  if (state == nullptr || state->wanting == wanting) return;
  const bool competed = competes(*state);
  if (wanting) {
    list(entry);
  } else {
    leave(state);
    state->claims = false;
  }
  state->wanting = wanting;
  unlist(state);
  if (!competed) enter(state);
  measure_level();
  stale_ = true;
}

void TurnPolicy::drained(uint64_t now_ns, Tenant tenant, uint64_t excused_ns) {
  advance(now_ns);
  Entry* const entry = find_entry(tenant);
  State* const state = entry == nullptr ? nullptr : &entry->second;
  if (state == nullptr || !state->holding) return;
  // If work ran beside others' work, nobody knows whose the idle time was.
  const uint64_t held_ns = now_ns - std::min(now_ns, state->granted_ns);
  excused_ns = state->overdue || state->preempted ? 0 : std::min(excused_ns, held_ns);
  excuse(entry, excused_ns);
  measure_level();
  if (!state->wanting) leave(state);
  if (!state->preempted) learn(now_ns - excused_ns, state);
  set_overdue(state, false);
  state->holding = state->preempted = state->blocked = false;
  unlist(state);
  settle_accounts(0);  // its cap may now hold it back
}

bool TurnPolicy::may_claim(const State& state) const {
  const double ahead = kClaimQuanta * static_cast<double>(quantum_ns()) / share_of(state);
  return competes(state) && state.virtual_ns <= level_ + ahead;
}

bool TurnPolicy::claim(uint64_t now_ns, Tenant tenant, Cut cut) {
  advance(now_ns);
  State* const state = find(tenant);
  if (state == nullptr || state->holding || !may_claim(*state)) return false;
  state->claims = true;
  end_earlier(now_ns, *state, cut);
  return true;
}

// The running turn, for `state`, unless that has a higher class.
void TurnPolicy::end_earlier(uint64_t now_ns, const State& state, Cut cut) {
  Tenant other = 0;
  State* const current = holder(&other);
  if (cut == Cut::kNone || current == nullptr || class_of(*current) > class_of(state)) return;
  const uint64_t least_ns = cut == Cut::kNow ? 0 : rules_.cut_ns;
  current->cut_ns = std::min(current->cut_ns, std::max(now_ns, current->granted_ns + least_ns));
}

void TurnPolicy::open_window(uint64_t now_ns, Tenant tenant, uint64_t end_ns, uint64_t next_ns) {
  advance(now_ns);
  State* const state = find(tenant);
  if (state == nullptr) return;
  state->in_gang = true;
  state->window_end_ns = end_ns;
  state->next_window_ns = next_ns;
  if (!in_window(*state)) return;
  state->came = true;
  if (is_exclusive(*state))
    state->windowed = true;
  else if (competes(*state))
    end_earlier(now_ns, *state, Cut::kNow);
  measure_level();
  stale_ = true;
}

// Higher goes first. A gang is of a higher class in its windows, and of a lower one outside.
int32_t TurnPolicy::class_of(const State& state) const {
  const int32_t within = !state.in_gang ? 0 : in_window(state) ? 1 : -1;
  return 4 * state.terms.priority + within;
}

void TurnPolicy::disclaim(Tenant tenant) {
  if (State* const state = find(tenant)) state->claims = false;
}

void TurnPolicy::cut(uint64_t now_ns, Tenant tenant) {
  advance(now_ns);
  State* const state = find(tenant);
  if (state == nullptr || !is_exclusive(*state) || !others_compete(state)) return;
  state->cut_ns = std::min(state->cut_ns, now_ns);
}

void TurnPolicy::charge(uint64_t now_ns, Tenant tenant, uint64_t ns) {
  advance(now_ns);
  State* const state = find(tenant);
  if (state == nullptr || ns == 0) return;
  catch_up(state);
  Entry* const other = find_entry(tenant == last_ ? before_last_ : last_);
  if (other != nullptr && &other->second != state) {
    ns = std::min(ns, other->second.used_ns);
    excuse(other, ns);
  }
  state->used_ns += ns;
  state->virtual_ns += static_cast<double>(ns) / share_of(*state);
  state->credit_ns -= static_cast<double>(ns);
  measure_level();
  stale_ = true;
}

void TurnPolicy::excuse(Entry* entry, uint64_t ns) {
  State* const state = &entry->second;
  ns = std::min(ns, state->used_ns);
  catch_up(state);
  state->used_ns -= ns;
  state->virtual_ns -= static_cast<double>(ns) / share_of(*state);
  state->credit_ns += static_cast<double>(ns);
  list_as_unknown(entry);
}

// Learns from a turn that is over: how far its work runs beyond a turn's end, and how much of a
// turn the tenant uses.
void TurnPolicy::learn(uint64_t now_ns, State* state) {
  const uint64_t overrun_ns = now_ns > state->until_ns ? now_ns - state->until_ns : 0;
  // Ignore a single overrun. Drivers load code at a first launch, and the GPU waits for them.
  const uint64_t twice_ns = std::min({overrun_ns, state->last_overrun_ns, rules_.grace_ns});
  state->last_overrun_ns = overrun_ns;
  state->overrun_ns = std::max(twice_ns, state->overrun_ns - state->overrun_ns / 8);
  // Tenants without a turn so far may have pieces that are just as long.
  if (state->unknown) unknown_overrun_ns_ = std::min(unknown_overrun_ns_, state->overrun_ns);
  if (state->overrun_ns > unknown_overrun_ns_) {
    const auto is_known = [&](Tenant other) {
      State& unknown = *find(other);
      unknown.unknown = unknown.used_ns == 0;
      if (unknown.unknown) unknown.overrun_ns = std::max(unknown.overrun_ns, state->overrun_ns);
      return !unknown.unknown;
    };
    unknown_.erase(std::remove_if(unknown_.begin(), unknown_.end(), is_known), unknown_.end());
    unknown_overrun_ns_ = state->overrun_ns;
  }
  if (now_ns >= state->until_ns) {
    state->usual_ns = kNever;
  } else {
    const uint64_t held_ns = now_ns - state->granted_ns;
    state->usual_ns = state->usual_ns == kNever ? held_ns : (3 * state->usual_ns + held_ns) / 4;
  }
}

TurnPolicy::State* TurnPolicy::holder(Tenant* tenant) {
  for (Entry* const entry : active_) {
    if (!is_exclusive(entry->second)) continue;
    *tenant = entry->first;
    return &entry->second;
  }
  return nullptr;
}

bool TurnPolicy::others_compete(const State* holder) const {
  return std::any_of(active_.begin(), active_.end(), [holder](const Entry* entry) {
    return &entry->second != holder && competes(entry->second);
  });
}

// The tenant that is due first goes first. Among alike tenants, the one whose last turn is longest
// ago goes first. Their order must not follow from the small differences between turns.
bool TurnPolicy::is_due_before(const State& one, const State& other) const {
  const double one_due = due(one), other_due = due(other);
  const double alike =
      kAlikeQuanta * static_cast<double>(quantum_ns()) / std::max(share_of(one), share_of(other));
  if (std::abs(one_due - other_due) > alike || one.granted_ns == other.granted_ns)
    return one_due < other_due;
  return one.granted_ns < other.granted_ns;
}

// True if `one` is level. Also true if both have the same class, the last turn of `one` is longer
// ago, and `one` is ahead by less than the lengths of turns differ by chance.
bool TurnPolicy::is_level_beside(const State& one, const State& other) const {
  if (is_level(one)) return true;
  if (class_of(one) != class_of(other)) return false;
  const double ahead = (one.virtual_ns - level_) * share_of(one);
  return one.granted_ns < other.granted_ns &&
         ahead < kAlikeQuanta * static_cast<double>(quantum_ns());
}

bool TurnPolicy::is_better(const State& one, const State& other) const {
  // Outside its windows a gang has only what nobody else wants.
  if (is_put_off(one) != is_put_off(other)) return is_put_off(other);
  const bool claims = one.claims && may_claim(one), other_claims = other.claims && may_claim(other);
  if (claims != other_claims && class_of(one) == class_of(other)) return claims;
  const bool level = is_level_beside(one, other);
  if (level != is_level_beside(other, one)) return level;
  if (level && class_of(one) != class_of(other)) return class_of(one) > class_of(other);
  return is_due_before(one, other);
}

TurnPolicy::Entry* TurnPolicy::best(const State* also) {
  Entry* found = nullptr;
  for (Entry* const entry : active_) {
    const State& state = entry->second;
    if (!competes(state) || (is_exclusive(state) && &state != also)) continue;
    if (found == nullptr || is_better(state, found->second)) found = entry;
  }
  return found;
}

// Ends the running turn for tenants that have just begun to compete. A higher class ends it now. A
// tenant of the same class ends it after cut_ns, if it would be due before the holder's quantum is
// over.
void TurnPolicy::cut_for_those_who_came(uint64_t now_ns, State* holder) {
  const uint64_t into_ns = (now_ns - holder->granted_ns) % quantum_ns();
  const double over =
      holder->virtual_ns + static_cast<double>(quantum_ns() - into_ns) / share_of(*holder);
  for (Entry* const entry : active_) {
    State& state = entry->second;
    if (!state.came) continue;
    const bool may = !state.holding && competes(state),
               higher = class_of(state) > class_of(*holder);
    if (may && higher && !is_level(state)) continue;  // soon: plan_next_look
    state.came = false;
    if (!may || !is_level(state)) continue;
    if (higher) {
      holder->cut_ns = std::min(holder->cut_ns, now_ns);
    } else if (holder->windowed) {
      continue;
    } else if (class_of(state) == class_of(*holder) && due(state) < over) {
      const uint64_t cut_ns = std::max(now_ns, holder->granted_ns + rules_.cut_ns);
      holder->cut_ns = std::min(holder->cut_ns, cut_ns);
    }
  }
}

// What the last turn took too long is taken off this one. Otherwise differences would add up until
// somebody has two turns in a row. Only a small overrun counts: a piece that is longer than a turn
// says nothing about the lengths of turns.
uint64_t TurnPolicy::late_before_ns(const State& holder) const {
  if (holder.last_overrun_ns == UINT64_MAX) return 0;
  return std::min(holder.last_overrun_ns,
                  static_cast<uint64_t>(kAlikeQuanta * static_cast<double>(quantum_ns())));
}

uint64_t TurnPolicy::end_of_turn(uint64_t now_ns, State* holder) {
  uint64_t end_ns = kNever;
  const bool contended = others_compete(holder);
  if (contended && holder->windowed) {
    end_ns = std::max(now_ns, std::min(holder->window_end_ns, holder->cut_ns));
  } else if (contended) {
    // The rest of the running quantum, then every further quantum that the holder would be given
    // next.
    const uint64_t quantum = quantum_ns(), late_ns = late_before_ns(*holder);
    const uint64_t held_ns = now_ns - holder->granted_ns + late_ns;
    const uint64_t begun = std::max<uint64_t>(1, (held_ns + quantum - 1) / quantum);
    end_ns = holder->granted_ns + begun * quantum - late_ns;
    const double virtual_now = holder->virtual_ns;
    for (int quanta = 1; quanta < kQuantaMax; ++quanta) {
      // Assume half a quantum more than needed, so that among equals the next tenant gets its turn.
      // A tenant with a larger share has longer turns instead of more turns, which saves switches.
      const uint64_t half_quantum_ns = quantum / 2;
      const double drained_ns =
          static_cast<double>(end_ns - now_ns + holder->overrun_ns + half_quantum_ns);
      holder->virtual_ns = virtual_now + (drained_ns - longer_ns(*holder)) / share_of(*holder);
      measure_level();
      if (&best(holder)->second != holder) break;
      end_ns += quantum;
    }
    holder->virtual_ns = virtual_now;
    measure_level();
    end_ns = std::max(now_ns, std::min(end_ns, holder->cut_ns));
    for (const Entry* entry : active_) {
      const State& other = entry->second;
      if (&other != holder && is_put_off(other) && competes(other) && now_ns < other.next_window_ns)
        end_ns = std::min(end_ns, other.next_window_ns);
    }
  }
  if (is_capped(*holder)) {
    const double over = kCapQuanta * static_cast<double>(rules_.quantum_ns);
    const double room = (holder->credit_ns + over) / (1 - share_of(*holder));
    end_ns = std::min(end_ns, now_ns + static_cast<uint64_t>(std::max(0.0, room)));
  }
  return end_ns;
}

// For a tenant of a higher class that is ahead: the time until it is level, because the level rises
// or its share comes in.
uint64_t TurnPolicy::level_in_ns(const State& state) const {
  constexpr double kLeastNs = 20'000;
  const double ahead = static_cast<double>(quantum_ns()) / share_of(state);
  const double as_level_rises = (state.virtual_ns - level_ - ahead) * shares_;
  const double as_share_comes_in = -state.credit_ns / share_of(state);
  return static_cast<uint64_t>(
      std::max(kLeastNs, std::ceil(std::min(as_level_rises, as_share_comes_in))));
}

void TurnPolicy::plan_next_look(uint64_t now_ns) {
  look_again_ns_ = kNever;
  Tenant tenant_of_turn = 0;
  const State* const current = holder(&tenant_of_turn);
  for (const Entry* entry : active_) {
    const State& state = entry->second;
    if (is_exclusive(state) && state.until_ns != kNever) {
      look_again_ns_ = std::min(look_again_ns_, state.until_ns + state.grace_ns);
    }
    const bool higher = current != nullptr && class_of(state) > class_of(*current);
    if (higher && state.came && !state.holding && competes(state) && current->until_ns > now_ns)
      look_again_ns_ = std::min(look_again_ns_, now_ns + level_in_ns(state));
    if (in_window(state)) look_again_ns_ = std::min(look_again_ns_, state.window_end_ns);
    if (may_resume(state))
      look_again_ns_ = std::min(look_again_ns_, std::max(now_ns + 1, resumes_ns(state)));
    if (state.wanting && state.blocked) {
      const double wait_ns = std::ceil(std::max(0.0, -state.credit_ns) / share_of(state));
      look_again_ns_ = std::min(look_again_ns_, now_ns + static_cast<uint64_t>(wait_ns) + 1);
    }
  }
}

void TurnPolicy::begin(uint64_t now_ns, State* state) {
  state->grace_ns = state->overdue ? 0 : rules_.grace_ns;
  state->holding = true;
  set_overdue(state, false);
  state->claims = false;
  state->windowed = in_window(*state);
  state->granted_ns = now_ns;
  state->cut_ns = kNever;
  for (Entry* const entry : active_)
    entry->second.came &= class_of(entry->second) > class_of(*state);
  state->until_ns = end_of_turn(now_ns, state);
}

TurnPolicy::Ending TurnPolicy::ending() {
  Tenant tenant = 0;
  const State* const current = holder(&tenant);
  if (current == nullptr || current->until_ns == kNever) return Ending();
  const auto* const next = best(nullptr);
  return next == nullptr ? Ending() : Ending{current->until_ns, next->first};
}

// True if the holder's turn is over, its work is not done, and a tenant of a higher class may go.
bool TurnPolicy::is_preempted(uint64_t now_ns, const State& holder) {
  if (!rules_.preempts || holder.until_ns > now_ns) return false;
  const auto* const next = best(nullptr);
  return next != nullptr && is_level(next->second) && class_of(next->second) > class_of(holder);
}

// The preempted tenant whose work must be done before `next` begins. A preempted tenant gives way
// only to a higher class.
TurnPolicy::State* TurnPolicy::preempted_before(const State& next) {
  State* found = nullptr;
  for (Entry* const entry : active_) {
    State& state = entry->second;
    if (!state.preempted || (class_of(next) > class_of(state) && is_level(next))) continue;
    if (found == nullptr || is_better(state, *found)) found = &state;
  }
  return found;
}

void TurnPolicy::give_next(uint64_t now_ns, std::vector<Turn>* turns) {
  auto* const next = best(nullptr);
  if (next == nullptr) return;
  State* const before = preempted_before(next->second);
  if (before != nullptr && (before != &next->second || !before->wanting)) {
    before->preempted = false;
    // Its grace does not begin again: the end moves by the time that it was preempted. The same
    // time is added once more for the hardware's switches there and back.
    before->until_ns = std::min(now_ns, before->until_ns + 2 * (now_ns - before->preempted_at_ns));
    return;
  }
  next->second.preempted = false;
  begin(now_ns, &next->second);
  if (next->first != last_) before_last_ = std::exchange(last_, next->first);
  turns->push_back({next->first, next->second.until_ns, true});
}

std::vector<TurnPolicy::Turn> TurnPolicy::decide(uint64_t now_ns) {
  advance(now_ns);
  std::vector<Turn> turns;
  Tenant tenant = 0;
  State* current = holder(&tenant);
  if (current != nullptr && current->until_ns != kNever &&
      now_ns >= current->until_ns + current->grace_ns) {
    leave(current);
    set_overdue(current, true);
    current = nullptr;
    measure_level();
  }
  if (current != nullptr) {
    cut_for_those_who_came(now_ns, current);
    // If the end has passed, the turn is over and its work is being finished.
    const uint64_t end_ns =
        current->until_ns <= now_ns ? current->until_ns : end_of_turn(now_ns, current);
    if (end_ns != current->until_ns) {
      current->until_ns = end_ns;
      turns.push_back({tenant, end_ns, false});
    }
    if (is_preempted(now_ns, *current)) {
      current->preempted = true;
      current->preempted_at_ns = now_ns;
      current = nullptr;
    }
  }
  if (current == nullptr) give_next(now_ns, &turns);
  for (Entry* const entry : active_) {
    State& state = entry->second;
    if (!may_resume(state)) continue;
    if (!others_compete(&state)) {
      begin(now_ns, &state);  // alone again
    } else if (now_ns >= resumes_ns(state)) {
      state.until_ns = now_ns + rules_.quantum_ns;
      state.grace_ns = 0;
    } else {
      continue;
    }
    turns.push_back({entry->first, state.until_ns, true});
  }
  plan_next_look(now_ns);
  stale_ = true;
  return turns;
}

bool TurnPolicy::is_overdue(Tenant tenant) const {
  const auto found = tenants_.find(tenant);
  return found != tenants_.end() && found->second.overdue;
}

uint64_t TurnPolicy::preempted_ns(Tenant tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? 0 : found->second.preempted_ns;
}

TurnPolicy::Use TurnPolicy::use(uint64_t now_ns, Tenant tenant) {
  const State* const state = find(tenant);
  if (state == nullptr) return Use();
  if (is_active(*state)) advance(now_ns);
  return {state->used_ns, state->waited_ns, state->wanting,     state->holding,
          state->overdue, state->preempted, state->preempted_ns};
}

}  // namespace tendril::lease

// SPDX-License-Identifier: Apache-2.0
// Who must make room. A request inside its account's quota may take back what its account lent, and
// what classes hold that its own class preempts. Nobody loses anything unless the request then
// fits. The least important lease goes first; among equals the one that loses least.
#include <algorithm>
#include <functional>
#include <set>

#include "pool/engine/explain.h"
#include "pool/engine/state.h"
#include "pool/life/life.h"

namespace tendril::pool {

namespace {

struct Victim {
  uint64_t id = 0;
  int32_t priority = 0;
  int64_t started_s = 0;
  bool operator<(const Victim& other) const {
    return std::tuple(priority, -started_s, other.id) <
           std::tuple(other.priority, -other.started_s, id);
  }
};

// Leaves out whoever need not go.
void leave_out(std::vector<uint64_t>& chosen, std::set<uint64_t>& gone,
               const std::function<bool()>& fits) {
  for (size_t i = chosen.size(); i-- > 0 && chosen.size() > 1;) {
    gone.erase(chosen[i]);
    if (fits())
      chosen.erase(chosen.begin() + static_cast<ptrdiff_t>(i));
    else
      gone.insert(chosen[i]);
  }
}

}  // namespace

// As pool/life will do it, if the program uses all the time that it is given.
int64_t Engine::State::gone_by_s(const Entry& victim, int64_t now_s) const {
  constexpr int64_t kSecondNs = 1'000'000'000;
  const LifeRules rules = life_rules(policy().user_classes[victim.ask.user_class], policy(), 0);
  const int64_t by_ns =
      reclaimed_by_ns(rules, victim.started_s * kSecondNs, now_s * kSecondNs, true);
  return by_ns == kNever ? kNever : by_ns / kSecondNs;
}

// What has just begun is left alone for a while.
int64_t Engine::State::reclaimable_from_s(const Entry& victim) const {
  const UserClass& of = policy().user_classes[victim.charge.user_class];
  return victim.started_s +
         static_cast<int64_t>(std::min<uint64_t>(of.preempt_exempt_time_s, 1 << 30));
}

// If the reclaim begins then.
bool Engine::State::reclaimable(const Entry& victim, const Entry& entry, uint32_t gpu_class,
                                int64_t begins_s) const {
  if (!victim.charged || victim.reclaimed || victim.charge.gpu_class != gpu_class) return false;
  const UserClass& of = policy().user_classes[victim.charge.user_class];
  if (!of.reclaimable || begins_s < reclaimable_from_s(victim)) return false;
  const std::vector<uint32_t>& preempts = policy().user_classes[entry.ask.user_class].preempts;
  if (std::find(preempts.begin(), preempts.end(), victim.charge.user_class) != preempts.end())
    return true;
  return victim.charge.account != entry.ask.account ||
         victim.charge.user_class != entry.ask.user_class;
}

bool Engine::State::reclaim_for(Entry& entry, uint32_t gpu_class, int64_t now_s, EnginePlan& plan) {
  if (const Promise* own = promise_of(entry.ask.id); own != nullptr && own->at_s <= now_s + 1)
    return false;
  const std::vector<uint64_t> chosen = victims_for(entry, gpu_class, now_s, now_s);
  const std::string why = policy().accounts[entry.ask.account].name + " reclaims " +
                          amount_text(charge_of(entry, gpu_class).amount) + " " +
                          policy().gpu_classes[gpu_class].name;
  for (uint64_t id : chosen) reclaim(*running[id], entry.ask.id, why, now_s, plan);
  return !chosen.empty();
}

// Who makes room if the reclaim begins at `begins_s` and nothing else changes until then. Empty:
// the request has no right to a reclaim, or would not fit after it, or fits without it.
std::vector<uint64_t> Engine::State::victims_for(const Entry& entry, uint32_t gpu_class,
                                                 int64_t now_s, int64_t begins_s) {
  const Charge charge = charge_of(entry, gpu_class);
  const std::vector<uint32_t>& preempts = policy().user_classes[entry.ask.user_class].preempts;
  const bool inside = ledger.inside_quota(ledger.use(), charge);
  const auto lacking = ledger.lacks(ledger.use(), charge);
  if ((!inside && preempts.empty()) || (lacking && lacking->what != Lack::kFull)) return {};
  const std::function<bool(uint64_t)> may_use = [&](uint64_t reservation) {
    return this->may_use(entry, reservation);
  };
  // A lease may go if its class is preempted, or if what it holds is over its account's quota.
  Ledger::Use use = ledger.for_user(ledger.use(), charge);  // users do not matter
  std::set<uint64_t> gone;
  const auto may_go = [&](const Entry& victim) {
    if (!reclaimable(victim, entry, gpu_class, begins_s)) return false;
    if (std::find(preempts.begin(), preempts.end(), victim.charge.user_class) != preempts.end())
      return true;
    return inside && ledger.over_quota(use, victim.charge);
  };
  // What is reclaimed already ends soon.
  for (const auto& [id, lease] : running)
    if (lease->reclaimed) {
      gone.insert(id);
      if (lease->charged) ledger.remove(use, lease->charge);
    }
  Seeker seeker = seeker_for(entry, now_s);
  seeker.may_use = &may_use;
  const auto ends = [&](const Holder& holder) {
    return gone.count(holder.id) != 0 ? now_s : kNever;
  };
  const auto fits = [&] { return room.earliest(seeker, gpu_class, ends).at_s <= now_s; };
  std::vector<Victim> victims;
  for (const auto& [id, lease] : running)
    if (may_go(*lease))
      victims.push_back(
          Victim{id, policy().user_classes[lease->charge.user_class].priority, lease->started_s});
  if (victims.empty() || fits()) return {};
  std::sort(victims.begin(), victims.end());
  // Take one after the other until it fits, then leave out those that need not go.
  std::vector<uint64_t> chosen;
  size_t step = 1;
  bool fitting = false;
  for (size_t i = 0; i < victims.size() && !fitting;) {
    for (size_t end = std::min(i + step, victims.size()); i < end; ++i) {
      const Entry& victim = *running[victims[i].id];
      if (!may_go(victim)) continue;
      ledger.remove(use, victim.charge);
      gone.insert(victims[i].id);
      chosen.push_back(victims[i].id);
    }
    fitting = fits();
    step *= 2;
  }
  if (!fitting) return {};
  const std::vector<PlacedSlice> place = room.earliest(seeker, gpu_class, ends).slices;
  std::set<uint64_t> there;
  for (const PlacedSlice& slice : place)
    for (const Holder& holder : room.holders(slice.server, slice.gpu)) there.insert(holder.id);
  for (size_t i = chosen.size(); i-- > 0;)
    if (there.count(chosen[i]) == 0) {
      gone.erase(chosen[i]);
      chosen.erase(chosen.begin() + static_cast<ptrdiff_t>(i));
    }
  leave_out(chosen, gone, fits);
  return chosen;
}

void Engine::State::add_to(Taking& taking, const Entry& victim, int64_t gone_by_s) const {
  taking.gone_by_s = taking.amount == 0 ? gone_by_s : std::max(taking.gone_by_s, gone_by_s);
  taking.amount += victim.charge.amount;
  taking.accounts.insert(victim.charge.account);
  taking.user_classes.insert(victim.charge.user_class);
}

// What is being taken back for it now.
Taking Engine::State::taken_for(const Entry& entry, uint32_t gpu_class) const {
  Taking taking;
  for (const auto& [id, lease] : running)
    if (lease->charged && lease->reclaimed && lease->reclaimed_for == entry.ask.id &&
        lease->charge.gpu_class == gpu_class)
      add_to(taking, *lease, lease->ends_by_s);
  return taking;
}

// What will be taken back for it when those that hold it may be asked to go, if nothing changes.
// The more time has passed, the more of them may be.
Taking Engine::State::foretell(const Entry& entry, uint32_t gpu_class, int64_t now_s) {
  std::vector<int64_t> begins;
  for (const auto& [id, lease] : running)
    if (reclaimable(*lease, entry, gpu_class, kNever))
      begins.push_back(std::max(reclaimable_from_s(*lease), now_s));
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  if (begins.empty() || victims_for(entry, gpu_class, now_s, begins.back()).empty()) return {};
  const auto first = std::partition_point(begins.begin(), begins.end() - 1, [&](int64_t at_s) {
    return victims_for(entry, gpu_class, now_s, at_s).empty();
  });
  Taking taking;
  for (uint64_t id : victims_for(entry, gpu_class, now_s, *first)) {
    const Entry& victim = *running[id];
    add_to(taking, victim, std::min(victim.ends_by_s, gone_by_s(victim, *first)));
  }
  return taking;
}

void Engine::State::reclaim(Entry& victim, uint64_t for_id, const std::string& why, int64_t now_s,
                            EnginePlan& plan) {
  victim.reclaimed = true;
  victim.reclaimed_for = for_id;
  const int64_t by_s = std::min(victim.ends_by_s, gone_by_s(victim, now_s));
  set_end(victim, by_s);
  plan.reclaims.push_back(EngineReclaim{victim.ask.id, for_id, by_s, why});
}

// What still runs on reserved GPUs shortly before a reservation begins, though it may be ended.
void Engine::State::reclaim_for_reservations(int64_t now_s, EnginePlan& plan) {
  for (const Booking& booking : bookings_) {
    if (!booking.chosen || booking.to_s <= now_s) continue;
    for (const PlacedSlice& slice : booking.slices) {
      const std::vector<Holder> holders = room.holders(slice.server, slice.gpu);
      for (const Holder& holder : holders) {
        const auto found = running.find(holder.id);
        if (found == running.end()) continue;
        Entry& lease = *found->second;
        if (lease.reclaimed || !lease.charged || lease.ends_by_s <= booking.from_s ||
            may_use(lease, booking.number) ||
            !policy().user_classes[lease.charge.user_class].reclaimable ||
            booking.from_s > gone_by_s(lease, now_s))
          continue;
        reclaim(lease, 0, "reservation " + policy().reservations[booking.number].name, now_s, plan);
      }
    }
  }
}

}  // namespace tendril::pool

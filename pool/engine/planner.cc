// SPDX-License-Identifier: Apache-2.0
// Who starts now. Requests are looked at in their order. The first of a class that has a right to
// start and finds no place becomes its head: it gets a time and a place, and nothing that starts
// later may be in its way there. A second head may be one inside its account's quota, and a third
// one that has waited too long.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <queue>

#include "pool/engine/state.h"

namespace tendril::pool {

namespace {

// Everything is looked at again after this time, even if nothing happened: leases pass the time
// during which they are not reclaimed.
constexpr int64_t kPlanAll_s = 5;
constexpr double kSameUsage = 0.1;  // in parts of what an account is entitled to

uint64_t failure_key(uint32_t shape, uint32_t gpu_class) {
  return uint64_t{shape} << 32 | gpu_class;
}

}  // namespace

EnginePlan Engine::State::plan(int64_t now_s) {
  EnginePlan plan;
  prepare(now_s);
  if (dirty_ || now_s >= planned_all_s_ + kPlanAll_s) {
    plan_all(now_s, plan);
  } else {
    // Nothing became free: who found no place still finds none.
    std::vector<Entry*> fresh;
    for (uint64_t id : fresh_)
      if (const auto found = waiting.find(id); found != waiting.end() && found->second->fresh)
        fresh.push_back(found->second.get());
    if (fresh.size() > 1)
      std::sort(fresh.begin(), fresh.end(), [&](const Entry* left, const Entry* right) {
        return key_of(*left) < key_of(*right);
      });
    for (Entry* entry : fresh) consider(*entry, now_s, plan);
  }
  fresh_.clear();
  plan.again_s = next_time(now_s);
  return plan;
}

void Engine::State::plan_all(int64_t now_s, EnginePlan& plan) {
  dirty_ = false;
  planned_all_s_ = now_s;
  check_promises(now_s);
  reclaim_for_reservations(now_s, plan);
  // Those with a promise, then those who have waited too long.
  std::vector<std::pair<int64_t, uint64_t>> promised;
  for (const Promise& promise : promises_) promised.emplace_back(promise.at_s, promise.id);
  std::sort(promised.begin(), promised.end());
  std::set<uint64_t> seen;
  for (const auto& [at_s, id] : promised) {
    seen.insert(id);
    consider(*waiting[id], now_s, plan);
  }
  std::vector<uint64_t> overdue;
  for (const auto& [submitted_s, id] : by_age_) {
    const Entry& entry = *waiting[id];
    if (!late(entry, now_s) && !entry.gone) break;
    if (!entry.gone && seen.insert(id).second) overdue.push_back(id);
  }
  for (uint64_t id : overdue) consider(*waiting[id], now_s, plan);
  // The others: the first of each lane, the best of them first. A start makes the keys of its
  // account worse, never better. So a key is computed again before it counts.
  struct Row {
    std::vector<Entry*> entries;
    size_t at = 0;
  };
  std::vector<Row> rows;
  for (const auto& [key, lane] : lanes_) {
    Row row;
    for (const LaneKey& each : lane) {
      Entry* entry = waiting[std::get<2>(each)].get();
      if (seen.count(entry->ask.id) == 0) row.entries.push_back(entry);
    }
    if (!row.entries.empty()) rows.push_back(std::move(row));
  }
  using Front = std::pair<OrderKey, Row*>;
  const auto worse = [](const Front& left, const Front& right) { return right.first < left.first; };
  std::priority_queue<Front, std::vector<Front>, decltype(worse)> fronts(worse);
  for (Row& row : rows) fronts.emplace(key_of(*row.entries[0]), &row);
  while (!fronts.empty()) {
    Front front = fronts.top();
    fronts.pop();
    Row& row = *front.second;
    OrderKey key = key_of(*row.entries[row.at]);
    if (!fronts.empty() && fronts.top().first < key) {
      fronts.emplace(std::move(key), &row);
      continue;
    }
    consider(*row.entries[row.at], now_s, plan);
    if (++row.at < row.entries.size()) fronts.emplace(key_of(*row.entries[row.at]), &row);
  }
}

// Brings everything that depends on the time or on servers up to date.
void Engine::State::prepare(int64_t now_s) {
  advance(now_s);
  charged_.assign(usage_.size(), 0);
  if (room.changes() != room_changes_) {
    room_changes_ = room.changes();
    std::vector<uint64_t> capacity;
    for (uint32_t i = 0; i < policy().gpu_classes.size(); ++i) capacity.push_back(room.capacity(i));
    ledger.set_capacity(std::move(capacity));
    ledger.compute_entitlements();
    next_window_s_ = std::numeric_limits<int64_t>::min();
    dirty_ = true;
  }
  if (now_s >= next_window_s_) {
    next_window_s_ = kNever;
    const auto next = [&](int64_t at_s) {
      if (at_s > now_s) next_window_s_ = std::min(next_window_s_, at_s);
    };
    for (uint32_t server = 0; server < room.servers(); ++server)
      for (const Interval& window : room.maintenance(server)) {
        next(window.from_s);
        next(window.to_s);
      }
    for (const Booking& booking : bookings_) {
      next(booking.from_s);
      next(booking.to_s);
    }
    room.gained();
    dirty_ = true;
    book_reservations(now_s);
  }
}

int64_t Engine::State::next_time(int64_t now_s) const {
  int64_t next_s = next_window_s_;
  const auto next = [&](int64_t at_s) {
    if (at_s > now_s) next_s = std::min(next_s, at_s);
  };
  for (const Promise& promise : promises_) next(promise.at_s);
  if (!waiting.empty()) {
    next(now_s + kPlanAll_s);
    next(plus_s(by_age_.begin()->first, static_cast<int64_t>(policy().longest_wait_s)));
  }
  return next_s;
}

Engine::State::OrderKey Engine::State::key_of(const Entry& entry) const {
  OrderKey key;
  key.less_priority = -priority(entry);
  key.submitted_s = entry.ask.submitted_s;
  key.id = entry.ask.id;
  if (entry.gone) return key;
  key.over = true;
  for (uint32_t gpu_class : entry.ask.gpu_classes)
    if (ledger.inside_quota(ledger.use(), charge_of(entry, gpu_class))) key.over = false;
  // What the account used on average, as a part of what it is entitled to. Who used nearly as much
  // as another has no right to go first: then age decides.
  const double memory_s =
      static_cast<double>(policy().fair_share_half_life_s) / std::numbers::ln2 / kWholeGpu;
  for (uint32_t account = entry.ask.account; account != kNoAccount;
       account = policy().accounts[account].parent)
    key.used.push_back(std::floor((usage_[account].gpu_seconds() + charged_[account]) / memory_s /
                                  std::max(ledger.entitlement(account), 1.0) / kSameUsage));
  std::reverse(key.used.begin(), key.used.end());
  return key;
}

Seeker Engine::State::seeker_for(const Entry& entry, int64_t now_s) {
  Seeker seeker;
  seeker.ask = &entry.ask;
  seeker.filter = entry.answers.get();
  seeker.avoided = entry.avoided.empty() ? nullptr : &entry.avoided;
  seeker.now_s = now_s;
  seeker.lasts_s = entry.most_s;
  seeker.into_maintenance =
      !entry.gone && policy().user_classes[entry.ask.user_class].into_maintenance;
  return seeker;
}

// True if the request started.
bool Engine::State::consider(Entry& entry, int64_t now_s, EnginePlan& plan) {
  entry.fresh = false;
  if (entry.gone) return false;
  if (start_as_promised(entry, now_s, plan)) return true;
  for (uint32_t gpu_class : entry.ask.gpu_classes)
    if (try_start(entry, gpu_class, now_s, plan)) return true;
  head(entry, now_s, plan);
  return false;
}

bool Engine::State::try_start(Entry& entry, uint32_t gpu_class, int64_t now_s, EnginePlan& plan) {
  Charge charge = charge_of(entry, gpu_class);
  if (is_over(charge)) return false;
  const int64_t ends_by_s = plus_s(now_s, entry.most_s);
  const Promise* own = promise_of(entry.ask.id);
  Failure& failure = failures_[failure_key(entry.shape, gpu_class)];
  const bool usual = own == nullptr && entry.avoided.empty() && !entry.ask.filter_changes;
  const uint64_t gains = room.gains(gpu_class);
  if (usual && failure.gains == gains && ends_by_s >= failure.ends_by_s) return false;
  if (delays_a_promise(entry, charge, ends_by_s)) return false;
  const std::function<bool(uint64_t)> may_use = [&](uint64_t reservation) {
    return this->may_use(entry, reservation);
  };
  Seeker seeker = seeker_for(entry, now_s);
  seeker.may_use = &may_use;
  FoundPlace found = room.find(seeker, gpu_class);
  if (found.slices.empty()) {
    if (usual) failure = Failure{gains, found.refused_for_time ? ends_by_s : now_s};
    return false;
  }
  const uint64_t amount = amount_of(found.slices);
  if (amount != charge.amount) {
    // On smaller GPUs its memory is a larger part, which may be too much.
    seeker.counts_at_most = charge.amount / entry.ask.slices;
    charge.amount = amount;
    if (is_over(charge) || delays_a_promise(entry, charge, ends_by_s)) {
      found = room.find(seeker, gpu_class);
      charge.amount = amount_of(found.slices);
      if (found.slices.empty() || is_over(charge) || delays_a_promise(entry, charge, ends_by_s))
        return false;
    }
  }
  start(entry, charge, std::move(found.slices), now_s, plan);
  return true;
}

// If all is held, places decide, unless some is kept for others.
bool Engine::State::is_over(const Charge& charge) const {
  return beyond(ledger.use(), charge).has_value();
}

std::optional<Lacking> Engine::State::beyond(const Ledger::Use& use, const Charge& charge) const {
  const auto lacking = ledger.lacks(use, charge);
  return lacking && (lacking->what != Lack::kFull || lacking->kept) ? lacking : std::nullopt;
}

// By what its account or user may have, that is; places are seen to by claims.
bool Engine::State::delays_a_promise(const Entry& entry, const Charge& charge, int64_t ends_by_s) {
  const Promise* own = promise_of(entry.ask.id);
  for (Promise& promise : promises_) {
    if (promise.id == entry.ask.id || ends_by_s <= promise.at_s) continue;
    // What was promised earlier is counted there already, and goes first. Elsewhere than promised
    // it may count as more, or in another class.
    const bool earlier =
        own != nullptr && own->at_s <= promise.at_s && own->charge.gpu_class == charge.gpu_class;
    if (earlier && charge.amount <= own->charge.amount) continue;
    if (charge.gpu_class != promise.gpu_class && charge.user != promise.charge.user) continue;
    const bool counted = own != nullptr && meets(*own, promise);
    if (counted) ledger.remove(promise.then, own->charge);
    ledger.add(promise.then, charge);
    const bool delayed = lacks_then(promise);
    ledger.remove(promise.then, charge);
    if (counted) ledger.add(promise.then, own->charge);
    if (delayed) return true;
  }
  return false;
}

void Engine::State::start(Entry& entry, const Charge& charge, std::vector<PlacedSlice> slices,
                          int64_t now_s, EnginePlan& plan) {
  constexpr double kMostCharged_s = 3600;
  const uint64_t id = entry.ask.id;
  drop_promise(id);
  unqueue(entry);
  auto node = waiting.extract(id);
  entry.started_s = now_s;
  entry.ends_by_s = plus_s(now_s, entry.most_s);
  entry.charge = charge;
  entry.reclaimed = false;
  room.hold(id, slices, entry.ask.packed, entry.ends_by_s);
  running[id] = std::move(node.mapped());
  count(entry, true);
  const double weighted = static_cast<double>(charge.amount) / kWholeGpu *
                          policy().gpu_classes[charge.gpu_class].usage_weight *
                          policy().user_classes[charge.user_class].usage_factor;
  const double lasts_s = std::min(static_cast<double>(entry.most_s) / 2, kMostCharged_s);
  for (uint32_t account = charge.account; account != kNoAccount;
       account = policy().accounts[account].parent)
    charged_[account] += weighted * lasts_s;
  plan.starts.push_back(EngineStart{id, charge.gpu_class, entry.ends_by_s, std::move(slices)});
}

}  // namespace tendril::pool

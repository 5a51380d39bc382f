// SPDX-License-Identifier: Apache-2.0
// Why requests wait, with the numbers behind it, and when they start. It looks for a place again,
// as if one thing after the other were not in the way. So it is asked seldom, not in each plan.
#include "pool/engine/explain.h"

#include <algorithm>
#include <functional>

#include "config/quantity.h"
#include "pool/engine/state.h"

namespace tendril::pool {

namespace {

constexpr double kEarly = 0.1;  // so many leases have ended by what is called likely

std::string plural(uint64_t count, const std::string& one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

// What is free of one class as time goes on, in sums.
class Profile {
 public:
  Profile(uint64_t now_free, int64_t now_s) : free_(now_free), at_s_(now_s) {}
  void add_end(int64_t at_s, uint64_t amount) { ends_.emplace(at_s, amount); }
  // When that much is free, not before those that asked earlier; kNever.
  int64_t take(uint64_t amount, int64_t lasts_s) {
    while (free_ < amount && !ends_.empty() && ends_.begin()->first != kNever) {
      at_s_ = std::max(at_s_, ends_.begin()->first);
      free_ += ends_.begin()->second;
      ends_.erase(ends_.begin());
    }
    if (free_ < amount) return kNever;
    free_ -= amount;
    add_end(plus_s(at_s_, lasts_s), amount);
    return at_s_;
  }
  // When that much is free, if nobody else asks.
  int64_t first(uint64_t amount) const {
    uint64_t sum = free_;
    int64_t at_s = at_s_;
    for (const auto& [end_s, more] : ends_) {
      if (sum >= amount || end_s == kNever) break;
      sum += more;
      at_s = std::max(at_s, end_s);
    }
    return sum >= amount ? at_s : kNever;
  }

 private:
  std::multimap<int64_t, uint64_t> ends_;
  uint64_t free_;
  int64_t at_s_;
};

}  // namespace

std::string amount_text(uint64_t millionths) {
  std::string text = std::to_string(millionths / kWholeGpu) + ".";
  std::string rest = std::to_string(millionths % kWholeGpu + kWholeGpu).substr(1, 3);
  while (rest.size() > 1 && rest.back() == '0') rest.pop_back();
  return text + rest;
}

std::vector<EngineWaiting> Engine::State::explain(int64_t now_s) {
  prepare(now_s);
  const std::vector<Entry*> order = in_order(now_s);
  foretold_in_.clear();
  std::vector<EngineWaiting> all;
  std::map<uint32_t, uint32_t> places;
  for (Entry* entry : order) {
    EngineWaiting each;
    each.id = entry->ask.id;
    each.account = entry->ask.account;
    diagnose(*entry, now_s, each);
    each.place = ++places[each.gpu_class];
    const bool head = promise_of(each.id) != nullptr || each.place == 1;
    if (!head && (each.reason == WaitReason::kResources || each.reason == WaitReason::kPriority)) {
      each.reason = WaitReason::kPriority;
      each.text = plural(each.place - 1, "request") + (each.place == 2 ? " goes" : " go") +
                  " first; " + each.text;
    }
    all.push_back(std::move(each));
  }
  for (EngineWaiting& each : all) each.of = places[each.gpu_class];
  forecast(order, now_s, all);
  return all;
}

std::vector<Engine::State::Entry*> Engine::State::in_order(int64_t now_s) {
  struct Place {
    int rank = 0;
    int64_t first_s = 0;
    OrderKey key;
    Entry* entry = nullptr;
    bool operator<(const Place& other) const {
      return std::tie(rank, first_s, key) < std::tie(other.rank, other.first_s, other.key);
    }
  };
  std::vector<Place> places;
  for (const auto& [id, entry] : waiting) {
    Place place{2, 0, key_of(*entry), entry.get()};
    if (const Promise* promise = promise_of(id)) {
      place.rank = 0;
      place.first_s = promise->at_s;
    } else if (late(*entry, now_s)) {
      place.rank = 1;
      place.first_s = entry->ask.submitted_s;
    }
    places.push_back(std::move(place));
  }
  std::sort(places.begin(), places.end());
  std::vector<Entry*> order;
  for (const Place& place : places) order.push_back(place.entry);
  return order;
}

void Engine::State::lacking_text(const Entry& entry, uint32_t gpu_class, const Lacking& lacking,
                                 EngineWaiting& out) const {
  const std::string gpus = policy().gpu_classes[gpu_class].name;
  const UserClass& of = policy().user_classes[entry.ask.user_class];
  const Account& account = policy().accounts[lacking.account];
  const uint64_t held = ledger.held(ledger.use(), lacking.account, gpu_class);
  const uint64_t quota = ledger.quota(lacking.account, gpu_class);
  const auto user_limit = [&](const Ledger::OfUser& user, const PerUser& most, bool leases,
                              const std::string& where) {
    out.reason = WaitReason::kUserLimit;
    out.text =
        entry.ask.user + " has " +
        (leases ? std::to_string(user.leases) + " of at most " + plural(most.leases, "lease")
                : amount_text(user.gpus) + " of at most " + amount_text(most.gpus) + " GPUs") +
        " in " + where;
  };
  const Ledger::OfUser in_class = ledger.of_class_user(entry.ask.user_class, entry.user);
  const Ledger::OfUser in_account = ledger.of_account_user(lacking.account, entry.user);
  out.reason = WaitReason::kQuota;
  switch (lacking.what) {
    case Lack::kUserClassGpus:
      return user_limit(in_class, of.max_per_user, false, "class " + of.name);
    case Lack::kUserClassLeases:
      return user_limit(in_class, of.max_per_user, true, "class " + of.name);
    case Lack::kAccountUserGpus:
      return user_limit(in_account, account.max_per_user, false, "account " + account.name);
    case Lack::kAccountUserLeases:
      return user_limit(in_account, account.max_per_user, true, "account " + account.name);
    case Lack::kAccountLimit:
      out.text = account.name + " holds " + amount_text(held) + " " + gpus + ", its limit is " +
                 amount_text(ledger.limit(lacking.account, gpu_class));
      return;
    case Lack::kOwnQuota:
      out.text = account.name + " holds " + amount_text(held) + " of " + amount_text(quota) + " " +
                 gpus + ", and class " + of.name + " waits for the account's own";
      return;
    case Lack::kLending:
    case Lack::kFull:
      out.text = account.name + " holds " + amount_text(held) + " of " + amount_text(quota) + " " +
                 gpus + ", and others lend no more";
      if (const uint64_t lent = ledger.lent(lacking.account, gpu_class); lent != 0)
        out.text += "; " + amount_text(lent) + " of its own are lent";
      return;
  }
}

void Engine::State::diagnose(const Entry& entry, int64_t now_s, EngineWaiting& out) {
  if (entry.gone || entry.ask.gpu_classes.empty()) {
    out.reason = entry.gone ? WaitReason::kAccount : WaitReason::kNeverFits;
    out.text = entry.gone ? "the policy has its account or class of use no more"
                          : "the policy has none of its classes of GPUs any more";
    return;
  }
  const Promise* own = promise_of(entry.ask.id);
  std::optional<Lacking> lacking;
  uint32_t chosen = own != nullptr ? own->gpu_class : kNoClass;
  for (uint32_t gpu_class : entry.ask.gpu_classes) {
    if (own != nullptr && gpu_class != own->gpu_class) continue;
    lacking = ledger.lacks(ledger.use(), charge_of(entry, gpu_class));
    chosen = gpu_class;
    if (lacking && lacking->what == Lack::kFull) lacking.reset();
    if (!lacking) break;
  }
  if (lacking) {
    chosen = own != nullptr ? own->gpu_class : entry.ask.gpu_classes[0];
    lacking = ledger.lacks(ledger.use(), charge_of(entry, chosen));
    if (lacking && lacking->what == Lack::kFull) lacking.reset();
  }
  out.gpu_class = chosen;
  if (lacking) return lacking_text(entry, chosen, *lacking, out);
  diagnose_place(entry, chosen, now_s, out);
  diagnose_taking(entry, chosen, now_s, out);
}

std::map<uint64_t, std::string> Engine::State::beyond_limits(
    const std::vector<EngineGrowth>& all) const {
  std::map<uint64_t, std::string> found;
  if (all.empty()) return found;
  Ledger::Use use = ledger.use();
  for (const EngineGrowth& growth : all) {
    const auto at = running.find(growth.id);
    if (at == running.end() || !at->second->charged) continue;
    const Entry& entry = *at->second;
    Charge grown = entry.charge;
    grown.amount = amount_of(growth.slices);
    ledger.remove(use, entry.charge);
    const auto lacking = beyond(use, grown);
    ledger.add(use, lacking ? entry.charge : grown);
    if (!lacking) continue;
    EngineWaiting told;
    lacking_text(entry, grown.gpu_class, *lacking, told);
    found[growth.id] = reason_text(told.reason, told.text);
  }
  return found;
}

// For a head: what is being taken back for it, or will be when those that hold it have had the time
// that their class gives them. Others get nothing back before it has started.
void Engine::State::diagnose_taking(const Entry& entry, uint32_t gpu_class, int64_t now_s,
                                    EngineWaiting& out) {
  constexpr int64_t kForetoldAnew_s = 10;
  const Charge charge = charge_of(entry, gpu_class);
  const bool inside = ledger.inside_quota(ledger.use(), charge);
  Taking taking = taken_for(entry, gpu_class);
  if (taking.amount == 0) {
    if (promise_of(entry.ask.id) == nullptr && (slot_taken(gpu_class, inside, late(entry, now_s)) ||
                                                !foretold_in_.insert({gpu_class, inside}).second))
      return;
    const auto [found, first] = foretold_.try_emplace(entry.ask.id);
    auto& [looked_s, foretold] = found->second;
    if (first || now_s >= looked_s + kForetoldAnew_s || foretold.gone_by_s <= now_s) {
      looked_s = now_s;
      foretold = foretell(entry, gpu_class, now_s);
    }
    taking = foretold;
  }
  if (taking.amount == 0 || taking.gone_by_s == kNever) return;
  out.reclaimed_s = std::max(taking.gone_by_s, now_s);
  const auto names = [](const std::set<uint32_t>& of, const auto& all) {
    std::string text;
    for (uint32_t each : of) text += (text.empty() ? "" : " and ") + all[each].name;
    return text;
  };
  const uint64_t lent = ledger.lent(charge.account, gpu_class);
  if (!inside || lent == 0) {
    out.reclaimed = amount_text(taking.amount) + " of class " +
                    names(taking.user_classes, policy().user_classes);
    return;
  }
  out.reason = WaitReason::kQuota;
  out.text = policy().accounts[charge.account].name + " holds " +
             amount_text(ledger.held(ledger.use(), charge.account, gpu_class)) + " of " +
             amount_text(ledger.quota(charge.account, gpu_class)) + " " +
             policy().gpu_classes[gpu_class].name + ", " + amount_text(lent) + " lent to " +
             names(taking.accounts, policy().accounts);
  out.reclaimed = taking.amount == lent ? "those" : amount_text(taking.amount);
}

// A place may count as more than on the largest GPU.
bool Engine::State::is_too_much(const Entry& entry, uint32_t gpu_class,
                                const std::vector<PlacedSlice>& slices, EngineWaiting& out) const {
  Charge there = charge_of(entry, gpu_class);
  there.amount = amount_of(slices);
  const auto lacking = ledger.lacks(ledger.use(), there);
  if (!lacking || lacking->what == Lack::kFull) return false;
  lacking_text(entry, gpu_class, *lacking, out);
  return true;
}

void Engine::State::diagnose_place(const Entry& entry, uint32_t gpu_class, int64_t now_s,
                                   EngineWaiting& out) {
  const std::string gpus = policy().gpu_classes[gpu_class].name;
  const Charge charge = charge_of(entry, gpu_class);
  const std::string unused = amount_text(room.unused(gpu_class)) + " of " +
                             amount_text(room.capacity(gpu_class)) + " " + gpus + " are free, " +
                             amount_text(charge.amount) + " are asked for";
  const std::function<bool(uint64_t)> may_use = [&](uint64_t reservation) {
    return this->may_use(entry, reservation);
  };
  Seeker seeker = seeker_for(entry, now_s);
  seeker.may_use = &may_use;
  const auto fits = [&] { return !room.find(seeker, gpu_class).slices.empty(); };
  if (const FoundPlace found = room.find(seeker, gpu_class); !found.slices.empty()) {
    if (is_too_much(entry, gpu_class, found.slices, out)) return;
    out.reason = WaitReason::kPriority;
    out.text = "others have been promised what is free; " + unused;
    return;
  }
  seeker.past_promises = true;
  if (fits()) {
    out.reason = WaitReason::kPriority;
    out.text = "others have been promised what is free, and it might last too long; " + unused;
    return;
  }
  seeker.past_reservations = true;
  if (fits()) {
    out.reason = WaitReason::kReservation;
    out.text = "what is free is reserved";
    for (const Booking& booking : bookings_)
      if (!this->may_use(entry, booking.number))
        out.text += " for " + policy().reservations[booking.number].name;
    out.text += ", and it might last too long; " + unused;
    return;
  }
  seeker.past_maintenance = true;
  if (fits()) {
    out.reason = WaitReason::kSchedule;
    out.text = "it might run into maintenance of the servers that are free; " + unused;
    return;
  }
  if (seeker.avoided != nullptr) {
    seeker.avoided = nullptr;
    if (fits()) {
      out.reason = WaitReason::kServersDown;
      out.text = "a server that has room failed it just now, and is tried again soon; " + unused;
      return;
    }
  }
  out.text = unused;
  if (room.ever_fits(seeker, gpu_class, false)) {
    out.reason =
        room.unused(gpu_class) >= charge.amount ? WaitReason::kFragmented : WaitReason::kResources;
    if (out.reason == WaitReason::kFragmented) out.text += ", but not where it fits";
    return;
  }
  uint32_t silent = 0;
  for (uint32_t server = 0; server < room.servers(); ++server)
    if (!room.removed(server) && room.state(server) == ServerState::kSilent) ++silent;
  if (!room.ever_fits(seeker, gpu_class, true)) {
    out.reason = WaitReason::kNeverFits;
    out.text = "no servers have such GPUs now; " + unused;
  } else if (silent != 0) {
    out.reason = WaitReason::kServersDown;
    out.text = plural(silent, "server") + (silent == 1 ? " is" : " are") + " silent; " + unused;
  } else {
    out.reason = WaitReason::kSchedule;
    out.text = "servers that could take it are being drained; " + unused;
  }
}

// What submit() refuses for good, and the nearest that fits.
base::Status Engine::State::never_fits(const Entry& entry, int64_t now_s) {
  const auto refused = [](const std::string& text) {
    return base::Status(base::Code::kRefused, reason_text(WaitReason::kNeverFits, text));
  };
  const Ask& ask = entry.ask;
  if (ask.gpu_classes.empty())
    return refused("class " + policy().user_classes[ask.user_class].name +
                   " may use no class of GPUs that the request allows; ask for another class");
  Seeker seeker = seeker_for(entry, now_s);
  std::string names;
  std::optional<Lacking> lacking;
  bool away = false;
  for (uint32_t server = 0; server < room.servers(); ++server) away = away || !room.open(server);
  for (uint32_t gpu_class : ask.gpu_classes) {
    names += (names.empty() ? "" : ", ") + policy().gpu_classes[gpu_class].name;
    if (!room.ever_fits(seeker, gpu_class, true)) continue;
    lacking = ledger.lacks_ever(charge_of(entry, gpu_class));
    // What others lend depends on what there is; servers may come back.
    if (lacking && (lacking->what == Lack::kFull || (lacking->what == Lack::kLending && away)))
      return {};
    if (!lacking) return {};
  }
  if (lacking) {
    const Account& account = policy().accounts[lacking->account];
    std::string most = "account " + account.name;
    if (lacking->what == Lack::kUserClassGpus || lacking->what == Lack::kUserClassLeases)
      most = "class " + policy().user_classes[ask.user_class].name;
    return refused("the request is for more of " + names + " than " + most +
                   " may ever have; ask for less");
  }
  // Fewer slices, then smaller ones.
  Ask nearest = ask;
  seeker.ask = &nearest;
  const auto fits = [&] {
    return std::any_of(ask.gpu_classes.begin(), ask.gpu_classes.end(),
                       [&](uint32_t gpu_class) { return room.ever_fits(seeker, gpu_class, true); });
  };
  for (nearest.slices = ask.slices - 1; nearest.slices > 0; --nearest.slices)
    if (fits())
      return refused("the pool never has room for " + plural(ask.slices, "such slice") + " of " +
                     names + (ask.spread == Spread::kOneServer ? " on one server" : "") +
                     "; the most that fits is " + std::to_string(nearest.slices));
  nearest.slices = 1;
  nearest.memory_bytes = 0;
  nearest.share_millionths = kWholeGpu;
  if (fits()) {
    uint64_t largest = 0;
    for (uint32_t gpu_class : ask.gpu_classes)
      largest = std::max(largest, room.largest_memory(gpu_class));
    return refused("no GPU of " + names + " lends " + config::format_size(ask.memory_bytes) +
                   (ask.filter ? " and passes the filter" : "") + "; the largest lends " +
                   config::format_size(largest));
  }
  const std::string filter = ask.filter_text.substr(0, ask.filter_text.find('\n'));
  return refused(ask.filter ? "no GPU of " + names +
                                  (filter.empty() ? " is on a server that understands this client"
                                                  : " passes the filter " + filter) +
                                  "; 'tendril pool status' shows what there is"
                            : "the pool has no GPU of " + names +
                                  "; 'tendril pool status' shows what there is");
}

void Engine::State::forecast(const std::vector<Entry*>& order, int64_t now_s,
                             std::vector<EngineWaiting>& out) {
  std::map<uint32_t, Profile> latest, likely;
  const auto likely_end = [&](const Entry& lease) {
    if (!lease.charged || lease.most_s == kNever) return lease.ends_by_s;
    const int64_t lasted_s = std::max<int64_t>(0, now_s - lease.started_s);
    const int64_t lasts_s =
        lasted_[lease.charge.user_class].quantile_s(kEarly, lasted_s, lease.most_s);
    return std::min(lease.ends_by_s, lease.started_s + lasts_s);
  };
  for (uint32_t i = 0; i < policy().gpu_classes.size(); ++i) {
    latest.emplace(i, Profile(room.unused(i), now_s));
    likely.emplace(i, Profile(room.unused(i), now_s));
  }
  for (const auto& [id, lease] : running) {
    if (!lease->charged) continue;
    latest.at(lease->charge.gpu_class).add_end(lease->ends_by_s, lease->charge.amount);
    likely.at(lease->charge.gpu_class).add_end(likely_end(*lease), lease->charge.amount);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    const Entry& entry = *order[i];
    EngineWaiting& each = out[i];
    if (each.gpu_class == kNoClass || each.reason == WaitReason::kNeverFits) continue;
    const uint64_t amount = charge_of(entry, each.gpu_class).amount;
    each.start_from_s = std::min(likely.at(each.gpu_class).first(amount), each.reclaimed_s);
    const int64_t by_s = latest.at(each.gpu_class).take(amount, entry.most_s);
    if (const Promise* own = promise_of(each.id)) {
      each.start_to_s = own->by_force ? kNever : std::max(own->at_s, now_s);
      each.promised = !own->by_force;
      if (own->after_id != 0)
        each.start_why = "when lease " + std::to_string(own->after_id) +
                         (own->reclaiming ? " has made room" : " reaches its limit");
    } else if (each.reason != WaitReason::kQuota && each.reason != WaitReason::kUserLimit) {
      each.start_to_s = by_s;
    }
    if (each.start_to_s != kNever && each.start_from_s > each.start_to_s)
      each.start_from_s = each.start_to_s;
  }
}

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// The heads: who gets a promise, its time and its place. A promise holds as long as its servers do:
// leases end at the latest when they must, and nothing else is put in its place. A lease that ends
// sooner never makes it worse (ledger.h). So a promise is only ever moved to an earlier time.
#include <algorithm>
#include <functional>

#include "pool/engine/state.h"

namespace tendril::pool {

namespace {

constexpr int64_t kPromiseAnew_s = 30;
// Overdue heads of a class. With one, requests for a few GPUs would line up behind each other.
constexpr int kMostOverdue = 16;
constexpr int64_t kMomentLate_s = 60;

int64_t when_it_must(const Holder& holder) { return holder.ends_by_s; }

}  // namespace

Promise* Engine::State::promise_of(uint64_t id) {
  for (Promise& promise : promises_)
    if (promise.id == id) return &promise;
  return nullptr;
}

// True if `one` runs, as promised, when `other` is to start.
bool Engine::State::meets(const Promise& one, const Promise& other) {
  return one.id != other.id && one.at_s <= other.at_s && plus_s(one.at_s, one.most_s) > other.at_s;
}

void Engine::State::drop_promise(uint64_t id) {
  const Promise* own = promise_of(id);
  if (own == nullptr) return;
  for (Promise& promise : promises_)
    if (meets(*own, promise)) ledger.remove(promise.then, own->charge);
  std::erase_if(promises_, [id](const Promise& promise) { return promise.id == id; });
  room.drop_claims(id, false);
}

bool Engine::State::slot_taken(uint32_t gpu_class, bool inside, bool late) const {
  const auto taken = std::count_if(promises_.begin(), promises_.end(), [&](const Promise& promise) {
    return promise.gpu_class == gpu_class && promise.late == late &&
           (late || promise.inside == inside);
  });
  return taken >= (late ? kMostOverdue : 1);
}

// A server that is lost, drained or closed takes its promises with it.
void Engine::State::check_promises(int64_t now_s) {
  std::vector<uint64_t> broken;
  for (const Promise& promise : promises_)
    if (!keeps(promise, now_s)) broken.push_back(promise.id);
  for (uint64_t id : broken) drop_promise(id);
}

bool Engine::State::keeps(const Promise& promise, int64_t now_s) {
  const Entry& entry = *waiting[promise.id];
  const std::function<bool(uint64_t)> may_use = [&](uint64_t reservation) {
    return this->may_use(entry, reservation);
  };
  Seeker seeker = seeker_for(entry, now_s);
  seeker.may_use = &may_use;
  seeker.past_promises = true;
  const int64_t at_s = std::max(promise.at_s, now_s);
  if (promise.by_force)
    return std::all_of(promise.slices.begin(), promise.slices.end(),
                       [&](const PlacedSlice& slice) { return room.open(slice.server); });
  // There may be less of its class than there was.
  const auto lacking = ledger.lacks(promise.then, promise.charge);
  if (lacking && (lacking->what != Lack::kFull || lacking->kept)) return false;
  return room.free_by(promise.slices, entry.ask.packed, at_s) &&
         room.in_time(seeker, promise.slices, at_s);
}

// When its time has come, a request has its place whatever was promised to others since. A lease
// that has reached its end may still be there for a moment: its server takes it back, not the time.
bool Engine::State::start_as_promised(Entry& entry, int64_t now_s, EnginePlan& plan) {
  const Promise* own = promise_of(entry.ask.id);
  if (own == nullptr || own->by_force || now_s < own->at_s || !keeps(*own, now_s) ||
      !room.has_room(own->slices, entry.ask.packed))
    return false;
  const Charge charge = own->charge;
  if (const auto lacking = ledger.lacks(ledger.use(), charge);
      lacking && (lacking->what != Lack::kFull || lacking->kept))
    return false;
  start(entry, charge, own->slices, now_s, plan);
  return true;
}

// What the request becomes that did not start: a head, perhaps.
void Engine::State::head(Entry& entry, int64_t now_s, EnginePlan& plan) {
  const bool late = this->late(entry, now_s);
  if (Promise* own = promise_of(entry.ask.id)) {
    const uint32_t gpu_class = own->gpu_class;
    // What was told stays, so that others may use the GPUs until then. Only a request whose time
    // nobody knew is told one as soon as there is one.
    const bool anew = own->by_force && room.gains(gpu_class) != own->gains &&
                      now_s >= own->computed_s + kPromiseAnew_s;
    const bool reclaimed = !own->reclaiming && reclaim_for(entry, gpu_class, now_s, plan);
    if (anew || reclaimed) promise(entry, now_s, false);
    if (reclaimed)
      if (Promise* now = promise_of(entry.ask.id)) now->reclaiming = true;
    return;
  }
  // To find a time takes long, so who has none is not looked at in every plan.
  if (late && entry.sought_s != kNever && now_s < entry.sought_s + kPromiseAnew_s) return;
  bool wanted = false;
  bool reclaimed = false;
  for (uint32_t gpu_class : entry.ask.gpu_classes) {
    const Charge charge = charge_of(entry, gpu_class);
    const auto lacking = ledger.lacks(ledger.use(), charge);
    const bool lacks = lacking && lacking->what != Lack::kFull;
    const bool inside = ledger.inside_quota(ledger.use(), charge);
    if (slot_taken(gpu_class, inside, late) || (lacks && !late)) continue;
    wanted = true;
    if (!lacks && !reclaimed) reclaimed = reclaim_for(entry, gpu_class, now_s, plan);
  }
  if (!wanted) return;
  if (!promise(entry, now_s, false) && late && !promise(entry, now_s, true)) entry.sought_s = now_s;
  if (Promise* own = promise_of(entry.ask.id); own != nullptr && reclaimed) own->reclaiming = true;
}

// Gives the request a promise, or a better one than it has. `by_force`: no lease need end, so its
// place is kept free from now on.
bool Engine::State::promise(Entry& entry, int64_t now_s, bool by_force) {
  std::optional<Promise> best = best_promise(entry, now_s, by_force);
  Promise* own = promise_of(entry.ask.id);
  if (!best) return own != nullptr;
  if (own != nullptr && !own->by_force && best->at_s >= own->at_s) {
    own->computed_s = now_s;
    own->gains = best->gains;
    return true;
  }
  drop_promise(entry.ask.id);
  keep_promise(std::move(*best));
  return true;
}

std::optional<Promise> Engine::State::best_promise(Entry& entry, int64_t now_s, bool by_force) {
  const bool late = this->late(entry, now_s);
  const Promise* own = promise_of(entry.ask.id);
  const std::function<bool(uint64_t)> may_use = [&](uint64_t reservation) {
    return this->may_use(entry, reservation);
  };
  Seeker seeker = seeker_for(entry, now_s);
  seeker.may_use = &may_use;
  // Leases without an end are thought to end in some years, the older ones first.
  constexpr int64_t kYears_s = int64_t{1} << 40;
  const Room::Ends ends = by_force ? Room::Ends([](const Holder& holder) {
    return holder.ends_by_s == kNever ? kYears_s + static_cast<int64_t>(holder.id % kYears_s)
                                      : holder.ends_by_s;
  })
                                   : Room::Ends(when_it_must);
  std::optional<Promise> best;
  for (uint32_t gpu_class : entry.ask.gpu_classes) {
    const Charge charge = charge_of(entry, gpu_class);
    const bool inside = ledger.inside_quota(ledger.use(), charge);
    if (own != nullptr ? own->gpu_class != gpu_class : slot_taken(gpu_class, inside, late))
      continue;
    // What is kept free now is kept for one of them only.
    if (by_force && std::any_of(promises_.begin(), promises_.end(), [&](const Promise& other) {
          return other.by_force && other.gpu_class == gpu_class && other.id != entry.ask.id;
        }))
      continue;
    const auto lacking = ledger.lacks(ledger.use(), charge);
    if (lacking && lacking->what != Lack::kFull && (!late || by_force)) continue;
    if (best_here(entry, seeker, gpu_class, by_force, ends, &best) || entry.ask.memory_bytes == 0)
      continue;
    // On the largest GPUs its memory is the smallest part, and may be what it can have.
    seeker.counts_at_most = charge.amount / entry.ask.slices;
    best_here(entry, seeker, gpu_class, by_force, ends, &best);
    seeker.counts_at_most = 0;
  }
  return best;
}
// Of one class. False: it would have no place there, or more than its account or user may have.
bool Engine::State::best_here(const Entry& entry, const Seeker& seeker, uint32_t gpu_class,
                              bool by_force, const Room::Ends& ends, std::optional<Promise>* best) {
  const int64_t now_s = seeker.now_s;
  const Charge charge = charge_of(entry, gpu_class);
  const auto lacking = ledger.lacks(ledger.use(), charge);
  EarliestPlace place = room.earliest(seeker, gpu_class, ends);
  if (place.at_s == kNever) return false;
  if (lacking && !by_force && ledger.lacks(use_at(place.at_s, charge), charge)) {
    const int64_t may_s = lacks_until(charge, now_s);
    if (may_s == kNever) return false;
    if (may_s > place.at_s) {
      Seeker later = seeker;
      later.now_s = may_s;
      place = room.earliest(later, gpu_class, ends);
      if (place.at_s == kNever) return false;
    }
  }
  const Promise* own = promise_of(entry.ask.id);
  Promise promise;
  promise.at_s = by_force ? now_s : place.at_s;
  if (*best && (*best)->at_s <= promise.at_s) return true;
  promise.id = entry.ask.id;
  promise.gpu_class = gpu_class;
  promise.inside = ledger.inside_quota(ledger.use(), charge);
  promise.late = late(entry, now_s);
  promise.by_force = by_force;
  promise.computed_s = now_s;
  promise.gains = room.gains(gpu_class);
  promise.after_id = place.after_id;
  promise.reclaiming = own != nullptr && own->reclaiming;
  promise.slices = place.slices;
  promise.charge = charge;
  promise.charge.amount = amount_of(place.slices);  // as it will count there
  promise.most_s = entry.most_s;
  promise.then = then_of(promise);
  if (!by_force && !fits_beside_promises(promise)) return false;
  *best = std::move(promise);
  return true;
}

// What is held when it is to start, with what else was promised by then.
Ledger::Use Engine::State::then_of(const Promise& promise) const {
  Ledger::Use use = use_at(promise.at_s, promise.charge);
  for (const Promise& other : promises_)
    if (meets(other, promise)) ledger.add(use, other.charge);
  return use;
}

// By what accounts and users may have: a new promise neither lacks anything nor delays another.
bool Engine::State::fits_beside_promises(const Promise& promise) {
  if (const auto lacking = ledger.lacks(promise.then, promise.charge);
      lacking && (lacking->what != Lack::kFull || lacking->kept))
    return false;
  for (Promise& other : promises_) {
    if (!meets(promise, other)) continue;
    ledger.add(other.then, promise.charge);
    const bool delayed = lacks_then(other);
    ledger.remove(other.then, promise.charge);
    if (delayed) return false;
  }
  return true;
}

bool Engine::State::lacks_then(const Promise& promise) const {
  const auto lacking = ledger.lacks(promise.then, promise.charge);
  return lacking && !(promise.by_force && lacking->what == Lack::kFull);
}

void Engine::State::keep_promise(Promise&& promise) {
  for (Promise& other : promises_)
    if (meets(promise, other)) ledger.add(other.then, promise.charge);
  Claim claim;
  claim.owner = promise.id;
  claim.from_s = promise.at_s;
  // Overdue ones stand in line for a place. Who starts a moment late there ends a moment late.
  if (promise.late && !promise.by_force)
    claim.to_s = plus_s(plus_s(promise.at_s, promise.most_s), kMomentLate_s);
  claim.packed = waiting[promise.id]->ask.packed;
  room.claim(promise.slices, claim);
  promises_.push_back(std::move(promise));
}

Ledger::Use Engine::State::use_at(int64_t at_s, const Charge& charge) const {
  Ledger::Use use = ledger.for_user(ledger.use(), charge);
  for (const auto& [id, entry] : running)
    if (entry->charged && entry->ends_by_s <= at_s) ledger.remove(use, entry->charge);
  return use;
}

// When quotas and limits let the request start, if all leases last as long as they may.
int64_t Engine::State::lacks_until(const Charge& charge, int64_t now_s) const {
  std::vector<const Entry*> ends;
  for (const auto& [id, entry] : running)
    if (entry->charged && entry->ends_by_s != kNever) ends.push_back(entry.get());
  std::sort(ends.begin(), ends.end(), [](const Entry* left, const Entry* right) {
    return std::tie(left->ends_by_s, left->ask.id) < std::tie(right->ends_by_s, right->ask.id);
  });
  Ledger::Use use = ledger.for_user(ledger.use(), charge);
  for (const Entry* entry : ends) {
    ledger.remove(use, entry->charge);
    if (!ledger.lacks(use, charge)) return std::max(entry->ends_by_s, now_s);
  }
  return kNever;
}

// A reservation gets whole GPUs of its class: those that are free soonest.
void Engine::State::book_reservations(int64_t now_s) {
  std::vector<Amounts> reserved(policy().accounts.size());
  for (Booking& booking : bookings_) {
    if (booking.to_s <= now_s) {
      room.drop_claims(booking.number, true);
      continue;
    }
    if (booking.changes != room.changes()) choose_gpus(booking);
    if (booking.from_s > now_s) continue;
    const Reservation& of = policy().reservations[booking.number];
    for (uint32_t account : of.accounts) {
      if (account >= reserved.size()) continue;
      Amounts& amounts = reserved[account];
      amounts.resize(std::max(amounts.size(), of.gpus.size()));
      for (size_t i = 0; i < of.gpus.size(); ++i) amounts[i] += of.gpus[i];
    }
  }
  std::erase_if(bookings_, [now_s](const Booking& booking) { return booking.to_s <= now_s; });
  ledger.set_reserved(std::move(reserved));
}

void Engine::State::choose_gpus(Booking& booking) {
  struct Option {
    int64_t free_s = 0;
    uint32_t server = 0, gpu = 0;
  };
  const Reservation& of = policy().reservations[booking.number];
  std::vector<PlacedSlice> chosen;
  for (uint32_t gpu_class = 0; gpu_class < of.gpus.size(); ++gpu_class) {
    if (of.gpus[gpu_class] == 0) continue;
    std::vector<Option> options;
    for (uint32_t server = 0; server < room.servers(); ++server) {
      if (!room.open(server)) continue;
      for (uint32_t gpu = 0; gpu < room.server(server).gpus.size(); ++gpu) {
        if (room.class_of(server, gpu) != gpu_class) continue;
        Option option{booking.from_s, server, gpu};
        // A GPU that it has already stays, unless another is free sooner.
        for (const Holder& holder : room.holders(server, gpu)) {
          const auto lease = running.find(holder.id);
          if (lease == running.end() || !may_use(*lease->second, booking.number))
            option.free_s = std::max(option.free_s, holder.ends_by_s);
        }
        for (const Promise& promise : promises_)
          for (const PlacedSlice& slice : promise.slices)
            if (slice.server == server && slice.gpu == gpu &&
                !may_use(*waiting[promise.id], booking.number))
              option.free_s = std::max(option.free_s, plus_s(promise.at_s, promise.most_s));
        for (const Booking& other : bookings_)
          if (other.number != booking.number && other.chosen && other.from_s < booking.to_s &&
              booking.from_s < other.to_s)
            for (const PlacedSlice& slice : other.slices)
              if (slice.server == server && slice.gpu == gpu) option.free_s = kNever;
        options.push_back(option);
      }
    }
    const auto had = [&](const Option& option) {
      return std::none_of(booking.slices.begin(), booking.slices.end(), [&](const auto& slice) {
        return slice.server == option.server && slice.gpu == option.gpu;
      });
    };
    std::sort(options.begin(), options.end(), [&](const Option& left, const Option& right) {
      return std::tuple(left.free_s, had(left), left.server, left.gpu) <
             std::tuple(right.free_s, had(right), right.server, right.gpu);
    });
    uint64_t missing = of.gpus[gpu_class];
    for (const Option& option : options) {
      if (missing == 0) break;
      const auto share = static_cast<uint32_t>(std::min<uint64_t>(missing, kWholeGpu));
      const uint64_t memory = room.server(option.server).gpus[option.gpu].memory_usable_bytes;
      chosen.push_back(
          PlacedSlice{option.server, option.gpu, share,
                      static_cast<uint64_t>(static_cast<double>(memory) * share / kWholeGpu)});
      missing -= share;
    }
  }
  room.drop_claims(booking.number, true);
  Claim claim;
  claim.owner = booking.number;
  claim.reservation = true;
  claim.from_s = booking.from_s;
  claim.to_s = booking.to_s;
  room.claim(chosen, claim);
  booking.slices = std::move(chosen);
  booking.chosen = true;
  booking.changes = room.changes();
}

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// Room's searches: now, the first time, and ever. A place is refused for time's sake if a claim or
// a window of maintenance begins before the lease must have ended.
#include <algorithm>
#include <tuple>

#include "pool/engine/room.h"

namespace tendril::pool {

namespace {

bool overlap(int64_t from_s, int64_t to_s, int64_t other_from_s, int64_t other_to_s) {
  return from_s < other_to_s && other_from_s < to_s;
}

}  // namespace

// What keeps a seeker from a GPU that has room now.
class Room::TimeVeto final : public Veto {
 public:
  TimeVeto(const Room& room, const Seeker& seeker, const Request& request)
      : room_(room), seeker_(seeker), request_(request) {}

  bool allows(uint32_t server, uint32_t gpu) const override {
    if (!passes(server, gpu)) return false;
    if (std::find(taken_.begin(), taken_.end(), place(server, gpu)) != taken_.end()) return false;
    return in_time(server, gpu, seeker_.now_s) == kInTime;
  }

  // The filter, and servers that failed the request lately.
  bool passes(uint32_t server, uint32_t gpu) const {
    if (seeker_.filter != nullptr) {
      const std::vector<uint64_t>& allowed = seeker_.filter->allowed;
      if (server >= allowed.size() || (allowed[server] >> gpu & 1) == 0) return false;
    } else if (seeker_.ask->filter && !seeker_.ask->filter(server, gpu)) {
      return false;
    }
    if (seeker_.avoided != nullptr)
      for (const Avoided& avoided : *seeker_.avoided)
        if (avoided.server == server && seeker_.now_s < avoided.until_s) return false;
    return seeker_.counts_at_most == 0 ||
           room_.amount_of(room_.slice_on(server, gpu, request_)) <= seeker_.counts_at_most;
  }

  static constexpr int64_t kInTime = std::numeric_limits<int64_t>::min();
  // kInTime if a lease may start there at that time. Else the first time at which what is in its
  // way has passed.
  int64_t in_time(uint32_t server, uint32_t gpu, int64_t at_s) const {
    const Host& host = room_.hosts_[server];
    const int64_t ends_s = plus_s(at_s, seeker_.lasts_s);
    if (!host.maintenance.empty() && !seeker_.past_maintenance)
      for (const Interval& window : host.maintenance) {
        const bool may = ends_s == kNever && seeker_.into_maintenance && at_s < window.from_s;
        if (may || !overlap(at_s, ends_s, window.from_s, window.to_s)) continue;
        refused_ = true;
        return window.to_s;
      }
    if (host.claims == 0) return kInTime;
    const auto claims = room_.claims_.find(place(server, gpu));
    if (claims == room_.claims_.end()) return kInTime;
    const SliceNeed need = room_.fleet_.server(server).gpus[gpu].need(request_);
    for (const Claim& claim : claims->second) {
      if (ignores(claim) || !overlap(at_s, ends_s, claim.from_s, claim.to_s)) continue;
      if (room_at(server, gpu, std::max(claim.from_s, at_s), claims->second, need)) continue;
      refused_ = true;
      return claim.to_s;
    }
    return kInTime;
  }

  void take(uint32_t server, uint32_t gpu) { taken_.push_back(place(server, gpu)); }
  bool refused() const { return refused_; }

 private:
  bool ignores(const Claim& claim) const {
    if (!claim.reservation) return seeker_.past_promises || claim.owner == seeker_.ask->id;
    return seeker_.past_reservations ||
           (seeker_.may_use != nullptr && (*seeker_.may_use)(claim.owner));
  }

  // True if the slice fits beside all who are still there then, and all claims of that time.
  bool room_at(uint32_t server, uint32_t gpu, int64_t at_s, const std::vector<Claim>& claims,
               const SliceNeed& need) const {
    uint64_t share = need.share_millionths;
    uint64_t memory_bytes = need.memory_bytes;
    const std::vector<Holder>& holders = room_.holders(server, gpu);
    for (const Holder& holder : holders)
      if (holder.ends_by_s > at_s) {
        share += holder.share_millionths;
        memory_bytes += holder.memory_bytes;
      }
    for (const Claim& claim : claims) {
      if (ignores(claim) || at_s < claim.from_s || at_s >= claim.to_s) continue;
      if (!claim.reservation && claim.packed != seeker_.ask->packed) return false;
      uint64_t share_inside = 0;
      uint64_t memory_inside = 0;
      if (claim.reservation && room_.inside_)
        for (const Holder& holder : holders)
          if (holder.ends_by_s > at_s && room_.inside_(holder.id, claim.owner)) {
            share_inside += holder.share_millionths;
            memory_inside += holder.memory_bytes;
          }
      share += claim.share_millionths - std::min<uint64_t>(claim.share_millionths, share_inside);
      memory_bytes += claim.memory_bytes - std::min(claim.memory_bytes, memory_inside);
    }
    return share <= kWholeGpu &&
           memory_bytes <= room_.fleet_.server(server).gpus[gpu].spec.memory_bytes;
  }

  const Room& room_;
  const Seeker& seeker_;
  const Request& request_;
  std::vector<size_t> taken_;
  mutable bool refused_ = false;
};

FoundPlace Room::find(const Seeker& seeker, uint32_t gpu_class) const {
  FoundPlace found;
  const std::vector<uint32_t>* kinds = kinds_for(seeker, gpu_class);
  if (kinds == nullptr || kinds->empty()) return found;
  Request request = request_for(*seeker.ask);
  request.models = *kinds;
  TimeVeto veto(*this, seeker, request);
  request.veto = &veto;
  if (request.slices == 1 || request.spread == Spread::kOneServer) {
    if (const auto piece = strategy_->choose(fleet_, request))
      for (uint32_t gpu : piece->gpus)
        found.slices.push_back(slice_on(piece->server, gpu, request));
  } else if (request.spread == Spread::kAnyServers) {
    found.slices = find_over_servers(request, veto);
  } else {
    found.slices = find_by_server(request, veto);
  }
  std::sort(found.slices.begin(), found.slices.end(),
            [](const PlacedSlice& left, const PlacedSlice& right) {
              return std::tie(left.server, left.gpu) < std::tie(right.server, right.gpu);
            });
  found.refused_for_time = veto.refused();
  return found;
}

std::vector<PlacedSlice> Room::find_over_servers(Request request, TimeVeto& veto) const {
  const uint32_t wanted = request.slices;
  request.slices = 1;
  std::vector<PlacedSlice> slices;
  while (slices.size() < wanted) {
    const auto piece = strategy_->choose(fleet_, request);
    if (!piece) return {};
    slices.push_back(slice_on(piece->server, piece->gpus[0], request));
    veto.take(piece->server, piece->gpus[0]);
  }
  return slices;
}

// Few servers: those with room for the most slices first, the last one as tight as possible. Many
// servers: one slice on each in turn, where most is free first.
std::vector<PlacedSlice> Room::find_by_server(const Request& request, const TimeVeto&) const {
  struct Here {
    uint32_t server = 0;
    std::vector<uint32_t> gpus;
    uint64_t share_free = 0;
  };
  std::vector<Here> all;
  for (const Server& server : fleet_.servers()) {
    if (!server.open) continue;
    std::vector<uint32_t> gpus = server.first_gpus(request, true);
    if (!gpus.empty()) all.push_back(Here{server.number, std::move(gpus), server.share_free});
  }
  const bool pack = request.spread == Spread::kPack;
  std::stable_sort(all.begin(), all.end(), [pack](const Here& left, const Here& right) {
    if (!pack) return left.share_free > right.share_free;
    return std::tuple(right.gpus.size(), left.share_free) <
           std::tuple(left.gpus.size(), right.share_free);
  });
  std::vector<PlacedSlice> slices;
  const auto take = [&](const Here& here, size_t gpu) {
    slices.push_back(slice_on(here.server, here.gpus[gpu], request));
  };
  if (!pack) {
    for (size_t round = 0; slices.size() < request.slices; ++round) {
      const size_t before = slices.size();
      for (const Here& here : all)
        if (round < here.gpus.size() && slices.size() < request.slices) take(here, round);
      if (slices.size() == before) return {};
    }
    return slices;
  }
  for (size_t i = 0; i < all.size() && slices.size() < request.slices; ++i) {
    const size_t missing = request.slices - slices.size();
    size_t chosen = i;
    while (chosen + 1 < all.size() && all[chosen + 1].gpus.size() >= missing) ++chosen;
    if (all[i].gpus.size() < missing) chosen = i;
    const Here& here = all[chosen];
    for (size_t gpu = 0; gpu < here.gpus.size() && slices.size() < request.slices; ++gpu)
      take(here, gpu);
  }
  if (slices.size() < request.slices) slices.clear();
  return slices;
}

// The first time at which the GPU has room for the slice. Past ends count as now.
int64_t Room::free_at(uint32_t server, uint32_t gpu, const SliceNeed& need, const Seeker& seeker,
                      const Ends& ends, uint64_t* after_id) const {
  const Gpu& here = fleet_.server(server).gpus[gpu];
  const std::vector<Holder>& holders = this->holders(server, gpu);
  if (here.has_room(need, seeker.ask->packed)) return seeker.now_s;
  uint64_t share = need.share_millionths + here.share_held;
  uint64_t memory_bytes = need.memory_bytes + here.memory_held_bytes;
  std::vector<std::pair<int64_t, const Holder*>> order;
  for (const Holder& holder : holders) order.emplace_back(ends(holder), &holder);
  std::sort(order.begin(), order.end(), [](const auto& left, const auto& right) {
    return std::tie(left.first, left.second->id) < std::tie(right.first, right.second->id);
  });
  const bool other_mode = !holders.empty() && here.packed != seeker.ask->packed;
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i].first == kNever) return kNever;
    share -= order[i].second->share_millionths;
    memory_bytes -= order[i].second->memory_bytes;
    if (share > kWholeGpu || memory_bytes > here.spec.memory_bytes) continue;
    if (other_mode && i + 1 < order.size()) continue;
    *after_id = order[i].second->id;
    return std::max(order[i].first, seeker.now_s);
  }
  return kNever;
}

// All slices start together. So a GPU that is free sooner must still be in time when the last one
// is; if it is not, the search goes on from there.
EarliestPlace Room::earliest(const Seeker& seeker, uint32_t gpu_class, const Ends& ends) const {
  constexpr int kMostTries = 16;
  Seeker later = seeker;
  for (int i = 0; i < kMostTries; ++i) {
    const EarliestPlace place = earliest_from(later, gpu_class, ends);
    if (place.at_s == kNever || place.at_s == later.now_s ||
        in_time(seeker, place.slices, place.at_s))
      return place;
    later.now_s = place.at_s;
  }
  return {};
}

EarliestPlace Room::earliest_from(const Seeker& seeker, uint32_t gpu_class,
                                  const Ends& ends) const {
  struct Option {
    int64_t at_s = kNever;
    uint32_t server = 0, gpu = 0;
    uint64_t after_id = 0;
  };
  const auto before = [](const Option& left, const Option& right) {
    return std::tie(left.at_s, left.server, left.gpu) <
           std::tie(right.at_s, right.server, right.gpu);
  };
  const Request request = request_for(*seeker.ask);
  TimeVeto veto(*this, seeker, request);
  const uint32_t slices = seeker.ask->slices;
  std::vector<Option> best, of_server;
  for (const Server& server : fleet_.servers()) {
    if (!server.open) continue;
    of_server.clear();
    for (uint32_t gpu = 0; gpu < hosts_[server.number].what.gpus.size(); ++gpu) {
      const Gpu& here = server.gpus[gpu];
      if (hosts_[server.number].what.gpus[gpu].gpu_class != gpu_class) continue;
      const SliceNeed need = here.need(request);
      if (!Gpu{here.spec, kWholeGpu, here.spec.memory_bytes, 0, 0, 0, false}.has_room(
              need, request.packed) ||
          !veto.passes(server.number, gpu))
        continue;
      Option option{0, server.number, gpu, 0};
      option.at_s = free_at(server.number, gpu, need, seeker, ends, &option.after_id);
      for (int64_t passed_s = 0; option.at_s != kNever;) {
        passed_s = veto.in_time(server.number, gpu, option.at_s);
        if (passed_s == TimeVeto::kInTime) break;
        option.at_s = std::max(passed_s, option.at_s + 1);
        if (passed_s == kNever) option.at_s = kNever;
      }
      if (option.at_s != kNever) of_server.push_back(option);
    }
    if (request.spread != Spread::kOneServer) {
      best.insert(best.end(), of_server.begin(), of_server.end());
      continue;
    }
    if (of_server.size() < slices) continue;
    std::nth_element(of_server.begin(), of_server.begin() + (slices - 1), of_server.end(), before);
    if (best.empty() || of_server[slices - 1].at_s < best[slices - 1].at_s) best = of_server;
  }
  EarliestPlace earliest;
  if (best.size() < slices) return earliest;
  std::nth_element(best.begin(), best.begin() + (slices - 1), best.end(), before);
  earliest.at_s = best[slices - 1].at_s;
  earliest.after_id = best[slices - 1].after_id;
  // Of all that are free by then, those that are free last: others may use the rest until then, and
  // beyond.
  std::erase_if(best, [&](const Option& option) { return option.at_s > earliest.at_s; });
  std::partial_sort(best.begin(), best.begin() + slices, best.end(),
                    [](const Option& left, const Option& right) {
                      return std::tie(right.at_s, left.server, left.gpu) <
                             std::tie(left.at_s, right.server, right.gpu);
                    });
  best.resize(slices);
  for (const Option& option : best)
    earliest.slices.push_back(slice_on(option.server, option.gpu, request));
  return earliest;
}

bool Room::in_time(const Seeker& seeker, const std::vector<PlacedSlice>& slices,
                   int64_t at_s) const {
  const Request request = request_for(*seeker.ask);
  const TimeVeto veto(*this, seeker, request);
  return std::all_of(slices.begin(), slices.end(), [&](const PlacedSlice& slice) {
    return veto.in_time(slice.server, slice.gpu, at_s) == TimeVeto::kInTime;
  });
}

bool Room::free_by(const std::vector<PlacedSlice>& slices, bool packed, int64_t at_s) const {
  for (const PlacedSlice& slice : slices) {
    const Server& server = fleet_.server(slice.server);
    if (!server.open || slice.gpu >= hosts_[slice.server].what.gpus.size()) return false;
    const Gpu& gpu = server.gpus[slice.gpu];
    if (!gpu.spec.usable) return false;
    uint64_t share = slice.share_millionths;
    uint64_t memory_bytes = slice.memory_bytes;
    for (const Holder& holder : holders(slice.server, slice.gpu))
      if (holder.ends_by_s > at_s) {
        if (holder.packed != packed) return false;
        share += holder.share_millionths;
        memory_bytes += holder.memory_bytes;
      }
    if (share > kWholeGpu || memory_bytes > gpu.spec.memory_bytes) return false;
    for (const Interval& window : hosts_[slice.server].maintenance)
      if (window.from_s <= at_s && at_s < window.to_s) return false;
  }
  return true;
}

bool Room::has_room(const std::vector<PlacedSlice>& slices, bool packed) const {
  return std::all_of(slices.begin(), slices.end(), [&](const PlacedSlice& slice) {
    return fleet_.server(slice.server)
        .gpus[slice.gpu]
        .has_room(SliceNeed{slice.share_millionths, slice.memory_bytes}, packed);
  });
}

bool Room::ever_fits(const Seeker& seeker, uint32_t gpu_class, bool any_state) const {
  const Request request = request_for(*seeker.ask);
  const TimeVeto veto(*this, seeker, request);
  uint32_t fitting = 0;
  for (const Server& server : fleet_.servers()) {
    if (hosts_[server.number].removed || (!any_state && !server.open)) continue;
    uint32_t here = 0;
    for (uint32_t gpu = 0; gpu < hosts_[server.number].what.gpus.size(); ++gpu) {
      if (hosts_[server.number].what.gpus[gpu].gpu_class != gpu_class) continue;
      const GpuSpec& spec = server.gpus[gpu].spec;
      const Gpu empty{spec, kWholeGpu, spec.memory_bytes, 0, 0, 0, false};
      if (empty.has_room(empty.need(request), request.packed) &&
          (seeker.ask->filter_ever ? seeker.ask->filter_ever(server.number, gpu)
                                   : veto.passes(server.number, gpu)))
        ++here;
    }
    fitting = request.spread == Spread::kOneServer ? std::max(fitting, here) : fitting + here;
    if (fitting >= request.slices) return true;
  }
  return false;
}

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// The places of the engine: which GPUs there are, what is held on each and until when at the
// latest, what is claimed for later, and where a request fits now or first. It knows nothing of
// quotas and order. A search goes through the lists of strategy Snug.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "pool/engine/engine.h"
#include "pool/placement/demand.h"
#include "pool/placement/fleet.h"
#include "pool/placement/strategy.h"

namespace tendril::pool {

// A filter's answers for all GPUs, shared by all requests with the same text.
struct FilterAnswers {
  std::function<bool(uint32_t server, uint32_t gpu)> filter;
  std::vector<uint64_t> allowed;                    // a bit for each GPU, by server
  std::map<uint32_t, std::vector<uint32_t>> kinds;  // of a class, with a GPU that it allows
};

// Room on one GPU, from some time on, for a request that was promised it or for a reservation.
struct Claim {
  uint64_t owner = 0;  // the request, or the reservation
  bool reservation = false;
  int64_t from_s = 0, to_s = kNever;
  uint32_t share_millionths = 0;
  uint64_t memory_bytes = 0;
  bool packed = false;
};

struct Holder {
  uint64_t id = 0;
  uint32_t share_millionths = 0;
  uint64_t memory_bytes = 0;
  int64_t ends_by_s = kNever;
  bool packed = false;
};

// A server that failed a request gets nothing of it until then.
struct Avoided {
  uint32_t server = 0;
  int64_t until_s = 0;
  uint32_t times = 1;  // one after the other
};

// Who looks for a place, from when and for how long.
struct Seeker {
  const Ask* ask = nullptr;
  const FilterAnswers* filter = nullptr;  // null: all GPUs
  const std::vector<Avoided>* avoided = nullptr;
  int64_t now_s = 0;
  int64_t lasts_s = kNever;
  bool into_maintenance = false;
  uint64_t counts_at_most = 0;  // of a slice: GPUs where it counts as more are left out; 0: none
  // May it use that reservation? Null: none.
  const std::function<bool(uint64_t reservation)>* may_use = nullptr;
  bool past_promises = false;  // as if there were none; to find the reason
  bool past_reservations = false;
  bool past_maintenance = false;
};

struct FoundPlace {
  std::vector<PlacedSlice> slices;  // empty: none
  bool refused_for_time = false;    // a shorter lease might have fitted
};
struct EarliestPlace {
  int64_t at_s = kNever;
  std::vector<PlacedSlice> slices;
  uint64_t after_id = 0;  // the last lease that it waits for
};

class Room {
 public:
  Room();

  base::Result<uint32_t> add(const EngineServer& server);
  base::Status update(uint32_t server, const EngineServer& what);
  void set_state(uint32_t server, ServerState state);
  void set_maintenance(uint32_t server, std::vector<Interval> windows);
  void remove(uint32_t server);
  void learn(const Demand& demand) { strategy_->learn(fleet_, demand); }

  std::shared_ptr<const FilterAnswers> answers_of(const Ask& ask);

  // A place for all slices in that class now, or nothing.
  FoundPlace find(const Seeker& seeker, uint32_t gpu_class) const;
  // The first time and place, if leases end when `ends` says. kNever: not as things are.
  using Ends = std::function<int64_t(const Holder&)>;
  EarliestPlace earliest(const Seeker& seeker, uint32_t gpu_class, const Ends& ends) const;
  // True if the slices will be free at that time, if leases end when they must.
  bool free_by(const std::vector<PlacedSlice>& slices, bool packed, int64_t at_s) const;
  // True if nobody who is there now keeps the slices from it, whatever claims say.
  bool has_room(const std::vector<PlacedSlice>& slices, bool packed) const;
  // True if claims and maintenance let the seeker have these from then on.
  bool in_time(const Seeker& seeker, const std::vector<PlacedSlice>& slices, int64_t at_s) const;
  // True if it fits on GPUs of the class if nothing else is there. `any_state`: on silent, draining
  // and closed servers, too.
  bool ever_fits(const Seeker& seeker, uint32_t gpu_class, bool any_state) const;

  void hold(uint64_t id, const std::vector<PlacedSlice>& slices, bool packed, int64_t ends_by_s);
  void set_end(uint64_t id, int64_t ends_by_s);
  void release(uint64_t id);
  const std::vector<PlacedSlice>* slices_of(uint64_t id) const;
  const std::vector<Holder>& holders(uint32_t server, uint32_t gpu) const {
    return holders_[place(server, gpu)];
  }

  void claim(const std::vector<PlacedSlice>& slices, const Claim& what);
  void drop_claims(uint64_t owner, bool reservation);
  // Which leases are inside a reservation's claims, because they may use it.
  void set_inside(std::function<bool(uint64_t id, uint64_t reservation)> inside) {
    inside_ = std::move(inside);
  }

  bool open(uint32_t server) const { return hosts_[server].state == ServerState::kOpen; }
  size_t servers() const { return hosts_.size(); }
  const EngineServer& server(uint32_t number) const { return hosts_[number].what; }
  ServerState state(uint32_t number) const { return hosts_[number].state; }
  bool removed(uint32_t number) const { return hosts_[number].removed; }
  const std::vector<Interval>& maintenance(uint32_t number) const {
    return hosts_[number].maintenance;
  }
  uint32_t class_of(uint32_t server, uint32_t gpu) const;
  // What a slice counts as: its share or its part of the memory, whichever is more.
  uint64_t amount_of(const PlacedSlice& slice) const;
  // The same of a request that has no place yet, on the largest GPU of the class.
  uint64_t amount_of(const Ask& ask, uint32_t gpu_class) const;
  uint64_t largest_memory(uint32_t gpu_class) const;
  uint64_t capacity(uint32_t gpu_class) const;  // silent servers count with what they hold
  uint64_t unused(uint32_t gpu_class) const;    // on open servers
  const Fleet& fleet() const { return fleet_; }

  // Grows whenever something may fit in the class that did not fit before.
  uint64_t gains(uint32_t gpu_class) const;
  void gained();                                 // in all classes
  uint64_t changes() const { return changes_; }  // of servers; grows

 private:
  class TimeVeto;
  struct Host {
    EngineServer what;
    ServerState state = ServerState::kOpen;
    std::vector<Interval> maintenance;
    bool removed = false;
    uint32_t claims = 0;
  };
  struct Held {
    std::vector<PlacedSlice> slices;
    bool packed = false;
  };

  static size_t place(uint32_t server, uint32_t gpu) { return size_t{server} * kMostGpus + gpu; }
  static Request request_for(const Ask& ask);
  std::vector<GpuSpec> specs(const EngineServer& server);
  void changed(uint32_t server);
  void answer(FilterAnswers& answers, uint32_t server) const;
  const std::vector<uint32_t>* kinds_for(const Seeker& seeker, uint32_t gpu_class) const;
  bool class_has(uint32_t gpu_class, uint32_t model) const;
  std::vector<PlacedSlice> find_over_servers(Request request, TimeVeto& veto) const;
  std::vector<PlacedSlice> find_by_server(const Request& request, const TimeVeto& veto) const;
  PlacedSlice slice_on(uint32_t server, uint32_t gpu, const Request& request) const;
  EarliestPlace earliest_from(const Seeker& seeker, uint32_t gpu_class, const Ends& ends) const;
  int64_t free_at(uint32_t server, uint32_t gpu, const SliceNeed& need, const Seeker& seeker,
                  const Ends& ends, uint64_t* after_id) const;

  Fleet fleet_;
  std::unique_ptr<Strategy> strategy_;
  std::vector<Host> hosts_;
  std::vector<std::vector<Holder>> holders_;
  std::unordered_map<size_t, std::vector<Claim>> claims_;
  std::unordered_map<uint64_t, Held> held_;
  std::map<uint32_t, std::vector<uint32_t>> kinds_;  // of a class
  std::map<uint32_t, uint64_t> largest_memory_;      // of a GPU of a class
  std::map<std::string, std::weak_ptr<FilterAnswers>> filters_;
  std::function<bool(uint64_t, uint64_t)> inside_;
  std::vector<uint64_t> gains_;
  uint64_t all_gains_ = 1;
  uint64_t changes_ = 1;
};

}  // namespace tendril::pool

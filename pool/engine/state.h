// SPDX-License-Identifier: Apache-2.0
// What the engine remembers. planner.cc decides, reclaim.cc makes room, explain.cc says why, and
// engine.cc keeps it in step with what the scheduler tells.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "pool/engine/engine.h"
#include "pool/engine/ledger.h"
#include "pool/engine/room.h"
#include "pool/engine/usage.h"

namespace tendril::pool {

// A request that waits, or a lease.
struct EngineEntry {
  Ask ask;
  uint32_t user = 0;
  uint32_t shape = 0;  // requests of one shape fit at the same places
  bool gone = false;   // the policy knows its account or class no more
  bool fresh = true;   // not looked at yet
  int64_t most_s = kNever;
  int64_t sought_s = kNever;  // an overdue one: when no time was found for it last
  std::shared_ptr<const FilterAnswers> answers;
  std::vector<Avoided> avoided;

  // While it runs.
  Charge charge;
  bool charged = false;
  int64_t started_s = 0;
  int64_t ends_by_s = kNever;
  bool reclaimed = false;
  uint64_t reclaimed_for = 0;  // the request; 0: a reservation
};

// What is, or will be, taken back for a request: how much, from whom, gone by when.
struct Taking {
  int64_t gone_by_s = kNever;
  uint64_t amount = 0;
  std::set<uint32_t> accounts, user_classes;  // that hold it
};

// A request was told when it starts at the latest, and has its place from then on.
struct Promise {
  uint64_t id = 0;
  uint32_t gpu_class = kNoClass;
  bool inside = false;  // its account's quota, when it was promised
  bool late = false;
  bool by_force = false;  // nobody knows when; its place is kept from now on
  int64_t at_s = kNever;
  int64_t most_s = kNever;  // how long it may last then
  int64_t computed_s = 0;
  uint64_t gains = 0;  // Room::gains when it was computed
  uint64_t after_id = 0;
  bool reclaiming = false;
  std::vector<PlacedSlice> slices;
  Charge charge;
  Ledger::Use then;  // what is held then, if all leases last as long as they may
};

class Engine::State {
 public:
  using Entry = EngineEntry;

  // engine.cc
  State();
  void set_policy(const PoolPolicy& policy, int64_t wall_s, int64_t now_s);
  base::Status submit(const Ask& ask, int64_t now_s);
  void adopt(const Ask& ask, const std::vector<PlacedSlice>& slices, int64_t started_s);
  void resize(uint64_t id, const std::vector<PlacedSlice>& slices);
  bool grow(uint64_t id, const std::vector<PlacedSlice>& slices, int64_t now_s, std::string* why);
  std::map<uint64_t, std::string> beyond_limits(const std::vector<EngineGrowth>& all) const;
  void ended(uint64_t id, int64_t now_s);
  void failed(uint64_t id, uint32_t server, int64_t now_s);
  bool withdraw(uint64_t id);
  void servers_changed() { dirty_ = true; }
  double gpu_seconds(uint32_t account) const;
  std::vector<UsageRecord> usage() const;
  std::vector<DurationRecord> durations() const;
  void restore(const std::vector<UsageRecord>& usage, const std::vector<DurationRecord>& durations,
               int64_t now_s);

  // planner.cc
  EnginePlan plan(int64_t now_s);

  // explain.cc
  std::vector<EngineWaiting> explain(int64_t now_s);
  base::Status never_fits(const Entry& entry, int64_t now_s);

  Room room;
  Ledger ledger;
  std::map<uint64_t, std::unique_ptr<Entry>> waiting;
  std::map<uint64_t, std::unique_ptr<Entry>> running;

 private:
  using LaneKey = std::tuple<int32_t, int64_t, uint64_t>;  // less priority, submitted, id
  using Lane = std::set<LaneKey>;
  // Who goes first: lateness, priority, quota, usage from the top account to its own, age.
  struct OrderKey {
    int32_t less_priority = 0;
    bool over = false;
    std::vector<double> used;
    int64_t submitted_s = 0;
    uint64_t id = 0;
    bool operator<(const OrderKey& other) const {
      return std::tie(less_priority, over, used, submitted_s, id) <
             std::tie(other.less_priority, other.over, other.used, other.submitted_s, other.id);
    }
  };
  struct Failure {  // of one shape in one class
    uint64_t gains = 0;
    int64_t ends_by_s = kNever;
  };
  struct Booking {  // a reservation of the policy, in the engine's time
    uint32_t number = 0;
    int64_t from_s = 0, to_s = 0;
    uint64_t changes = 0;  // Room::changes when its GPUs were chosen
    bool chosen = false;
    std::vector<PlacedSlice> slices;
  };

  // engine.cc
  const PoolPolicy& policy() const { return ledger.policy(); }
  void queue(std::unique_ptr<Entry> entry);
  void unqueue(const Entry& entry);
  void remap(Entry& entry, const PoolPolicy& before, const PoolPolicy& after) const;
  void derive(Entry& entry);
  bool still_good(Promise& promise);
  void learn(const Entry& entry);
  static void avoid(Entry& entry, uint32_t server, int64_t now_s);
  void count(Entry& entry, bool more);  // adds or removes a lease's charge everywhere
  void set_end(Entry& entry, int64_t ends_by_s);
  Charge charge_of(const Entry& entry, uint32_t gpu_class) const;
  uint64_t amount_of(const std::vector<PlacedSlice>& slices) const;
  void set_rate(const Charge& charge, double sign);
  void advance(int64_t now_s);
  int32_t priority(const Entry& entry) const;
  bool late(const Entry& entry, int64_t now_s) const;
  bool may_use(const Entry& entry, uint64_t reservation) const;

  // planner.cc
  void prepare(int64_t now_s);
  void book_reservations(int64_t now_s);
  void choose_gpus(Booking& booking);
  OrderKey key_of(const Entry& entry) const;
  std::vector<Entry*> in_order(int64_t now_s);
  void plan_all(int64_t now_s, EnginePlan& plan);
  bool consider(Entry& entry, int64_t now_s, EnginePlan& plan);
  bool try_start(Entry& entry, uint32_t gpu_class, int64_t now_s, EnginePlan& plan);
  bool is_over(const Charge& charge) const;
  std::optional<Lacking> beyond(const Ledger::Use& use, const Charge& charge) const;
  bool delays_a_promise(const Entry& entry, const Charge& charge, int64_t ends_by_s);
  Seeker seeker_for(const Entry& entry, int64_t now_s);
  void start(Entry& entry, const Charge& charge, std::vector<PlacedSlice> slices, int64_t now_s,
             EnginePlan& plan);
  void head(Entry& entry, int64_t now_s, EnginePlan& plan);
  bool promise(Entry& entry, int64_t now_s, bool by_force);
  std::optional<Promise> best_promise(Entry& entry, int64_t now_s, bool by_force);
  bool best_here(const Entry& entry, const Seeker& seeker, uint32_t gpu_class, bool by_force,
                 const Room::Ends& ends, std::optional<Promise>* best);
  void keep_promise(Promise&& promise);
  bool lacks_then(const Promise& promise) const;
  static bool meets(const Promise& one, const Promise& other);
  Ledger::Use then_of(const Promise& promise) const;
  bool fits_beside_promises(const Promise& promise);
  Promise* promise_of(uint64_t id);
  void drop_promise(uint64_t id);
  void check_promises(int64_t now_s);
  bool keeps(const Promise& promise, int64_t now_s);
  bool start_as_promised(Entry& entry, int64_t now_s, EnginePlan& plan);
  bool slot_taken(uint32_t gpu_class, bool inside, bool late) const;
  int64_t lacks_until(const Charge& charge, int64_t now_s) const;
  Ledger::Use use_at(int64_t at_s, const Charge& charge) const;
  int64_t next_time(int64_t now_s) const;

  // reclaim.cc
  bool reclaim_for(Entry& entry, uint32_t gpu_class, int64_t now_s, EnginePlan& plan);
  std::vector<uint64_t> victims_for(const Entry& entry, uint32_t gpu_class, int64_t now_s,
                                    int64_t begins_s);
  int64_t reclaimable_from_s(const Entry& victim) const;
  Taking taken_for(const Entry& entry, uint32_t gpu_class) const;
  Taking foretell(const Entry& entry, uint32_t gpu_class, int64_t now_s);
  void add_to(Taking& taking, const Entry& victim, int64_t gone_by_s) const;
  void reclaim_for_reservations(int64_t now_s, EnginePlan& plan);
  void reclaim(Entry& victim, uint64_t for_id, const std::string& why, int64_t now_s,
               EnginePlan& plan);
  int64_t gone_by_s(const Entry& victim, int64_t now_s) const;
  bool reclaimable(const Entry& victim, const Entry& entry, uint32_t gpu_class,
                   int64_t begins_s) const;

  // explain.cc
  void diagnose(const Entry& entry, int64_t now_s, EngineWaiting& out);
  void diagnose_place(const Entry& entry, uint32_t gpu_class, int64_t now_s, EngineWaiting& out);
  bool is_too_much(const Entry& entry, uint32_t gpu_class, const std::vector<PlacedSlice>& slices,
                   EngineWaiting& out) const;
  void diagnose_taking(const Entry& entry, uint32_t gpu_class, int64_t now_s, EngineWaiting& out);
  void lacking_text(const Entry& entry, uint32_t gpu_class, const Lacking& lacking,
                    EngineWaiting& out) const;
  void forecast(const std::vector<Entry*>& order, int64_t now_s, std::vector<EngineWaiting>& out);

  std::map<std::pair<uint32_t, uint32_t>, Lane> lanes_;  // by account and user class
  std::set<std::pair<int64_t, uint64_t>> by_age_;        // submitted, id
  std::vector<Promise> promises_;
  std::vector<Booking> bookings_;
  std::unordered_map<uint64_t, Failure> failures_;  // by shape and class
  std::map<std::string, uint32_t> shapes_;
  // Of one user: (class of use or account, user).
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> pending_of_class_, pending_of_account_;
  // What was foretold to a request, and when. It is not looked for each time that somebody asks.
  std::map<uint64_t, std::pair<int64_t, Taking>> foretold_;
  std::set<std::pair<uint32_t, bool>> foretold_in_;  // classes, inside a quota; in this look
  std::vector<DecayedUsage> usage_;                  // by account, with those below
  std::vector<double> rates_;                        // weighted GPUs, the same
  std::vector<double> charged_;                      // in this plan, weighted GPU-seconds
  std::vector<Durations> lasted_;                    // by user class
  std::vector<uint64_t> fresh_;
  Demand demand_;
  uint32_t asked_ = 0;
  uint64_t room_changes_ = 0;
  bool dirty_ = true;
  int64_t planned_all_s_ = 0;
  int64_t next_window_s_ = std::numeric_limits<int64_t>::min();
};

}  // namespace tendril::pool

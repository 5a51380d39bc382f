// SPDX-License-Identifier: Apache-2.0
// Who starts now and where, who waits, why and until when, and which leases must make room. It
// knows the servers' GPUs, the leases on them, the requests that wait and the policy in effect. The
// scheduler tells it every change and asks for a plan. README.md has the rules.
//
// Pure: no clock, lock or I/O. Times are seconds of one clock that never runs backwards; they may
// lie before its zero; kNever is unknown or never. One caller at a time. Equal calls give equal
// answers.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "pool/placement/request.h"
#include "pool/policy/calendar.h"
#include "pool/policy/policy.h"

namespace tendril::pool {

inline constexpr uint32_t kNoClass = std::numeric_limits<uint32_t>::max();

// A fixed list. Each comes with the numbers behind it as text.
enum class WaitReason : uint8_t {
  kResources,    // not enough is free
  kPriority,     // others go first, and it would delay them
  kQuota,        // its account may not have more, or others lend no more
  kUserLimit,    // its user may not have more
  kReservation,  // what is free is reserved
  kSchedule,     // maintenance, a drain, or the time of day keeps it from starting
  kFragmented,   // enough is free, but not where it fits
  kNeverFits,    // not even if nothing else ran
  kServersDown,  // it fits only on servers that are silent
  kAccount,      // the policy gives its user no such account or class of use
};
const char* wait_reason_name(WaitReason reason);  // "Resources", ...
// "Quota: vision holds 4.0 of 4.0 top": the word, then the numbers behind it.
std::string reason_text(WaitReason reason, const std::string& numbers);

// What a GPU is. Its position in EngineServer::gpus is its number.
struct EngineGpu {
  std::string model;
  uint32_t gpu_class = kNoClass;     // position in the policy; kNoClass: in none, so never used
  uint64_t memory_usable_bytes = 0;  // what all its slices may have together
  uint64_t process_bytes = 0;        // what a process needs before it allocates anything
};
struct EngineServer {
  std::string name;
  std::vector<EngineGpu> gpus;  // at most kMostGpus
};
enum class ServerState : uint8_t {
  kOpen,
  kDraining,  // nothing new
  kSilent,    // nothing new; what it holds counts as held
};
// What somebody asks for. `account`, `user_class` and `gpu_classes` are positions in the policy
// that was last set. set_policy() keeps what it knows in step by their names.
struct Ask {
  uint64_t id = 0;  // unique among those that wait or run
  std::string user;
  uint32_t account = 0;
  uint32_t user_class = 0;
  std::vector<uint32_t> gpu_classes;      // in this order; all slices are in one of them
  uint32_t slices = 1;                    // each on a GPU of its own
  uint32_t share_millionths = kWholeGpu;  // of each; 0: as much as its part of the memory
  uint64_t memory_bytes = 0;              // of each; 0: as much as its share
  bool packed = false;
  Spread spread = Spread::kAnyServers;
  int32_t priority = 0;     // added to its class's, at most UserClass::max_priority
  int64_t most_s = kNever;  // it asked for at most this; the class's max_wall holds as well
  int64_t submitted_s = 0;  // when it came first; a request that comes back keeps it
  bool accepted = false;    // it has a place already: it may be one too many

  // GPUs that it may have. Null: all. Requests with equal filter_text share the answers, which are
  // asked for again when a server was updated. People are shown its first line.
  std::string filter_text;
  std::function<bool(uint32_t server, uint32_t gpu)> filter;
  bool filter_changes = false;  // ask every time
  // What it may say if leases come and go; null: what `filter` says.
  std::function<bool(uint32_t server, uint32_t gpu)> filter_ever;
};

struct PlacedSlice {
  uint32_t server = 0, gpu = 0;
  uint32_t share_millionths = 0;
  uint64_t memory_bytes = 0;
};

// A lease that is to hold as much again as it was granted.
struct EngineGrowth {
  uint64_t id = 0;
  std::vector<PlacedSlice> slices;
};

struct EngineStart {
  uint64_t id = 0;
  uint32_t gpu_class = kNoClass;
  int64_t ends_by_s = kNever;       // ended then at the latest
  std::vector<PlacedSlice> slices;  // by server, then GPU
};
// The holder must make room: its class's preempt_mode says how. Given once for each.
struct EngineReclaim {
  uint64_t id = 0;
  uint64_t for_id = 0;
  int64_t by_s = kNever;  // it is expected to be gone then
  std::string why;        // "nlp reclaims 2.0 top"
};
struct EngineWaiting {
  uint64_t id = 0;
  uint32_t place = 0, of = 0;     // 1 of 7, among those that wait for the same class
  uint32_t gpu_class = kNoClass;  // the class it is likely to get
  uint32_t account = 0;
  WaitReason reason = WaitReason::kPriority;
  std::string text;               // "vision holds 2.0 of 4.0 top, 2.0 lent to nlp"
  std::string reclaimed;          // "those", "2.0 of class batch": what is taken back for it
  int64_t reclaimed_s = kNever;   // and is gone by then
  int64_t start_from_s = kNever;  // likely
  int64_t start_to_s = kNever;    // at the latest, if nobody goes before it
  std::string start_why;          // "when lease 311 reaches its limit"; may be empty
  bool promised = false;          // start_to_s: the others start only where they do not delay it
};
struct EnginePlan {
  std::vector<EngineStart> starts;  // in this order; they count as running from now on
  std::vector<EngineReclaim> reclaims;
  int64_t again_s = kNever;  // plan again at this time, even if nothing happens
};

// What outlives a scheduler.
struct UsageRecord {
  std::string account;
  double gpu_seconds = 0;  // decayed, weighted
};
// How long leases of a class lasted, as a part of what they might have. Ten counters.
struct DurationRecord {
  std::string user_class;
  std::vector<double> tenths;
};

class Engine {
 public:
  Engine();
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // `policy` is what effective() gave for the time `wall_s`. After it, the scheduler updates every
  // server, because the classes of GPUs may be others. A request whose account or class is gone
  // waits with the reason kAccount.
  void set_policy(const PoolPolicy& policy, int64_t wall_s, int64_t now_s);

  // Servers. Numbers count up from 0 and are not used again. kInvalid: too many GPUs.
  base::Result<uint32_t> add_server(const EngineServer& server);
  // Its GPUs changed: classes, memory. GPUs may come or go at the end.
  base::Status update_server(uint32_t server, const EngineServer& what);
  void set_state(uint32_t server, ServerState state);
  // Nothing starts that would run into one, but a lease without an end may if its class says so.
  void set_maintenance(uint32_t server, std::vector<Interval> windows);
  // It is gone for good. Leases that are there stay until ended() is called for them.
  void remove_server(uint32_t server);

  // kRefused: it never fits, or its user has too many waiting; the message says what would fit.
  // kInvalid: malformed.
  base::Status submit(const Ask& ask, int64_t now_s);
  // A request leaves the queue. Nothing happens if it does not wait.
  void withdraw(uint64_t id);
  // A lease that runs already: granted by a server on its own, or before this scheduler. It counts
  // even if there is no room for it.
  void adopt(const Ask& ask, const std::vector<PlacedSlice>& slices, int64_t started_s);
  // The shares or memory of a lease changed.
  void resize(uint64_t id, const std::vector<PlacedSlice>& slices);
  // The lease is to have as much again as `slices` say. True: it counts with them from now on.
  // False: it stays as it is, because `why` forbids it: "a limit of its user or account".
  bool grow(uint64_t id, const std::vector<PlacedSlice>& slices, int64_t now_s, std::string* why);
  // Those of these leases that would be beyond a limit of their user or account if all before them
  // in the list had grown already, and which limit: "UserLimit: ann has 1.0 of at most 1.0 GPUs in
  // class usual". Room is not looked at. Changes nothing.
  std::map<uint64_t, std::string> beyond_limits(const std::vector<EngineGrowth>& all) const;
  void ended(uint64_t id, int64_t now_s);
  // The server did not take what plan() put there, or the program is to start again: the request
  // waits in its old place. The server gets nothing of it for some seconds; kNoServer: all may.
  static constexpr uint32_t kNoServer = std::numeric_limits<uint32_t>::max();
  void failed(uint64_t id, uint32_t server, int64_t now_s);

  EnginePlan plan(int64_t now_s);
  // All that wait, in order, as of the last plan.
  std::vector<EngineWaiting> waiting(int64_t now_s);

  // What an account, with those below it, holds of a class now. Millionths.
  uint64_t used(uint32_t account, uint32_t gpu_class) const;
  // What of its quota others of its parent hold now.
  uint64_t lent(uint32_t account, uint32_t gpu_class) const;
  uint32_t leases_on(uint32_t server, uint32_t gpu) const;
  uint64_t used_by_user(uint32_t user_class, const std::string& user) const;
  // What of a class there is on servers that are not silent, and what of it nobody holds.
  uint64_t capacity(uint32_t gpu_class) const;
  uint64_t unused(uint32_t gpu_class) const;
  double decayed_gpu_seconds(uint32_t account) const;
  // What it is due: its quota, and its part of what nobody has as a quota, in weighted GPUs.
  double entitlement(uint32_t account) const;
  size_t waiting_count() const;
  size_t running_count() const;

  std::vector<UsageRecord> usage() const;
  std::vector<DurationRecord> durations() const;
  void restore(const std::vector<UsageRecord>& usage, const std::vector<DurationRecord>& durations,
               int64_t now_s);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tendril::pool

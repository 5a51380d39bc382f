// SPDX-License-Identifier: Apache-2.0
// The pool's scheduler as a state machine: events with the time go in, effects come out. It has no
// clock, lock, file or socket, and equal events give equal effects. scheduler/ drives it with real
// connections and a real store, pool/simulation with others; both pass every event here, one at a
// time, and call tick() after each burst of them.
//
// `connection` is any number that the driver gives a control connection; 0 is none. It may be used
// again after lost() or left().
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "pool/accounting/history.h"
#include "pool/policy/zone.h"
#include "wire/pool.h"

namespace tendril::view {
struct Picture;
}

namespace tendril::pool {

// Monotonic time for what lasts, wall time (seconds since 1970, UTC) for what a calendar says. The
// monotonic one never runs backwards; the wall's may.
struct Now {
  uint64_t monotonic_ns = 0;
  int64_t wall_s = 0;
};
inline constexpr uint64_t kNotAgain = std::numeric_limits<uint64_t>::max();

// A peer as it was proven to the pool.
struct Asker {
  std::string id;    // of the principal: what owns a lease
  std::string name;  // for people and for filters (`user`)
  std::string role;  // "user", "operator", "admin", "server"
  std::vector<std::string> groups;
  std::string host;
  bool sees_all = false;   // others' names in answers
  bool rules_all = false;  // may end and forget what is not its own
};

// One change of the store; no value: the key is erased.
struct Write {
  std::string key;
  std::optional<std::string> value;
};
// To be written whole or not at all, after all batches with lower numbers. At most kWritesMax
// changes with keys that differ.
struct Batch {
  uint64_t number = 0;  // from 1, without gaps
  std::vector<Write> writes;
};
inline constexpr size_t kWritesMax = 100;

// What the driver is to do. Where `status` is not ok it is the whole answer.
struct Effects {
  struct ToServer {  // the answer to its last report
    uint64_t connection = 0;
    base::Status status;
    wire::PoolOrders orders;
  };
  struct ToClient {  // the answer to its request
    uint64_t connection = 0;
    base::Status status;
    wire::LeaseReply reply;
  };
  struct NewsTo {  // to a client that waits
    uint64_t connection = 0;
    wire::News news;
  };
  struct ToCommander {  // the answer to a command
    uint64_t connection = 0;
    base::Status status;
    std::string json;
  };
  struct Event {         // for the driver's log and audit log
    std::string what;    // "grant", "end", "drain", "silent"
    std::string object;  // "lease 17", "server gpu3"
    std::string text;
  };
  std::vector<ToServer> to_servers;
  std::vector<ToClient> to_clients;
  std::vector<NewsTo> news;
  std::vector<ToCommander> to_commanders;
  std::vector<Batch> writes;
  std::vector<Event> events;
  uint64_t again_ns = kNotAgain;  // call tick() at this monotonic time, or earlier

  bool empty() const {
    return to_servers.empty() && to_clients.empty() && news.empty() && to_commanders.empty() &&
           writes.empty() && events.empty();
  }
};

struct SchedulerOptions {
  std::string pool = "pool";  // names, for messages; the policy's name of the pool goes before
  std::string scheduler = "scheduler";
  uint64_t term = 1;
  ZoneReader zones;  // null: UTC only
  // Otherwise after this time: history is made of what they say.
  uint32_t report_ms = 1000;
  HistoryLimits history;
  // While somebody waits, reports are answered after this time, so that the pool hears sooner of
  // what became free. More servers: after longer.
  uint32_t hurried_ms = 250;
  // Between two looks at why all wait, at least; those who wait hear what changed. Many: longer.
  uint32_t news_ms = 250;
};

class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // All that the store has under kStorePrefix, in any order: keys and values. Once, before
  // anything else. Records that make no sense are left out and named in an event.
  static constexpr const char* kStorePrefix = "pool/";
  // And what the history needs (pool/accounting/history.h says where it is).
  void recover(const std::vector<std::pair<std::string, std::string>>& records, Now now);

  // ---- servers ----

  // A report of a server with this name (of its certificate; empty: what the report says). It is
  // answered by one ToServer, at once or up to kReportEveryMs later.
  void reported(uint64_t connection, const std::string& proven_name, const wire::PoolReport& report,
                Now now);
  // The connection is gone. The server is silent if it does not report again in time.
  void lost(uint64_t connection, Now now);

  // ---- clients ----

  // A request. It is answered by one ToClient; until then there may be news. With a request_key
  // that is known already, this connection takes the older one's place.
  void submitted(uint64_t connection, const Asker& who, const wire::LeaseRequest& request, Now now);
  // A client that waits is gone. `orderly`: it closed its connection, so it leaves the queue. If
  // not, its place is kept for kAbsentMs.
  void left(uint64_t connection, bool orderly, Now now);
  static constexpr uint64_t kAbsentMs = 20'000;

  // ---- administrators ----

  // README.md has the verbs. It is answered by one ToCommander, when the store has what it changes.
  void command(uint64_t connection, const Asker& who, const wire::PoolCommand& command, Now now);

  // ---- the store ----

  // The batch, and all before it, are in the store. If not ok: they are not yet, and the driver
  // tries again; the text is told to those who wait. A driver that was deposed drops the Scheduler.
  void stored(uint64_t batch, const base::Status& status, Now now);

  // ---- time ----

  // Does what is due, plans, and gives all effects since the last call.
  Effects tick(Now now);

  // ---- looking ----

  // Servers, GPUs and leases of the pool, as a server lists its own. GPUs have running numbers.
  wire::ListReply list(const wire::ListRequest& request, const Asker& who, Now now) const;
  // The text of the policy that holds, and its revision.
  const std::string& policy_text() const;
  uint64_t policy_revision() const;
  // A JSON object with figures for metrics; README.md has the keys.
  std::string figures(Now now);
  // All that the page shows (view/picture.h).
  view::Picture picture(Now now);
  // Somebody looks at this lease for the next seconds, so pictures have its calls and bytes.
  void watch(uint64_t lease, Now now);
  struct Counts {
    size_t servers = 0, servers_silent = 0, waiting = 0, leases = 0;
    uint64_t share_millionths = 0, share_given_millionths = 0;  // of open servers
    uint64_t batches_unstored = 0;
  };
  Counts counts() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace tendril::pool

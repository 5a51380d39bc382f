// SPDX-License-Identifier: Apache-2.0
// The thread that has the pool's Scheduler while this process schedules. Requests of connections
// come in as events, and so does what the store's thread hears. Effects go out as answers, news
// and batches. While another process schedules, everything is refused with its name.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "access/guard.h"
#include "pool/scheduler/scheduler.h"
#include "scheduler/journal.h"
#include "scheduler/store_thread.h"
#include "session/control/serve.h"
#include "view/picture.h"

namespace tendril::scheduler {

struct CoreOptions {
  std::string pool;       // names, for messages
  std::string scheduler;  // "pool1"
  std::string endpoint;   // where others reach this process
  std::string policy;     // what holds in a store that has no policy yet; may be empty
  pool::ZoneReader zones;
  pool::HistoryLimits history;
};

// Who asks, and on which connection.
struct Visit {
  uint64_t connection = 0;
  access::Principal who;
  std::string address;
};

class HistoryReader;

class Core final : public StoreEvents {
 public:
  Core(CoreOptions options, access::Guard* guard);
  ~Core() override;

  // `store` gets the batches; `history` is asked what the store has of the past. Both must live
  // until stop().
  void start(StoreThread* store, HistoryReader* history);
  // Everything that waits is left unanswered.
  void stop();

  // ---- from connections. Any thread; they do not block ----
  uint64_t new_connection();
  void report(Visit visit, wire::PoolReport report, session::Later later);
  void lease(Visit visit, wire::LeaseRequest request, session::Later later);
  void command(Visit visit, wire::PoolCommand command, session::Later later);
  void list(Visit visit, wire::ListRequest request, session::Later later);
  void gone(uint64_t connection, bool orderly);
  // What the page shows. `done` is called on this object's thread; kUnavailable: this process does
  // not schedule.
  void look(std::function<void(base::Result<view::Picture>)> done);
  // Pictures of the next seconds have calls and bytes of this lease.
  void watch(uint64_t lease);

  // Applies another policy if this process schedules; else it is kept for a store without one.
  void apply(std::string policy);
  // What a hello says.
  struct Standing {
    bool schedules = false;
    uint64_t term = 0;
    std::string elsewhere;  // who schedules otherwise: "pool2 host:port"; empty: nobody
  };
  Standing standing() const;
  // For metrics: the Scheduler's figures, a JSON object. Empty if this process does not schedule,
  // or does not answer in time. Not from this object's own thread.
  std::string figures();
  const CoreOptions& options() const { return options_; }
  // "pool2:7433", of what another process campaigns with.
  static std::string holder_text(const std::string& scheduler, const std::string& endpoint);

  // ---- from the store's thread ----
  void elected(uint64_t term, uint64_t certain_until_ns, Records records) override;
  void certain(uint64_t term, uint64_t until_ns) override;
  void deposed(uint64_t term, const std::string& why) override;
  void other(const std::string& holder) override;
  void stored(uint64_t term, uint64_t batch, const base::Status& status) override;

 private:
  using Event = std::function<void()>;
  struct Link {
    session::Later later;
    bool reported = false, submitted = false;
    std::string rest;  // of an answer that is longer than a message
  };
  struct Held {
    uint64_t due_ns = 0;
    session::Later later;
  };

  void post(Event event);
  void run();
  void tick(uint64_t now_ns);
  void perform(const pool::Effects& effects);
  void send_answer(uint64_t connection, const pool::Effects::ToCommander& answer);
  void note(const pool::Effects::Event& event);
  // Gives the audit log's new lines to the store.
  void keep_events(uint64_t now_ns);

  void take_report(const Visit& visit, const wire::PoolReport& report, session::Later later);
  void take_lease(const Visit& visit, const wire::LeaseRequest& request, session::Later later);
  void take_command(const Visit& visit, const wire::PoolCommand& command, session::Later later);
  // What the store answers: the history, and events.
  void take_past(const Visit& visit, const wire::PoolCommand& command, session::Later later);
  void take_list(const Visit& visit, const wire::ListRequest& request, session::Later later);
  void take_gone(uint64_t connection, bool orderly);
  void take_election(uint64_t term, uint64_t certain_until_ns, const Records& records);
  void take_deposal(const std::string& why);
  void apply_policy();
  void answer_held(uint64_t now_ns, bool all);
  Link* link_for(uint64_t connection, session::Later later);
  // Of a connection that waits; invalid if none does.
  session::Later waiting(uint64_t connection);
  bool is_certain(uint64_t now_ns) const;
  // Not ok: this process schedules, but the store has been silent for so long that another may be
  // elected. Then nothing is decided, and what comes waits or is refused.
  base::Status may_decide() const;
  void tell_undecided(uint64_t now_ns);
  base::Status elsewhere() const;
  std::vector<uint8_t> standby_orders() const;

  const CoreOptions options_;
  access::Guard* const guard_;
  StoreThread* store_ = nullptr;
  HistoryReader* history_ = nullptr;
  std::thread thread_;

  // The thread's own.
  std::unique_ptr<pool::Scheduler> scheduler_;
  uint64_t term_ = 0, certain_until_ns_ = 0, again_ns_ = 0, ticked_ns_ = 0;
  uint64_t undecided_told_ns_ = 0;  // to all who wait, the last time
  bool touched_ = false;            // events came since the last tick
  std::string policy_, holder_;
  Journal journal_;
  uint64_t kept_events_ns_ = 0;
  std::unordered_map<uint64_t, Link> links_;
  std::deque<Held> held_;  // reports that a standby answers later; the first is due first

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;  // guarded by mutex_
  bool stopping_ = false;     // guarded by mutex_
  uint64_t last_connection_;  // guarded by mutex_
  Standing standing_;         // guarded by mutex_
};

}  // namespace tendril::scheduler

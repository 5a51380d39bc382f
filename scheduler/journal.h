// SPDX-License-Identifier: Apache-2.0
// The newest lines of the audit log in the pool's store, so that they outlive a scheduler and are
// there wherever another one begins. Whoever schedules writes them, once a second. What the pool
// did and what people did are kept apart, so that a busy pool does not push out who changed it.
//
// Of each kind the store has kJournalRecords records at most, each of kJournalRecordBytes. One is
// open: it is written again with each new line, and closed when it is full. A name has a budget of
// lines of each kind of act: what it does beyond is counted, and one line says how much that was.
// The audit log's file has all of it. One thread may call.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "access/audit.h"
#include "base/result.h"
#include "pool/scheduler/records.h"
#include "pool/scheduler/scheduler.h"
#include "store/store.h"

namespace tendril::scheduler {

inline constexpr size_t kJournalRecordBytes = 16 << 10, kJournalRecords = 1024;  // 16 MiB
inline constexpr size_t kJournalLinesAtOnce = 64;  // of each kind; the rest is counted
// What a name that is not the pool's did of one kind: so many lines at once, and one more each
// second.
inline constexpr uint64_t kJournalBurst = 60;

namespace keys {
inline const std::string kPoolEvents = "events/pool/", kPeoplesEvents = "events/people/";
inline const std::string kOpenEvents = "open";  // behind one of them; a closed one has its number
}  // namespace keys

class Journal {
 public:
  // `server`: whose log it is, for the lines that say what was left out.
  explicit Journal(std::string server) : server_(std::move(server)) {}
  // At the start of a term, with what the store has under the keys of open records.
  void recover(const std::vector<std::pair<std::string, std::string>>& records);
  // What is to be written now. No writes: nothing new.
  pool::Batch cut(const access::AuditLog& log, uint64_t now_ms);

 private:
  struct Kind {
    const std::string* prefix;
    pool::EventsRecord open;
    size_t bytes = 0;  // of its events
  };
  struct Budget {
    uint64_t lines = kJournalBurst, at_ms = 0;
  };
  bool may_add(const access::AuditLog::Recent& line, uint64_t now_ms);
  void add(Kind* kind, uint64_t at_ms, const std::string& id, const std::string& line,
           pool::Batch* batch);
  static void close(Kind* kind, pool::Batch* batch);

  const std::string server_;
  std::array<Kind, 2> kinds_ = {Kind{&keys::kPoolEvents, {}, 0},
                                Kind{&keys::kPeoplesEvents, {}, 0}};
  std::map<std::pair<std::string, std::string>, Budget> budgets_;  // by name and what it did
  uint64_t seen_ = 0;                                              // of the log's lines
};

// The newest lines of before `before_ms` (0: of now), newest first. All of one millisecond are
// together, so there may be more than `limit`. The answer is {"events": [...], "before": when to
// ask for older ones, or null}. Blocks on the store.
struct EventsQuery {
  bool pool = true, people = true;
  uint64_t before_ms = 0;
  size_t limit = 400;
  std::string id;  // whose; empty: everybody's
};
// Words: kind=pool or people, before=, limit= (1,000 at most).
base::Result<EventsQuery> parse_events_query(const std::vector<std::string>& words);
base::Result<std::string> read_events(store::Store* store, const EventsQuery& query);

}  // namespace tendril::scheduler

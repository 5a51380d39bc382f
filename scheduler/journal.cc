// SPDX-License-Identifier: Apache-2.0
// See journal.h.
#include "scheduler/journal.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/text.h"
#include "config/text.h"

namespace tendril::scheduler {

using base::Code;
using base::Status;

namespace {

constexpr size_t kLimitMax = 1000, kBudgetsMax = 4096;
constexpr int kReadMs = 5'000;
constexpr char kPoolRule[] = "pool";  // what the pool does by itself (core.cc)

std::string key_of(const std::string& prefix, uint64_t number) {
  return prefix + base::format("%016llx", static_cast<unsigned long long>(number));
}

size_t bytes_of(const pool::EventRecord& event) { return event.id.size() + event.line.size() + 16; }

// Records of one kind, from the newest to the oldest.
class Backwards {
 public:
  Backwards(store::Store* store, const EventsQuery& query, const std::string& prefix)
      : store_(store), query_(query), prefix_(prefix) {}
  // The next event that is wanted; null: there is none. Valid until the next pop().
  base::Result<const pool::EventRecord*> top() {
    for (;;) {
      while (!record_.events.empty() && !is_wanted(record_.events.back())) pop();
      if (!record_.events.empty()) return &record_.events.back();
      if (read_ > kJournalRecords || (read_ > 0 && record_.number <= 1)) return nullptr;
      const Status status = read_next();
      if (!status.ok()) return status;
    }
  }
  void pop() { record_.events.pop_back(); }

 private:
  bool is_wanted(const pool::EventRecord& event) const {
    return (query_.before_ms == 0 || event.at_ms < query_.before_ms) &&
           (query_.id.empty() || event.id == query_.id);
  }
  Status read_next() {
    const uint64_t number = record_.number - 1;
    auto entry = store_->get(read_ == 0 ? prefix_ + keys::kOpenEvents : key_of(prefix_, number),
                             base::Deadline(kReadMs));
    const bool is_first = read_++ == 0;
    if (!entry.ok() && entry.status().code() != Code::kNotFound) return entry.status();
    pool::EventsRecord next;
    const bool is_there = entry.ok() && pool::unpack(entry->value, &next);
    // It is the oldest, or was erased just now, or is damaged: then the one before it may be there.
    record_ = is_there ? std::move(next) : pool::EventsRecord();
    if (!is_there && !is_first) record_.number = entry.ok() ? number : 0;
    return Status();
  }

  store::Store* const store_;
  const EventsQuery& query_;
  const std::string& prefix_;
  pool::EventsRecord record_;
  size_t read_ = 0;
};

}  // namespace

void Journal::recover(const std::vector<std::pair<std::string, std::string>>& records) {
  for (Kind& kind : kinds_) {
    kind.open = {};
    for (const auto& [key, value] : records) {
      if (key != *kind.prefix + keys::kOpenEvents) continue;
      if (!pool::unpack(value, &kind.open)) kind.open = {};
    }
    kind.open.number = std::max<uint64_t>(kind.open.number, 1);
    kind.bytes = 0;
    for (const pool::EventRecord& event : kind.open.events) kind.bytes += bytes_of(event);
  }
}

bool Journal::may_add(const access::AuditLog::Recent& line, uint64_t now_ms) {
  if (budgets_.size() > kBudgetsMax) budgets_.clear();
  Budget* const budget = &budgets_[{line.id, line.what}];
  const uint64_t seconds = (now_ms - std::min(now_ms, budget->at_ms)) / 1000;
  if (seconds > 0) {
    budget->lines = std::min(kJournalBurst, budget->lines + seconds);
    budget->at_ms = now_ms;
  }
  if (budget->lines == 0) return false;
  --budget->lines;
  return true;
}

void Journal::close(Kind* kind, pool::Batch* batch) {
  batch->writes.push_back({key_of(*kind->prefix, kind->open.number), pool::pack(kind->open)});
  if (kind->open.number > kJournalRecords) {
    batch->writes.push_back(
        {key_of(*kind->prefix, kind->open.number - kJournalRecords), std::nullopt});
  }
  ++kind->open.number;
  kind->open.events.clear();
  kind->bytes = 0;
}

void Journal::add(Kind* kind, uint64_t at_ms, const std::string& id, const std::string& line,
                  pool::Batch* batch) {
  pool::EventRecord event{at_ms, id, line};
  if (kind->bytes + bytes_of(event) > kJournalRecordBytes && !kind->open.events.empty())
    close(kind, batch);
  // A clock that was set back does not change the order.
  if (!kind->open.events.empty())
    event.at_ms = std::max(event.at_ms, kind->open.events.back().at_ms);
  kind->bytes += bytes_of(event);
  kind->open.events.push_back(std::move(event));
}

pool::Batch Journal::cut(const access::AuditLog& log, uint64_t now_ms) {
  pool::Batch batch;
  const auto lines = log.recent(seen_, access::kAuditRecentMax);
  if (lines.empty()) return batch;
  uint64_t left_out = lines.front().number - seen_ - 1;
  seen_ = lines.back().number;
  size_t added[2] = {0, 0};
  for (const access::AuditLog::Recent& each : lines) {
    const size_t which = each.rule == kPoolRule ? 0 : 1;
    if (added[which] == kJournalLinesAtOnce || (which == 1 && !may_add(each, now_ms))) {
      ++left_out;
      continue;
    }
    ++added[which];
    add(&kinds_[which], each.at_ms, each.id, each.line, &batch);
  }
  if (left_out != 0) {
    access::AuditEntry entry;
    entry.who.name = entry.who.id = server_;
    entry.what = "left out";
    entry.object = std::to_string(left_out) + " lines";
    entry.decision = {true, kPoolRule, "too much at once; the audit log's file has them"};
    std::string line = access::audit_line(entry, server_, now_ms);
    line.pop_back();
    add(&kinds_[1], now_ms, server_, line, &batch);
    added[1] = 1;
  }
  for (Kind& kind : kinds_) {
    if (added[&kind - kinds_.data()] == 0) continue;
    batch.writes.push_back({*kind.prefix + keys::kOpenEvents, pool::pack(kind.open)});
  }
  return batch;
}

base::Result<EventsQuery> parse_events_query(const std::vector<std::string>& words) {
  EventsQuery query;
  for (const std::string& word : words) {
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(std::min(equals + 1, word.size()));
    uint64_t number = 0;
    const bool is_number = config::read_number(value, &number);
    if (name == "kind" && (value == "pool" || value == "people")) {
      query.pool = value == "pool";
      query.people = !query.pool;
    } else if (name == "before" && is_number) {
      query.before_ms = number;
    } else if (name == "limit" && is_number && number > 0) {
      query.limit = std::min<uint64_t>(number, kLimitMax);
    } else {
      return Status(Code::kInvalid,
                    "events: say kind=pool or kind=people, before=MILLISECONDS since 1970, and "
                    "limit=NUMBER");
    }
  }
  return query;
}

base::Result<std::string> read_events(store::Store* store, const EventsQuery& query) {
  std::vector<Backwards> kinds;
  if (query.pool) kinds.emplace_back(store, query, keys::kPoolEvents);
  if (query.people) kinds.emplace_back(store, query, keys::kPeoplesEvents);
  std::string list;
  size_t count = 0;
  uint64_t last_ms = 0;
  for (;;) {
    Backwards* newest = nullptr;
    uint64_t at_ms = 0;
    for (Backwards& kind : kinds) {
      auto top = kind.top();
      if (!top.ok()) return top.status();
      if (*top == nullptr || (newest != nullptr && (*top)->at_ms <= at_ms)) continue;
      newest = &kind;
      at_ms = (*top)->at_ms;
    }
    const bool is_over = newest == nullptr;
    if (is_over || (count >= query.limit && at_ms != last_ms)) {
      return "{\"events\":[" + list +
             "],\"before\":" + (is_over ? std::string("null") : std::to_string(last_ms)) + "}";
    }
    const std::string& line = (*newest->top())->line;
    if (nlohmann::json::accept(line)) {
      list += (list.empty() ? "" : ",") + line;
      ++count;
    }
    last_ms = at_ms;
    newest->pop();
  }
}

}  // namespace tendril::scheduler

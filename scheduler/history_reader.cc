// SPDX-License-Identifier: Apache-2.0
// See history_reader.h.
#include "scheduler/history_reader.h"

#include <time.h>

#include <algorithm>

#include "base/clock.h"

namespace tendril::scheduler {

using base::Code;
using base::Status;

namespace {

constexpr size_t kPageEntries = 64, kQuestionsMax = 64, kQuestionsOfOneMax = 16;
constexpr int kCallMs = 5'000;
constexpr uint64_t kSecondNs = 1'000'000'000;
// Servers tell what they used a second later. What is a day late is in the hours only.
constexpr uint64_t kLateNs = 24 * pool::kHourNs;
// What is that close to the end of its time may have been erased.
constexpr uint64_t kThinnedNs = 2 * pool::kMinuteNs;

}  // namespace

void HistoryReader::start(store::Store* store) {
  store_ = store;
  thread_ = std::thread([this] { run(); });
}

void HistoryReader::stop() {
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void HistoryReader::ask(std::vector<std::string> words, const pool::Asker& who, Done done) {
  auto query = pool::parse_history_query(words, static_cast<int64_t>(time(nullptr)));
  if (!query.ok()) return done(query.status());
  if (!who.sees_all && who.id.empty())
    return done(Status(Code::kRefused, "history: who asks is not known (rule: role)"));
  if (!who.sees_all) query->owner_id = who.id;
  put({query.take(), who.id, std::move(done)});
}

void HistoryReader::ask_events(const std::vector<std::string>& words, const pool::Asker& who,
                               Done done) {
  auto query = parse_events_query(words);
  if (!query.ok()) return done(query.status());
  if (!who.sees_all && who.id.empty())
    return done(Status(Code::kRefused, "events: who asks is not known (rule: role)"));
  if (!who.sees_all) query->id = who.id;
  put({query.take(), who.id, std::move(done)});
}

void HistoryReader::put(Question question) {
  const Done done = question.done;
  bool is_full = false;
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    const auto own = std::count_if(questions_.begin(), questions_.end(), [&](const Question& each) {
      return each.asker == question.asker;
    });
    is_full = stopping_ || questions_.size() >= kQuestionsMax || size_t(own) >= kQuestionsOfOneMax;
    if (!is_full) questions_.push_back(std::move(question));
  }
  changed_.notify_all();
  if (is_full) {
    done(Status(Code::kExhausted,
                "history: too many ask at once; try again in some seconds, or for a shorter time"));
  }
}

void HistoryReader::run() {
  for (;;) {
    Question question;
    {
      std::unique_lock<std::mutex> hold(mutex_);
      changed_.wait(hold, [this] { return stopping_ || !questions_.empty(); });
      if (stopping_) return;
      question = std::move(questions_.front());
      questions_.pop_front();
    }
    if (const auto* const events = std::get_if<EventsQuery>(&question.query)) {
      question.done(read_events(store_, *events));
      continue;
    }
    const auto& query = std::get<pool::HistoryQuery>(question.query);
    question.done(query.lease != 0 ? answer_lease(query) : answer(query));
  }
}

Status HistoryReader::each(const std::string& prefix, std::string after,
                           const std::function<bool(const store::Entry&)>& take) {
  for (bool more = true; more;) {
    {
      const std::lock_guard<std::mutex> hold(mutex_);
      if (stopping_) return Status(Code::kClosed, "this scheduler ends");
    }
    auto page = store_->list(prefix, after, kPageEntries, base::Deadline(kCallMs));
    if (!page.ok()) return page.status();
    for (const store::Entry& entry : page->entries) {
      if (!take(entry)) return Status();
    }
    more = page->more && !page->entries.empty();
    if (more) after = page->entries.back().key;
  }
  return Status();
}

// What came after `read`, until `until_ns`; or no further than the first chunk that reaches
// `reach_ns`.
Status HistoryReader::add_tier(const std::string& tier, uint64_t until_ns, uint64_t reach_ns,
                               Read* read, pool::HistorySums* sums) {
  const Status status =
      each(tier, pool::chunk_key(tier, read->after_ns, 0xffff), [&](const store::Entry& entry) {
        const uint64_t upto_ns = pool::upto_of_key(entry.key);
        if (upto_ns > until_ns) read->has_all = true;
        // Chunks of one moment are parts of one.
        const bool is_next = upto_ns > read->after_ns && read->after_ns >= reach_ns;
        if (read->has_all || is_next) return false;
        read->after_ns = std::max(read->after_ns, upto_ns);
        pool::HistoryChunk chunk;
        // What is damaged was logged when the scheduler began.
        if (pool::unpack_chunk(entry.value, &chunk)) sums->add(chunk);
        return sums->status().ok();
      });
  return status.ok() ? sums->status() : status;
}

// Hours have no rows of single leases. Where the minutes are gone, the record that a lease left at
// its end takes their place.
Status HistoryReader::add_ended(int64_t before_s, pool::HistorySums* sums) {
  return each(pool::keys::kUsed, "", [&](const store::Entry& entry) {
    pool::UsedRecord record;
    if (pool::read_used(entry.value, &record))
      sums->add(pool::row_of(record), uint64_t(before_s) * kSecondNs);
    return sums->status().ok();
  });
}

Status HistoryReader::add_all(const pool::HistoryQuery& query, pool::HistorySums* sums) {
  const std::pair<const std::string&, uint64_t> tiers[] = {
      {pool::keys::kHours, 0},
      {pool::keys::kMinutes, pool::kMinutesKeptS},
      {pool::keys::kSeconds, pool::kSecondsKeptS}};
  const auto now_s = static_cast<int64_t>(time(nullptr));
  const auto first = size_t(pool::tier_of(query, now_s));
  const bool by_lease = std::find(query.by.begin(), query.by.end(), "lease") != query.by.end();
  const int64_t minutes_from_s = now_s - int64_t(pool::kMinutesKeptS);
  if (by_lease && query.from_s < minutes_from_s) {
    const Status status = add_ended(minutes_from_s, sums);
    if (!status.ok()) return status;
  }
  Read read{uint64_t(std::max<int64_t>(query.from_s, 1)) * kSecondNs - 1, false};
  const bool has_coarser = first > (by_lease ? 1u : 0u);
  const uint64_t kept_ns = uint64_t(now_s) * kSecondNs - tiers[first].second * kSecondNs;
  const uint64_t sure_ns = kept_ns + kThinnedNs;
  if (has_coarser && read.after_ns < sure_ns) {
    // The oldest chunks of this tier go just now.
    const Status status = add_tier(tiers[first - 1].first, UINT64_MAX, sure_ns, &read, sums);
    if (!status.ok()) return status;
  }
  for (size_t tier = first; tier < std::size(tiers) && !read.has_all; ++tier) {
    // The hours are few: all of them, however late.
    const bool are_hours = tier == size_t(pool::HistoryTier::kHours);
    const uint64_t until_ns = are_hours ? UINT64_MAX : uint64_t(query.to_s) * kSecondNs + kLateNs;
    const Status status = add_tier(tiers[tier].first, until_ns, UINT64_MAX, &read, sums);
    if (!status.ok()) return status;
  }
  if (!read.has_all) sums->set_known_until(read.after_ns);
  return Status();
}

base::Result<std::string> HistoryReader::answer(const pool::HistoryQuery& query) {
  pool::HistoryQuery whole = query;
  whole.step_s = 0;
  pool::HistorySums names(whole);
  const bool has_lines = !query.series.empty() && !query.by.empty();
  if (has_lines) {
    const Status status = add_all(query, &names);
    if (!status.ok()) return status;
  }
  pool::HistorySums sums = has_lines ? pool::HistorySums(query, names) : pool::HistorySums(query);
  const Status status = add_all(query, &sums);
  if (!status.ok()) return status;
  return sums.json();
}

base::Result<std::string> HistoryReader::answer_lease(const pool::HistoryQuery& query) {
  pool::LeaseTotals totals(query);
  Status status = each(pool::keys::kUsed, "", [&](const store::Entry& entry) {
    pool::UsedRecord record;
    if (pool::read_used(entry.value, &record)) totals.add(record);
    return true;
  });
  if (!status.ok()) return status;
  status = each(pool::keys::kHistoryMarks, "", [&](const store::Entry& entry) {
    pool::HistoryChunk marks;
    if (!pool::unpack_chunk(entry.value, &marks)) return true;
    for (const pool::HistoryRow& row : marks.rows) totals.add(row);
    return true;
  });
  if (!status.ok()) return status;
  return totals.json();
}

}  // namespace tendril::scheduler

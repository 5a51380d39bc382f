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

constexpr size_t kPageEntries = 64, kQuestionsMax = 64;
constexpr int kCallMs = 5'000;
constexpr uint64_t kSecondNs = 1'000'000'000;
// Servers tell what they used a second later. What is a day late is in the hours only.
constexpr uint64_t kLateNs = 24 * pool::kHourNs;

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
  if (!who.sees_all) query->owner_id = who.id;
  bool is_full = false;
  {
    const std::lock_guard<std::mutex> hold(mutex_);
    is_full = stopping_ || questions_.size() >= kQuestionsMax;
    if (!is_full) questions_.push_back({query.take(), done});
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
    question.done(question.query.lease != 0 ? answer_lease(question.query)
                                            : answer(question.query));
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

// What came after *after_ns, which becomes the end of the tier.
Status HistoryReader::add_tier(const std::string& tier, uint64_t until_ns, uint64_t* after_ns,
                               pool::HistorySums* sums) {
  const Status status =
      each(tier, pool::chunk_key(tier, *after_ns, 0xffff), [&](const store::Entry& entry) {
        pool::HistoryChunk chunk;
        const uint64_t upto_ns = pool::upto_of_key(entry.key);
        if (upto_ns > until_ns) {
          *after_ns = UINT64_MAX;
          return false;
        }
        *after_ns = std::max(*after_ns, upto_ns);
        // What is damaged was logged when the scheduler began.
        if (pool::unpack_chunk(entry.value, &chunk)) sums->add(chunk);
        return sums->status().ok();
      });
  return status.ok() ? sums->status() : status;
}

base::Result<std::string> HistoryReader::answer(const pool::HistoryQuery& query) {
  const auto now_s = static_cast<int64_t>(time(nullptr));
  pool::HistorySums sums(query);
  const pool::HistoryTier first = pool::tier_of(query, now_s);
  const std::string tiers[] = {pool::keys::kHours, pool::keys::kMinutes, pool::keys::kSeconds};
  uint64_t after_ns = uint64_t(std::max<int64_t>(query.from_s, 1)) * kSecondNs - 1;
  const bool by_lease = std::find(query.by.begin(), query.by.end(), "lease") != query.by.end();
  const int64_t kept_from_s = now_s - int64_t(pool::kMinutesKeptS);
  if (by_lease && query.from_s < kept_from_s) {
    const Status status = each(pool::keys::kUsed, "", [&](const store::Entry& entry) {
      pool::UsedRecord record;
      if (pool::read_used(entry.value, &record))
        sums.add(pool::row_of(record), uint64_t(kept_from_s) * kSecondNs);
      return true;
    });
    if (!status.ok()) return status;
  }
  for (size_t tier = size_t(first); tier < std::size(tiers) && after_ns != UINT64_MAX; ++tier) {
    // The hours are few: all of them, however late.
    const uint64_t until_ns = tier == size_t(pool::HistoryTier::kHours)
                                  ? UINT64_MAX
                                  : uint64_t(query.to_s) * kSecondNs + kLateNs;
    const Status status = add_tier(tiers[tier], until_ns, &after_ns, &sums);
    if (!status.ok()) return status;
  }
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

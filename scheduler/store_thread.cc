// SPDX-License-Identifier: Apache-2.0
// See store_thread.h.
#include "scheduler/store_thread.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>

#include "base/clock.h"
#include "reception/log.h"
#include "scheduler/journal.h"

namespace tendril::scheduler {

using base::Code;
using base::Deadline;
using base::Status;
using reception::Level;
using reception::log;

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr size_t kPageEntries = 500;
constexpr size_t kThinEntries = 100, kChunkEntries = 16;  // in one look

size_t bytes_of(const pool::Batch& batch) {
  size_t bytes = 0;
  for (const pool::Write& write : batch.writes)
    bytes += write.key.size() + (write.value ? write.value->size() : 0);
  return bytes;
}

// As many batches as one write takes, as one. Of two changes of a key the later one counts.
class Together {
 public:
  // False: it does not fit any more.
  bool add(const pool::Batch& batch) {
    const size_t bytes = bytes_of(batch);
    const bool fits = changes_.size() + batch.writes.size() <= store::kChangesMax &&
                      bytes_ + bytes <= store::kWriteBytesMax;
    if (!changes_.empty() && !fits) return false;
    for (const pool::Write& write : batch.writes) changes_[write.key] = write.value;
    bytes_ += bytes;
    last_ = std::max(last_, batch.number);
    ++batches_;
    return true;
  }
  std::vector<store::Change> changes() const {
    std::vector<store::Change> all;
    for (const auto& [key, value] : changes_) all.push_back({key, value, std::nullopt});
    return all;
  }
  uint64_t last() const { return last_; }
  size_t batches() const { return batches_; }

 private:
  std::map<std::string, std::optional<std::string>> changes_;
  size_t bytes_ = 0, batches_ = 0;
  uint64_t last_ = 0;
};

}  // namespace

StoreThread::StoreThread(std::unique_ptr<store::Store> store, StoreThreadOptions options,
                         StoreEvents* events)
    : store_(std::move(store)), options_(std::move(options)), events_(events) {}

StoreThread::~StoreThread() { stop(); }

void StoreThread::start() {
  thread_ = std::thread([this] { run(); });
}

void StoreThread::stop() {
  {
    std::lock_guard<std::mutex> hold(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StoreThread::write(uint64_t term, pool::Batch batch) {
  std::lock_guard<std::mutex> hold(mutex_);
  batches_.emplace_back(term, std::move(batch));
  changed_.notify_all();
}

void StoreThread::run() {
  for (;;) {
    {
      std::unique_lock<std::mutex> hold(mutex_);
      if (stopping_) break;
      const uint64_t now_ns = base::now_ns();
      uint64_t wake_ns = keep_at_ns_;
      if (!batches_.empty() && term_ != 0) wake_ns = std::min(wake_ns, retry_at_ns_);
      if (batches_.empty() && term_ != 0) wake_ns = std::min(wake_ns, thin_at_ns());
      if (wake_ns > now_ns) {
        changed_.wait_for(hold, std::chrono::nanoseconds(wake_ns - now_ns));
        if (stopping_) break;
      }
    }
    const uint64_t now_ns = base::now_ns();
    if (term_ == 0) {
      if (now_ns >= keep_at_ns_) campaign();
      continue;
    }
    if (now_ns >= keep_at_ns_ && !keep()) continue;
    if (now_ns >= retry_at_ns_ && !write_some()) continue;
    if (base::now_ns() >= thin_at_ns()) thin_some();
  }
  if (term_ == 0) return;
  write_some();
  const Status resigned = store_->resign(term_, Deadline(options_.call_ms));
  if (!resigned.ok()) note(resigned);
}

void StoreThread::campaign() {
  keep_at_ns_ = base::now_ns() + uint64_t(options_.campaign_every_ms) * kMs;
  auto answer = store_->campaign(options_.holder, options_.ttl_ms, Deadline(options_.call_ms));
  note(answer.status());
  const std::string holder = answer.ok() && answer->held && !answer->mine ? answer->holder : "";
  if (!answer.ok() || !answer->mine) {
    if (!holder_told_ || holder != holder_) events_->other(holder);
    holder_told_ = true;
    holder_ = holder;
    return;
  }
  holder_told_ = false;
  certain_until_ns_ = answer->certain_until_ns;
  keep_at_ns_ = base::now_ns() + uint64_t(options_.ttl_ms) / 3 * kMs;
  term_ = answer->term;
  StoreEvents::Records records;
  if (!recover(term_, &records)) return;
  retry_at_ns_ = 0;
  retry_ms_ = 0;
  thinnings_ = {{pool::keys::kSeconds, pool::kSecondsKeptS, options_.thin_history_every_ms, true},
                {pool::keys::kMinutes, pool::kMinutesKeptS, options_.thin_history_every_ms, true},
                {pool::keys::kUsed, options_.keep_leases_s, options_.thin_leases_every_ms, false}};
  for (Thinning& old : thinnings_)
    old.at_ns = base::now_ns() + uint64_t(options_.thin_first_ms) * kMs;
  events_->elected(term_, certain_until_ns_, std::move(records));
}

bool StoreThread::recover(uint64_t term, StoreEvents::Records* records) {
  if (!read_all(term, pool::Scheduler::kStorePrefix, "", records)) return false;
  StoreEvents::Records past;
  for (const pool::HistoryRead& read : pool::first_history_reads()) {
    if (!read_all(term, read.prefix, read.after, &past)) return false;
  }
  for (const pool::HistoryRead& read : pool::later_history_reads(past)) {
    if (!read_all(term, read.prefix, read.after, &past)) return false;
  }
  for (const std::string* const key : {&keys::kPoolEvents, &keys::kPeoplesEvents}) {
    if (!read_all(term, *key + keys::kOpenEvents, "", &past)) return false;
  }
  records->insert(records->end(), std::make_move_iterator(past.begin()),
                  std::make_move_iterator(past.end()));
  return true;
}

bool StoreThread::read_all(uint64_t term, const std::string& prefix, std::string after,
                           StoreEvents::Records* records) {
  for (bool more = true; more;) {
    auto page = store_->list(prefix, after, kPageEntries, Deadline(options_.call_ms));
    note(page.status());
    if (!page.ok()) {
      // Another may be able to read.
      const Status ignored = store_->resign(term, Deadline(options_.call_ms));
      (void)ignored;
      term_ = 0;
      return false;
    }
    for (const store::Entry& entry : page->entries) records->emplace_back(entry.key, entry.value);
    more = page->more && !page->entries.empty();
    if (more) after = page->entries.back().key;
    if (base::now_ns() < keep_at_ns_) continue;
    auto kept = store_->keep(term, Deadline(options_.call_ms));
    note(kept.status());
    if (!kept.ok() && !store::worth_repeating(kept.status())) {
      term_ = 0;
      return false;
    }
    if (kept.ok()) certain_until_ns_ = kept->certain_until_ns;
    keep_at_ns_ = base::now_ns() + uint64_t(options_.ttl_ms) / 3 * kMs;
  }
  return true;
}

bool StoreThread::keep() {
  auto kept = store_->keep(term_, Deadline(options_.call_ms));
  note(kept.status());
  const bool worth = kept.ok() || store::worth_repeating(kept.status());
  if (!worth) {
    depose(kept.status().message());
    return false;
  }
  const int again_ms = kept.ok() ? int(options_.ttl_ms) / 3 : options_.retry_first_ms;
  keep_at_ns_ = base::now_ns() + uint64_t(again_ms) * kMs;
  if (!kept.ok()) return true;
  certain_until_ns_ = kept->certain_until_ns;
  events_->certain(term_, certain_until_ns_);
  return true;
}

bool StoreThread::write_some() {
  Together together;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    while (!batches_.empty() && batches_.front().first != term_) batches_.pop_front();
    for (const auto& [term, batch] : batches_) {
      if (term != term_ || !together.add(batch)) break;
    }
  }
  if (together.batches() == 0) return true;
  const std::vector<store::Change> changes = together.changes();
  const Status written =
      changes.empty() ? Status() : store_->write(term_, changes, Deadline(options_.call_ms));
  note(written);
  if (written.code() == Code::kRefused) {
    depose(written.message());
    return false;
  }
  if (!written.ok()) {
    retry_ms_ = std::clamp(retry_ms_ * 2, options_.retry_first_ms, options_.retry_most_ms);
    retry_at_ns_ = base::now_ns() + uint64_t(retry_ms_) * kMs;
    events_->stored(term_, together.last(), written);
    return false;
  }
  {
    std::lock_guard<std::mutex> hold(mutex_);
    for (size_t i = 0; i < together.batches(); ++i) batches_.pop_front();
  }
  retry_ms_ = 0;
  retry_at_ns_ = 0;
  events_->stored(term_, together.last(), Status());
  return true;
}

uint64_t StoreThread::thin_at_ns() const {
  uint64_t at_ns = pool::kNotAgain;
  for (const Thinning& old : thinnings_) at_ns = std::min(at_ns, old.at_ns);
  return at_ns;
}

void StoreThread::thin_some() {
  const auto due = std::min_element(
      thinnings_.begin(), thinnings_.end(),
      [](const Thinning& one, const Thinning& other) { return one.at_ns < other.at_ns; });
  const Status status = thin(&*due);
  if (status.code() == Code::kRefused) return depose(status.message());
  if (!status.ok()) {
    due->after.clear();
    due->at_ns = base::now_ns() + uint64_t(options_.retry_most_ms) * kMs;
  }
  note(status);
}

Status StoreThread::thin(Thinning* old) {
  old->at_ns = pool::kNotAgain;
  if (old->kept_s == 0) return Status();
  const auto now_s = static_cast<uint64_t>(time(nullptr));
  const std::string below =
      old->in_order ? pool::expired_before(old->prefix, now_s * 1'000'000'000, old->kept_s) : "";
  auto page = store_->list(old->prefix, old->after, old->in_order ? kChunkEntries : kThinEntries,
                           Deadline(options_.call_ms));
  if (!page.ok()) return page.status();
  bool is_over = !page->more;
  std::vector<store::Change> changes;
  for (const store::Entry& entry : page->entries) {
    pool::UsedRecord record;
    old->after = entry.key;
    // A record that is damaged stays, for people.
    const bool is_old = old->in_order ? entry.key < below
                                      : pool::read_used(entry.value, &record) &&
                                            pool::is_old(record, int64_t(now_s), old->kept_s);
    if (is_old) changes.push_back({entry.key, std::nullopt, entry.revision});
    is_over = is_over || (old->in_order && !is_old);
  }
  if (is_over) old->after.clear();
  const int pause_ms = is_over ? old->every_ms : options_.thin_pause_ms;
  old->at_ns = base::now_ns() + uint64_t(pause_ms) * kMs;
  if (changes.empty()) return Status();
  const Status written = store_->write(term_, changes, Deadline(options_.call_ms));
  // It was written again meanwhile: the next look sees it.
  return written.code() == Code::kMismatch ? Status() : written;
}

void StoreThread::depose(const std::string& why) {
  const uint64_t term = term_;
  term_ = 0;
  keep_at_ns_ = base::now_ns() + uint64_t(options_.campaign_every_ms) * kMs;
  {
    std::lock_guard<std::mutex> hold(mutex_);
    batches_.clear();
  }
  events_->deposed(term, why);
}

void StoreThread::note(const Status& status) {
  if (!status.ok()) ++failures_;
  const std::string trouble = status.ok() ? std::string() : status.message();
  if (trouble == trouble_) return;
  if (trouble.empty())
    log(Level::kInfo, "the store answers again");
  else
    log(Level::kError, "%s", trouble.c_str());
  trouble_ = trouble;
}

}  // namespace tendril::scheduler

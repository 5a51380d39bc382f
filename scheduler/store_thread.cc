// SPDX-License-Identifier: Apache-2.0
// See store_thread.h.
#include "scheduler/store_thread.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/clock.h"
#include "reception/log.h"

namespace tendril::scheduler {

using base::Code;
using base::Deadline;
using base::Status;
using reception::Level;
using reception::log;

namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr size_t kPageEntries = 500;
constexpr size_t kThinEntries = 100;  // records in one look
constexpr size_t kThinHours = 24;     // of a record in one write

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
    last_ = batch.number;
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
      if (batches_.empty() && term_ != 0) wake_ns = std::min(wake_ns, thin_at_ns_);
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
    if (base::now_ns() >= thin_at_ns_) thin_some();
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
  thin_at_ns_ = base::now_ns() + uint64_t(options_.thin_pause_ms) * kMs;
  thin_after_.clear();
  thin_queue_.clear();
  thin_pass_over_ = false;
  events_->elected(term_, certain_until_ns_, std::move(records));
}

bool StoreThread::recover(uint64_t term, StoreEvents::Records* records) {
  std::string after;
  for (bool more = true; more;) {
    auto page = store_->list(pool::Scheduler::kStorePrefix, after, kPageEntries,
                             Deadline(options_.call_ms));
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

void StoreThread::thin_some() {
  thin_at_ns_ = base::now_ns() + uint64_t(options_.thin_pause_ms) * kMs;
  Status status;
  if (!thin_queue_.empty()) {
    bool done = false;
    status = thin_record(thin_queue_.front(), &done);
    // What failed is read again: it may have been written.
    if (!status.ok() || done) thin_queue_.pop_front();
  } else if (thin_pass_over_) {
    thin_pass_over_ = false;
    thin_after_.clear();
    thin_at_ns_ = base::now_ns() + uint64_t(options_.thin_every_ms) * kMs;
  } else if (options_.keep_leases_s != 0) {
    auto page =
        store_->list(pool::keys::kUsed, thin_after_, kThinEntries, Deadline(options_.call_ms));
    status = page.status();
    if (page.ok()) {
      const int64_t now_s = static_cast<int64_t>(time(nullptr));
      for (store::Entry& entry : page->entries) {
        pool::UsedRecord record;
        thin_after_ = entry.key;
        if (!pool::read_used(entry.value, &record)) continue;  // it stays, for people
        if (pool::is_old(record, now_s, options_.keep_leases_s))
          thin_queue_.push_back(std::move(entry));
      }
      thin_pass_over_ = !page->more;
    }
  } else {
    thin_at_ns_ = pool::kNotAgain;
  }
  if (status.code() == Code::kRefused) return depose(status.message());
  if (!status.ok()) {
    thin_after_.clear();
    thin_at_ns_ = base::now_ns() + uint64_t(options_.retry_most_ms) * kMs;
  }
  if (status.code() != Code::kMismatch) note(status);
}

Status StoreThread::thin_record(const store::Entry& entry, bool* done) {
  pool::UsedRecord record;
  *done = true;
  auto present = store_->get(entry.key, Deadline(options_.call_ms));
  if (present.status().code() == Code::kNotFound) return Status();
  if (!present.ok()) return present.status();
  if (!pool::read_used(present->value, &record)) return Status();
  std::vector<store::Change> changes;
  size_t hours = 0;
  const Status added = add_hours(record, &changes, &hours);
  if (!added.ok() || hours == 0) return added;
  record.hours_summed += uint32_t(hours);
  *done = record.hours_summed >= pool::hour_count(record);
  std::optional<std::string> left;
  if (!*done) left = pool::used_json(record);
  changes.push_back({entry.key, left, present->revision});
  return store_->write(term_, changes, Deadline(options_.call_ms));
}

// The next hours of the record, as many as one write takes.
Status StoreThread::add_hours(const pool::UsedRecord& record, std::vector<store::Change>* changes,
                              size_t* hours) {
  size_t bytes = 0;
  for (const pool::HourPart& part : pool::hours_of(record, record.hours_summed, kThinHours)) {
    const std::string key = pool::hour_key(part.hour, record.account, record.server);
    auto sums = store_->get(key, Deadline(options_.call_ms));
    const bool is_new = sums.status().code() == Code::kNotFound;
    if (!sums.ok() && !is_new) return sums.status();
    std::vector<pool::HourRow> rows;
    if (!is_new && !pool::read_hour(sums->value, &rows)) {
      log(Level::kError, "%s: the sums at %s are damaged; records of that hour stay as they are",
          store_->address().c_str(), key.c_str());
      return Status();
    }
    pool::add_to_hour(record, part.sums, &rows);
    std::string value = pool::hour_json(rows);
    bytes += key.size() + value.size();
    if (value.size() > store::kValueBytesMax) return Status();  // its records stay
    if (*hours != 0 && bytes > store::kWriteBytesMax / 2) return Status();
    changes->push_back({key, std::move(value), is_new ? 0 : sums->revision});
    ++*hours;
  }
  return Status();
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

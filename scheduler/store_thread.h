// SPDX-License-Identifier: Apache-2.0
// The thread that talks to the store: it campaigns for the scheduler's lock, reads the records when
// it has it, keeps it, and writes batches in their order. A write that fails is repeated with the
// same content until it succeeds or the term is over. What it hears goes to StoreEvents on its own
// thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "pool/accounting/hours.h"
#include "pool/scheduler/scheduler.h"
#include "store/store.h"

namespace tendril::scheduler {

// Called on the store's thread. They must not block for long.
class StoreEvents {
 public:
  using Records = std::vector<std::pair<std::string, std::string>>;
  virtual ~StoreEvents() = default;
  // This process schedules from now on, until that time unless `certain` is called.
  virtual void elected(uint64_t term, uint64_t certain_until_ns, Records records) = 0;
  virtual void certain(uint64_t term, uint64_t until_ns) = 0;
  // The term is over.
  virtual void deposed(uint64_t term, const std::string& why) = 0;
  // Another schedules, or nobody (an empty text).
  virtual void other(const std::string& holder) = 0;
  // The batch and all before it are in the store. Not ok: not yet.
  virtual void stored(uint64_t term, uint64_t batch, const base::Status& status) = 0;
};

struct StoreThreadOptions {
  std::string holder;       // what others read of this process
  uint32_t ttl_ms = 5'000;  // of the lock
  int campaign_every_ms = 500;
  int call_ms = 2'000;  // for one call
  int retry_first_ms = 100, retry_most_ms = 2'000;
  // Records of leases that ended longer ago become sums of hours (pool/accounting). 0: they stay.
  uint64_t keep_leases_s = 90 * 86'400;
  int thin_every_ms = 3'600'000;  // looks at all records
  int thin_pause_ms = 200;        // between two pieces of that work
};

class StoreThread {
 public:
  StoreThread(std::unique_ptr<store::Store> store, StoreThreadOptions options, StoreEvents* events);
  ~StoreThread();

  void start();
  // Resigns and ends. Batches that are not in the store yet are tried once more.
  void stop();
  // Writes it in this term. A batch of another term is dropped. Any thread.
  void write(uint64_t term, pool::Batch batch);
  std::string address() const { return store_->address(); }
  // Calls that failed so far. Any thread.
  uint64_t failures() const { return failures_.load(); }

 private:
  void run();
  void campaign();
  bool recover(uint64_t term, StoreEvents::Records* records);
  // Writes what waits, as much as one write takes. False: it must be tried again later.
  bool write_some();
  // Holds the lock. False: it is lost.
  bool keep();
  // A piece of the work on old records: reads some, or adds some hours of one to their sums.
  void thin_some();
  base::Status thin_record(const store::Entry& entry, bool* done);
  base::Status add_hours(const pool::UsedRecord& record, std::vector<store::Change>* changes,
                         size_t* hours);
  void depose(const std::string& why);
  void note(const base::Status& status);

  const std::unique_ptr<store::Store> store_;
  const StoreThreadOptions options_;
  StoreEvents* const events_;
  std::thread thread_;

  // The thread's own.
  uint64_t term_ = 0;  // 0: it does not schedule
  uint64_t keep_at_ns_ = 0, retry_at_ns_ = 0, certain_until_ns_ = 0;
  int retry_ms_ = 0;
  uint64_t thin_at_ns_ = 0;
  std::string thin_after_;  // the last record that was looked at; empty: from the first
  std::deque<store::Entry> thin_queue_;  // old ones
  bool thin_pass_over_ = false;          // the last look saw the last record
  std::string holder_;                   // the last one that was told
  bool holder_told_ = false;
  std::string trouble_;  // the last one that was logged
  std::atomic<uint64_t> failures_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<uint64_t, pool::Batch>> batches_;  // guarded by mutex_
  bool stopping_ = false;                                 // guarded by mutex_
};

}  // namespace tendril::scheduler

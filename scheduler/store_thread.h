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
#include "pool/accounting/history.h"
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
  // Records of leases that ended longer ago are erased: the history has their sums. 0: they stay.
  uint64_t keep_leases_s = 90 * 86'400;
  int thin_leases_every_ms = 3'600'000;  // looks at all records
  int thin_history_every_ms = 60'000;    // looks at the oldest chunks
  int thin_first_ms = 120'000;           // after the election, when there are new marks
  int thin_pause_ms = 200;               // between two pieces of that work
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
  // For reading, by any thread.
  store::Store* store() const { return store_.get(); }
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
  bool read_all(uint64_t term, const std::string& prefix, std::string after,
                StoreEvents::Records* records);
  // What the store keeps for a time only.
  struct Thinning {
    std::string prefix;
    uint64_t kept_s;
    int every_ms;
    bool in_order;           // of age
    std::string after = "";  // the last key that was looked at; empty: from the first
    uint64_t at_ns = 0;
  };
  // A piece of the work on what is old: reads some, and erases what is kept no longer.
  void thin_some();
  base::Status thin(Thinning* old);
  uint64_t thin_at_ns() const;
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
  std::vector<Thinning> thinnings_;
  std::string holder_;  // the last one that was told
  bool holder_told_ = false;
  std::string trouble_;  // the last one that was logged
  std::atomic<uint64_t> failures_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<uint64_t, pool::Batch>> batches_;  // guarded by mutex_
  bool stopping_ = false;                                 // guarded by mutex_
};

}  // namespace tendril::scheduler

// SPDX-License-Identifier: Apache-2.0
// Answers questions about the pool's history and its events from the store, on a thread of its own,
// page by page: a range of a month may take seconds, and decisions do not wait for it. It needs no
// term, so schedulers that stand by answer, too.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/result.h"
#include "pool/accounting/history_query.h"
#include "pool/scheduler/scheduler.h"
#include "scheduler/journal.h"
#include "store/store.h"

namespace tendril::scheduler {

class HistoryReader {
 public:
  using Done = std::function<void(base::Result<std::string> json)>;
  HistoryReader() = default;
  ~HistoryReader() { stop(); }

  // `store` must live until stop().
  void start(store::Store* store);
  // What waits is not answered.
  void stop();

  // Words as in pool/accounting/history_query.h. Who does not see all has rows of their own only.
  // `done` is called once, by the reader's thread, or by this call if the question makes no sense.
  // Any thread; does not block.
  void ask(std::vector<std::string> words, const pool::Asker& who, Done done);
  // The same for events; words as in scheduler/journal.h.
  void ask_events(const std::vector<std::string>& words, const pool::Asker& who, Done done);

 private:
  struct Question {
    std::variant<pool::HistoryQuery, EventsQuery> query;
    std::string asker;
    Done done;
  };
  // How far the history was read.
  struct Read {
    uint64_t after_ns = 0;  // all that came until then was taken
    bool has_all = false;   // what came later is not wanted
  };
  void put(Question question);
  void run();
  base::Result<std::string> answer(const pool::HistoryQuery& query);
  base::Result<std::string> answer_lease(const pool::HistoryQuery& query);
  base::Status add_all(const pool::HistoryQuery& query, pool::HistorySums* sums);
  base::Status add_ended(int64_t before_s, pool::HistorySums* sums);
  base::Status add_tier(const std::string& tier, uint64_t until_ns, uint64_t reach_ns, Read* read,
                        pool::HistorySums* sums);
  // Calls `take` with each entry, in order, until it says false.
  base::Status each(const std::string& prefix, std::string after,
                    const std::function<bool(const store::Entry&)>& take);

  store::Store* store_ = nullptr;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Question> questions_;  // guarded by mutex_
  bool stopping_ = false;           // guarded by mutex_
};

}  // namespace tendril::scheduler

// SPDX-License-Identifier: Apache-2.0
// A store in memory, for tests. Several stores may share one MemoryState, as several schedulers
// share one etcd. Time is passed in, so that a test moves it. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/store.h"

namespace tendril::store {

// What the stores of one test share.
struct MemoryState {
  std::mutex mutex;
  std::map<std::string, Entry> entries;
  uint64_t revision = 0;
  uint64_t term = 0;       // the last one that was given
  uint64_t holder_id = 0;  // 0: nobody
  std::string holder;
  uint64_t expires_ns = 0;
  uint64_t next_id = 1;
  std::function<uint64_t()> now_ns = base::now_ns;
};

class MemoryStore : public Store {
 public:
  explicit MemoryStore(std::shared_ptr<MemoryState> state);
  ~MemoryStore() override;

  std::string address() const override { return "memory:"; }
  base::Result<Entry> get(const std::string& key, const base::Deadline& deadline) override;
  base::Result<Page> list(const std::string& prefix, const std::string& after, size_t entries,
                          const base::Deadline& deadline) override;
  base::Status write(uint64_t term, const std::vector<Change>& changes,
                     const base::Deadline& deadline) override;
  base::Result<Leadership> campaign(const std::string& holder, uint32_t ttl_ms,
                                    const base::Deadline& deadline) override;
  base::Result<Leadership> keep(uint64_t term, const base::Deadline& deadline) override;
  base::Status resign(uint64_t term, const base::Deadline& deadline) override;
  base::Result<Leadership> leader(const base::Deadline& deadline) override;

 private:
  // With the state's mutex held.
  bool is_held() const;
  bool is_mine(uint64_t term) const;
  Leadership leadership() const;
  base::Status deposed(uint64_t term) const;

  const std::shared_ptr<MemoryState> state_;
  uint64_t id_ = 0;
  uint32_t ttl_ms_ = 0;
};

}  // namespace tendril::store

// SPDX-License-Identifier: Apache-2.0
// Stores for tests of their callers. FaultyStore wraps another: calls fail before or after they
// were applied, by a seed. RepeatingStore wraps one and repeats what is worth it, as a caller does.
// Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "store/store.h"

namespace tendril::store {

// Chances in per cent of each call, and what lasts until it is set otherwise.
struct Faults {
  int unavailable = 0;  // fails, not applied
  int lost = 0;         // applied, but the answer is kTimeout
  int late = 0;         // applied, after `late_ms`
  int late_ms = 20;
  bool away = false;     // every call fails
  bool full = false;     // every write fails
  bool damaged = false;  // every call says so
};

class FaultyStore : public Store {
 public:
  FaultyStore(std::unique_ptr<Store> inner, uint64_t seed);

  void set(const Faults& faults);
  uint64_t calls() const { return calls_.load(); }

  std::string address() const override { return "faulty:" + inner_->address(); }
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
  // What happens before the call, and after it.
  base::Status before(bool writes, const base::Deadline& deadline, bool* lost);
  template <typename Call>
  auto with_faults(bool writes, const base::Deadline& deadline, Call call) -> decltype(call()) {
    bool lost = false;
    const base::Status fault = before(writes, deadline, &lost);
    if (!fault.ok()) return fault;
    auto answer = call();
    if (lost) return base::Status(base::Code::kTimeout, address() + ": the answer was lost");
    return answer;
  }

  const std::unique_ptr<Store> inner_;
  std::mutex mutex_;
  std::mt19937_64 random_;  // guarded by mutex_
  Faults faults_;           // guarded by mutex_
  std::atomic<uint64_t> calls_{0};
};

class RepeatingStore : public Store {
 public:
  explicit RepeatingStore(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}

  std::string address() const override { return inner_->address(); }
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
  const std::unique_ptr<Store> inner_;
};

}  // namespace tendril::store

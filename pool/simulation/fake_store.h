// SPDX-License-Identifier: Apache-2.0
// A store as the schedulers see one: a lock with a term that expires, and writes that a term
// guards. It may be away, slow, or apply a write and lose the answer. What it acknowledged it never
// loses.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "pool/scheduler/scheduler.h"

namespace tendril::pool::simulation {

class FakeStore {
 public:
  static constexpr int64_t kLockNs = 10'000'000'000;

  enum class Outcome : uint8_t { kDone, kAway, kDeposed };
  enum class Trouble : uint8_t { kNone, kAway, kSlow, kLosesAnswers, kFull };

  void set_trouble(Trouble trouble) { trouble_ = trouble; }
  Trouble trouble() const { return trouble_; }

  // kDeposed: somebody else has the lock.
  Outcome campaign(size_t holder, int64_t now_ns, uint64_t* term);
  Outcome keep(size_t holder, uint64_t term, int64_t now_ns);
  void resign(size_t holder, uint64_t term);
  // kFull refuses writes only.
  Outcome write(size_t holder, uint64_t term, const Batch& batch, int64_t now_ns);

  // In order, from behind `after`.
  std::vector<std::pair<std::string, std::string>> read(const std::string& prefix,
                                                        const std::string& after = "") const;
  const std::map<std::string, std::string>& records() const { return records_; }
  uint64_t writes() const { return writes_; }

  // Forgets seconds of the history as scheduler/ does. Long worlds need it.
  void thin_seconds() { thins_ = true; }
  bool thins() const { return thins_; }

 private:
  void thin(const std::string& written);
  bool held(size_t holder, uint64_t term, int64_t now_ns) const {
    return holder_ == holder && term_ == term && now_ns < until_ns_;
  }

  Trouble trouble_ = Trouble::kNone;
  size_t holder_ = SIZE_MAX;
  uint64_t term_ = 0;
  bool thins_ = false;
  int64_t until_ns_ = INT64_MIN;
  std::map<std::string, std::string> records_;
  uint64_t writes_ = 0;
};

}  // namespace tendril::pool::simulation

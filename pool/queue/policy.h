// SPDX-License-Identifier: Apache-2.0
// How much of a pool each account and user may have, and who goes first. Plain data that an
// administrator writes, for one class of GPUs. Amounts are shares of GPUs in millionths. Times are
// in seconds.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace tendril::pool {

inline constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

struct QueueAccount {
  std::string name;
  uint64_t quota = 0;          // its own, though others may use what it lends
  uint64_t limit = kNoLimit;   // never more than this
  uint64_t lending_limit = 0;  // it lends at most this much of its quota
  double weight = 1;           // of its decayed usage, against other accounts
};

struct QueueClass {
  std::string name;
  int32_t priority = 0;  // the larger goes first
  uint64_t most_per_user = kNoLimit;
  bool reclaimable = true;          // may be ended while its account is over quota
  uint64_t reclaim_exempt_s = 600;  // but not sooner than this after its start
};

struct QueuePolicy {
  std::vector<QueueAccount> accounts;
  std::vector<QueueClass> classes;
  uint64_t usage_half_life_s = 7 * 86'400;
  uint64_t reclaim_grace_s = 120;
  // a request that waits longer goes before all others, oldest first
  uint64_t longest_wait_s = 86'400;
};

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// What a server knows of its pool: whether a scheduler speaks to it, which one, and what holds
// while none does. It decides who may take a lease without the pool. Pure: the time is passed in.
// daemon/pool/pool_link.h calls it under its lock.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "wire/pool.h"

namespace tendril::daemon {

class PoolStanding {
 public:
  // `addresses`: of the pool's schedulers, as the administrator wrote them. `now_ns`: the server
  // begins to serve.
  PoolStanding(std::vector<std::string> addresses, uint64_t now_ns)
      : addresses_(std::move(addresses)), began_ns_(now_ns) {}

  // The scheduler at this address answered, and it schedules.
  void heard(const std::string& address, const wire::PoolOrders& orders, uint64_t now_ns);
  // The pool says to lend nothing, also while no scheduler speaks.
  void set_drained(bool drained) { drained_ = drained; }

  bool is_silent(uint64_t now_ns) const;
  // Whether somebody may take a lease here without asking the pool. kRefused says whom to ask.
  base::Status may_lease(uint64_t now_ns) const;
  const std::string& pool() const { return pool_; }
  // Not ok: the last policy text could not be understood; what was known before holds.
  const base::Status& policy_error() const { return policy_error_; }

 private:
  std::string name() const;
  std::string all_addresses() const;
  void read_policy(const std::string& text);

  const std::vector<std::string> addresses_;
  const uint64_t began_ns_;
  uint64_t heard_ns_ = 0;  // 0: never
  std::string pool_, address_;
  uint64_t policy_revision_ = 0;
  bool refuses_alone_ = false;  // when_no_scheduler = "refuse"
  bool drained_ = false;
  base::Status policy_error_;
};

}  // namespace tendril::daemon

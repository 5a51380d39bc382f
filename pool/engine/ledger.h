// SPDX-License-Identifier: Apache-2.0
// Who holds how much, and what the policy lets them have beside that: quotas, lending, limits of
// accounts with those above them, limits of users. Sums only; room.h knows the places.
//
// All rest on one property of lacks(): when a lease ends, no request fits worse than before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "pool/policy/policy.h"

namespace tendril::pool {

// What one lease counts as.
struct Charge {
  uint32_t account = 0;
  uint32_t user_class = 0;
  uint32_t gpu_class = 0;
  uint32_t user = 0;    // Ledger::user_number
  uint64_t amount = 0;  // millionths of GPUs
};

enum class Lack : uint8_t {
  kUserClassGpus,
  kUserClassLeases,
  kAccountUserGpus,
  kAccountUserLeases,
  kAccountLimit,
  kOwnQuota,  // its class waits for its account's quota
  kLending,   // over quota, and others lend no more
  kFull,      // over quota, and all there is is held
};
struct Lacking {
  Lack what = Lack::kLending;
  uint32_t account = 0;  // whose limit it is
  bool kept = false;     // kFull: some of what is not held is kept for its account
};

class Ledger {
 public:
  struct OfUser {
    uint64_t gpus = 0, leases = 0;
  };
  struct Use {
    std::vector<uint64_t> held;     // by account and class, with the accounts below
    std::vector<uint64_t> counted;  // the same without leases that never count as inside the quota
    std::unordered_map<uint64_t, OfUser> users;
    bool only_known_users = false;  // add() leaves out users that are not in the table
  };

  // Amounts start at nothing; the caller adds what runs.
  void set_policy(const PoolPolicy& policy);
  const PoolPolicy& policy() const { return policy_; }
  void set_capacity(std::vector<uint64_t> by_class) { capacity_ = std::move(by_class); }
  uint64_t capacity(uint32_t gpu_class) const { return at(capacity_, gpu_class, 0); }
  // While a reservation of theirs holds, accounts count as inside a quota of at least this.
  void set_reserved(std::vector<Amounts> by_account) { reserved_ = std::move(by_account); }

  uint32_t user_number(const std::string& name);

  void add(Use& use, const Charge& charge) const;
  void remove(Use& use, const Charge& charge) const;
  Use& use() { return use_; }
  const Use& use() const { return use_; }
  Use nothing() const;
  // A copy that knows the users' sums of this charge only.
  Use for_user(const Use& use, const Charge& charge) const;

  // Why the charge does not fit beside what is used; nothing if it does.
  std::optional<Lacking> lacks(const Use& use, const Charge& charge) const;
  // Why it would not fit if nothing else ran, though others kept what they never lend.
  std::optional<Lacking> lacks_ever(const Charge& charge) const { return lacks(nothing(), charge); }
  bool inside_quota(const Use& use, const Charge& charge) const;
  // True if leases of this charge's account and class of use may be reclaimed for others.
  bool over_quota(const Use& use, const Charge& charge) const;

  uint64_t held(const Use& use, uint32_t account, uint32_t gpu_class) const;
  uint64_t quota(uint32_t account, uint32_t gpu_class) const;
  uint64_t limit(uint32_t account, uint32_t gpu_class) const;
  OfUser of_class_user(uint32_t user_class, uint32_t user) const;
  OfUser of_account_user(uint32_t account, uint32_t user) const;
  // What of its quota others use now.
  uint64_t lent(uint32_t account, uint32_t gpu_class) const;
  // What an account is entitled to: its quota, and its part of what nobody has as a quota, in
  // weighted GPUs.
  double entitlement(uint32_t account) const {  // 0 before the first plan
    return account < entitlement_.size() ? entitlement_[account] : 0;
  }
  void compute_entitlements();

 private:
  static uint64_t at(const Amounts& amounts, uint32_t gpu_class, uint64_t otherwise) {
    return gpu_class < amounts.size() ? amounts[gpu_class] : otherwise;
  }
  size_t cell(uint32_t account, uint32_t gpu_class) const {
    return size_t{account} * policy_.gpu_classes.size() + gpu_class;
  }
  std::optional<Lacking> lacks_for_user(const Use& use, const Charge& charge) const;
  std::optional<Lacking> lacks_lending(const Use& use, const Charge& charge) const;
  uint64_t kept(uint32_t account, uint32_t gpu_class) const;  // what it never lends

  PoolPolicy policy_;
  std::vector<uint64_t> capacity_;
  std::vector<Amounts> reserved_;
  std::vector<double> entitlement_;
  Use use_;
  std::unordered_map<std::string, uint32_t> users_;
};

}  // namespace tendril::pool

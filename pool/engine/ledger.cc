// SPDX-License-Identifier: Apache-2.0
// A parent's quota is for all accounts below it. What one of them does not use, its siblings may
// have before anybody else.
#include "pool/engine/ledger.h"

#include <algorithm>

namespace tendril::pool {

namespace {

constexpr uint64_t kOfAccount = uint64_t{1} << 63;

uint64_t class_key(uint32_t user_class, uint32_t user) { return uint64_t{user_class} << 32 | user; }
uint64_t account_key(uint32_t account, uint32_t user) {
  return kOfAccount | uint64_t{account} << 32 | user;
}

// Sums that may be unlimited.
uint64_t plus(uint64_t left, uint64_t right) {
  return left > kUnlimited - right ? kUnlimited : left + right;
}

}  // namespace

void Ledger::set_policy(const PoolPolicy& policy) {
  policy_ = policy;
  reserved_.clear();
  use_ = nothing();
}

uint32_t Ledger::user_number(const std::string& name) {
  return users_.emplace(name, static_cast<uint32_t>(users_.size())).first->second;
}

Ledger::Use Ledger::nothing() const {
  Use use;
  use.held.assign(policy_.accounts.size() * policy_.gpu_classes.size(), 0);
  use.counted = use.held;
  return use;
}

void Ledger::add(Use& use, const Charge& charge) const {
  const bool counts = policy_.user_classes[charge.user_class].over_quota != OverQuota::kOnly;
  const auto add_user = [&](uint64_t key) {
    if (use.only_known_users && use.users.find(key) == use.users.end()) return;
    OfUser& user = use.users[key];
    user.gpus += charge.amount;
    ++user.leases;
  };
  add_user(class_key(charge.user_class, charge.user));
  for (uint32_t account = charge.account; account != kNoAccount;
       account = policy_.accounts[account].parent) {
    use.held[cell(account, charge.gpu_class)] += charge.amount;
    if (counts) use.counted[cell(account, charge.gpu_class)] += charge.amount;
    add_user(account_key(account, charge.user));
  }
}

void Ledger::remove(Use& use, const Charge& charge) const {
  const bool counts = policy_.user_classes[charge.user_class].over_quota != OverQuota::kOnly;
  const auto remove_user = [&](uint64_t key) {
    const auto user = use.users.find(key);
    if (user == use.users.end()) return;
    user->second.gpus -= std::min(user->second.gpus, charge.amount);
    if (user->second.leases != 0) --user->second.leases;
    if (user->second.leases == 0 && !use.only_known_users) use.users.erase(user);
  };
  remove_user(class_key(charge.user_class, charge.user));
  for (uint32_t account = charge.account; account != kNoAccount;
       account = policy_.accounts[account].parent) {
    uint64_t& held = use.held[cell(account, charge.gpu_class)];
    uint64_t& counted = use.counted[cell(account, charge.gpu_class)];
    held -= std::min(held, charge.amount);
    if (counts) counted -= std::min(counted, charge.amount);
    remove_user(account_key(account, charge.user));
  }
}

Ledger::Use Ledger::for_user(const Use& use, const Charge& charge) const {
  Use copy;
  copy.held = use.held;
  copy.counted = use.counted;
  copy.only_known_users = true;
  const auto take = [&](uint64_t key) {
    const auto found = use.users.find(key);
    copy.users[key] = found == use.users.end() ? OfUser() : found->second;
  };
  take(class_key(charge.user_class, charge.user));
  for (uint32_t account = charge.account; account != kNoAccount;
       account = policy_.accounts[account].parent)
    take(account_key(account, charge.user));
  return copy;
}

std::optional<Lacking> Ledger::lacks(const Use& use, const Charge& charge) const {
  if (const auto lacking = lacks_for_user(use, charge)) return lacking;
  for (uint32_t account = charge.account; account != kNoAccount;
       account = policy_.accounts[account].parent)
    if (use.held[cell(account, charge.gpu_class)] + charge.amount >
        limit(account, charge.gpu_class))
      return Lacking{Lack::kAccountLimit, account, false};
  if (inside_quota(use, charge)) return std::nullopt;
  if (policy_.user_classes[charge.user_class].over_quota == OverQuota::kNever)
    return Lacking{Lack::kOwnQuota, charge.account, false};
  return lacks_lending(use, charge);
}

std::optional<Lacking> Ledger::lacks_for_user(const Use& use, const Charge& charge) const {
  const auto of = [&](uint64_t key) {
    const auto found = use.users.find(key);
    return found == use.users.end() ? OfUser() : found->second;
  };
  const PerUser& most = policy_.user_classes[charge.user_class].max_per_user;
  if (most.gpus != kUnlimited || most.leases != kUnlimited) {
    const OfUser user = of(class_key(charge.user_class, charge.user));
    if (user.gpus + charge.amount > most.gpus) return Lacking{Lack::kUserClassGpus, 0, false};
    if (user.leases + 1 > most.leases) return Lacking{Lack::kUserClassLeases, 0, false};
  }
  for (uint32_t account = charge.account; account != kNoAccount;
       account = policy_.accounts[account].parent) {
    const PerUser& here = policy_.accounts[account].max_per_user;
    if (here.gpus == kUnlimited && here.leases == kUnlimited) continue;
    const OfUser user = of(account_key(account, charge.user));
    if (user.gpus + charge.amount > here.gpus)
      return Lacking{Lack::kAccountUserGpus, account, false};
    if (user.leases + 1 > here.leases) return Lacking{Lack::kAccountUserLeases, account, false};
  }
  return std::nullopt;
}

bool Ledger::inside_quota(const Use& use, const Charge& charge) const {
  if (policy_.user_classes[charge.user_class].over_quota == OverQuota::kOnly) return false;
  return use.counted[cell(charge.account, charge.gpu_class)] + charge.amount <=
         quota(charge.account, charge.gpu_class);
}

bool Ledger::over_quota(const Use& use, const Charge& charge) const {
  if (policy_.user_classes[charge.user_class].over_quota == OverQuota::kOnly) return true;
  return use.counted[cell(charge.account, charge.gpu_class)] >
         quota(charge.account, charge.gpu_class);
}

// Beside what everybody holds, what nobody lends must stay free, with this charge added. It is
// enough if that holds inside the quota of an account above.
std::optional<Lacking> Ledger::lacks_lending(const Use& use, const Charge& charge) const {
  const size_t accounts = policy_.accounts.size();
  std::vector<uint64_t> needed(accounts), below(accounts), held_below(accounts);
  uint64_t all = 0;
  uint64_t all_held = charge.amount;
  for (size_t i = accounts; i-- > 0;) {
    const auto account = static_cast<uint32_t>(i);
    const uint64_t held = use.held[cell(account, charge.gpu_class)];
    const uint64_t direct = held - held_below[i] + (account == charge.account ? charge.amount : 0);
    needed[i] = std::max(plus(direct, below[i]), kept(account, charge.gpu_class));
    const uint32_t parent = policy_.accounts[i].parent;
    if (parent == kNoAccount) {
      all = plus(all, needed[i]);
      all_held += held;
    } else {
      below[parent] = plus(below[parent], needed[i]);
      held_below[parent] += held;
    }
  }
  const uint64_t capacity = this->capacity(charge.gpu_class);
  if (all <= capacity) return std::nullopt;
  for (uint32_t account = policy_.accounts[charge.account].parent; account != kNoAccount;
       account = policy_.accounts[account].parent)
    if (needed[account] <= quota(account, charge.gpu_class)) return std::nullopt;
  if (all_held <= capacity) return Lacking{Lack::kLending, charge.account, false};
  return Lacking{Lack::kFull, charge.account, all > all_held};
}

uint64_t Ledger::held(const Use& use, uint32_t account, uint32_t gpu_class) const {
  if (account >= policy_.accounts.size() || gpu_class >= policy_.gpu_classes.size()) return 0;
  return use.held[cell(account, gpu_class)];
}

uint64_t Ledger::quota(uint32_t account, uint32_t gpu_class) const {
  const uint64_t quota = at(policy_.accounts[account].quota, gpu_class, 0);
  if (account >= reserved_.size()) return quota;
  return std::max(quota, at(reserved_[account], gpu_class, 0));
}

uint64_t Ledger::limit(uint32_t account, uint32_t gpu_class) const {
  return at(policy_.accounts[account].limit, gpu_class, kUnlimited);
}

uint64_t Ledger::kept(uint32_t account, uint32_t gpu_class) const {
  const uint64_t quota = at(policy_.accounts[account].quota, gpu_class, 0);
  const uint64_t lends = at(policy_.accounts[account].lending_limit, gpu_class, kUnlimited);
  return quota - std::min(quota, lends);
}

Ledger::OfUser Ledger::of_class_user(uint32_t user_class, uint32_t user) const {
  const auto found = use_.users.find(class_key(user_class, user));
  return found == use_.users.end() ? OfUser() : found->second;
}

Ledger::OfUser Ledger::of_account_user(uint32_t account, uint32_t user) const {
  const auto found = use_.users.find(account_key(account, user));
  return found == use_.users.end() ? OfUser() : found->second;
}

uint64_t Ledger::lent(uint32_t account, uint32_t gpu_class) const {
  const uint64_t quota = this->quota(account, gpu_class);
  const uint64_t held = use_.held[cell(account, gpu_class)];
  uint64_t over = 0;  // what all accounts together hold over their quotas
  uint64_t idle = 0;  // what all together do not use of theirs
  for (uint32_t other = 0; other < policy_.accounts.size(); ++other) {
    if (policy_.accounts[other].parent != policy_.accounts[account].parent) continue;
    const uint64_t of_other = use_.held[cell(other, gpu_class)];
    const uint64_t its = this->quota(other, gpu_class);
    (of_other > its ? over : idle) += of_other > its ? of_other - its : its - of_other;
  }
  if (held >= quota || idle == 0) return 0;
  const double part = static_cast<double>(quota - held) / static_cast<double>(idle);
  return static_cast<uint64_t>(part * static_cast<double>(std::min(over, idle)));
}

void Ledger::compute_entitlements() {
  const size_t accounts = policy_.accounts.size();
  entitlement_.assign(accounts, 0);
  for (uint32_t gpu_class = 0; gpu_class < policy_.gpu_classes.size(); ++gpu_class) {
    // Of what their parent is entitled to, the children have their quotas and divide the rest.
    std::vector<double> of(accounts), quotas(accounts + 1), weights(accounts + 1);
    const auto parent = [&](size_t i) {
      const uint32_t above = policy_.accounts[i].parent;
      return above == kNoAccount ? accounts : above;
    };
    for (size_t i = 0; i < accounts; ++i) {
      quotas[parent(i)] += static_cast<double>(at(policy_.accounts[i].quota, gpu_class, 0));
      weights[parent(i)] += std::max(policy_.accounts[i].over_quota_weight, 1e-6);
    }
    for (size_t i = 0; i < accounts; ++i) {
      const size_t above = parent(i);
      const double all = above == accounts ? static_cast<double>(capacity(gpu_class)) : of[above];
      const double own = static_cast<double>(at(policy_.accounts[i].quota, gpu_class, 0));
      const double weight = std::max(policy_.accounts[i].over_quota_weight, 1e-6);
      const double rest = all - quotas[above];
      of[i] = rest >= 0 ? own + rest * weight / weights[above]
                        : (quotas[above] > 0 ? all * own / quotas[above] : 0);
      entitlement_[i] += of[i] * policy_.gpu_classes[gpu_class].usage_weight;
    }
  }
}

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// See assign.h.
#include "pool/policy/assign.h"

#include <algorithm>

#include "base/text.h"
#include "pool/filter/nearest.h"

namespace tendril::pool {
namespace {

using base::Code;
using base::Status;

std::string described(const UserFacts& who) {
  return base::printable(who.user, 64) +
         (who.groups.empty() ? " (in no group)"
                             : " (groups " + base::printable(joined(who.groups), 200) + ")");
}

template <typename Records>
std::vector<std::string> names_of(const Records& records) {
  std::vector<std::string> names;
  for (const auto& record : records) names.push_back(record.name);
  return names;
}

// What the user could have named: accounts, or classes of the account that was named.
void add_once(const std::string& name, std::vector<std::string>* names) {
  if (std::find(names->begin(), names->end(), name) == names->end()) names->push_back(name);
}

}  // namespace

UserFacts in_groups(const PoolPolicy& policy, UserFacts who) {
  for (const auto& [group, users] : policy.groups) {
    if (std::find(users.begin(), users.end(), who.user) != users.end())
      add_once(group, &who.groups);
  }
  return who;
}

base::Result<Assigned> assign(const PoolPolicy& policy, const UserFacts& proven,
                              const std::string& account, const std::string& user_class) {
  const UserFacts who = in_groups(policy, proven);
  const std::optional<uint32_t> wanted_account = policy.account(account);
  const std::optional<uint32_t> wanted_class = policy.user_class(user_class);
  if (!account.empty() && !wanted_account) {
    return Status(Code::kInvalid, "the pool has no account '" + base::printable(account, 64) + "'" +
                                      did_you_mean(account, names_of(policy.accounts)));
  }
  if (!user_class.empty() && !wanted_class) {
    return Status(Code::kInvalid, "the pool has no class '" + base::printable(user_class, 64) +
                                      "'; there are " + joined(names_of(policy.user_classes)) +
                                      did_you_mean(user_class, names_of(policy.user_classes)));
  }
  std::vector<std::string> accounts, classes;
  for (size_t i = 0; i < policy.assignments.size(); ++i) {
    const Assignment& one = policy.assignments[i];
    if (!one.match.matches(who)) continue;
    add_once(policy.accounts[one.account].name, &accounts);
    if (wanted_account && *wanted_account != one.account) continue;
    for (const uint32_t number : one.user_classes)
      add_once(policy.user_classes[number].name, &classes);
    const bool has_class =
        !wanted_class || std::find(one.user_classes.begin(), one.user_classes.end(),
                                   *wanted_class) != one.user_classes.end();
    if (has_class) {
      return Assigned{static_cast<uint32_t>(i), one.account,
                      wanted_class ? *wanted_class : one.user_classes.front()};
    }
  }
  if (accounts.empty()) {
    return Status(Code::kRefused, "no assignment of the pool's policy matches " + described(who) +
                                      "; ask its administrator (rule: assignment)");
  }
  if (classes.empty()) {
    return Status(Code::kRefused, described(who) + " may not use the account '" + account +
                                      "', only " + joined(accounts) + " (rule: assignment)");
  }
  return Status(Code::kRefused, described(who) + " may not use the class '" + user_class + "'" +
                                    (account.empty() ? "" : " in the account '" + account + "'") +
                                    ", only " + joined(classes) + " (rule: assignment)");
}

std::optional<uint32_t> class_of(const PoolPolicy& policy, const GpuFacts& gpu) {
  for (size_t i = 0; i < policy.gpu_classes.size(); ++i) {
    if (policy.gpu_classes[i].match.matches(gpu)) return static_cast<uint32_t>(i);
  }
  return std::nullopt;
}

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// See policy.h.
#include "access/policy.h"

namespace tendril::access {
namespace {

template <typename Value>
void apply(const LimitRules::Rule<Value>& rule, std::optional<Value>* limit) {
  if (rule.given) *limit = rule.value;
}

void apply(const LimitRules& rules, Limits* limits) {
  apply(rules.share_millionths, &limits->share_millionths);
  apply(rules.leases, &limits->leases);
  apply(rules.sessions, &limits->sessions);
  apply(rules.priority, &limits->priority);
  apply(rules.capped, &limits->capped);
  apply(rules.rdma, &limits->rdma);
  apply(rules.longest_s, &limits->longest_s);
  apply(rules.unattached_s, &limits->unattached_s);
  apply(rules.idle_s, &limits->idle_s);
}

}  // namespace

const char* encrypt_name(Encrypt encrypt) {
  switch (encrypt) {
    case Encrypt::kUntrusted:
      return "untrusted";
    case Encrypt::kAlways:
      return "always";
    case Encrypt::kNever:
      return "never";
  }
  return "untrusted";
}

Limits Policy::limits_of(const Principal& who) const {
  Limits limits;
  if (who.proof == Proof::kCertificate && who.role == Role::kUser) limits.priority = 0;
  apply(everybody, &limits);
  const auto role = roles.find(who.role);
  if (role != roles.end()) apply(role->second, &limits);
  const auto user = users.find(who.name);
  if (user != users.end()) apply(user->second, &limits);
  return limits;
}

}  // namespace tendril::access

// SPDX-License-Identifier: Apache-2.0
// See source.h.
#include "dashboard/source.h"

#include "access/decide.h"

namespace tendril::dashboard {

Rights rights_of(const access::Principal& who, bool pool) {
  using access::Action;
  Rights rights;
  rights.sees = access::decide(who, Action::kList).allowed;
  if (!rights.sees) return rights;
  const bool named =
      who.proof == access::Proof::kCertificate || who.proof == access::Proof::kUnixUser;
  const bool everybody = pool && !named;
  rights.sees_all = everybody || access::may_see(who, std::string());
  rights.manages = everybody || access::decide(who, Action::kRelease).allowed;
  rights.holds = access::decide(who, Action::kLease).allowed;
  rights.operates = pool && access::decide(who, Action::kOperatePool).allowed;
  rights.rules = pool && access::decide(who, Action::kRulePool).allowed;
  return rights;
}

}  // namespace tendril::dashboard

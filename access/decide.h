// SPDX-License-Identifier: Apache-2.0
// What a principal may do: who, what, whose, with which limits. The answer names the rule. Pure
// functions; the daemon asks them before it acts and writes the answers to the audit log.
#pragma once

#include <cstdint>
#include <string>

#include "access/policy.h"
#include "access/principal.h"
#include "base/result.h"
#include "wire/control.h"

namespace tendril::access {

enum class Action : uint8_t {
  kList,     // GPUs and leases; others' leases without names unless may_see
  kLease,    // take slices, also by attaching without a lease
  kAttach,   // on a lease that exists
  kRelease,  // end a lease
  kChange,   // new terms for a lease
  kInvite,   // give out identities
  kRevoke,   // take them back
  kIssued,   // who has which
  kReload,
  // Of a pool's scheduler:
  kReport,       // lend GPUs to it
  kOperatePool,  // take servers out and back, label them
  kRulePool,     // change its policy, forget servers
};
const char* action_name(Action action);

struct Decision {
  bool allowed = false;
  std::string rule;  // "owner", "operator", "limit-leases"
  std::string text;  // of a refusal: what was refused, why, and what to do; ends with the rule
  base::Status status() const {
    return allowed ? base::Status() : base::Status(base::Code::kRefused, text);
  }
};

// `owner`: the id of the principal that owns the lease, for kAttach, kRelease and kChange.
Decision decide(const Principal& who, Action action, const std::string& owner = std::string());
// Whether lists show this principal the names behind a lease.
bool may_see(const Principal& who, const std::string& owner);

// What a principal has now, this lease not included.
struct Usage {
  uint64_t share_millionths = 0;  // of all its slices
  uint32_t leases = 0, sessions = 0;
};

// `limits` hold for this principal: Policy::limits_of. The leases' own terms: capped_by_policy.
Decision check_lease(const Limits& limits, const Usage& has, uint64_t share_millionths,
                     int32_t priority);
Decision check_session(const Limits& limits, const Usage& has);
// New terms for one lease. `share_millionths`: of all its slices then; 0: they stay.
Decision check_change(const Limits& limits, const Usage& others, const wire::ChangeRequest& request,
                      uint64_t share_millionths);
// The terms that a lease is granted with: limits may cap it.
wire::LeaseTerms granted_terms(const Limits& limits, const wire::LeaseTerms& asked);

// The life of a lease, for the limits on time.
struct LeaseLife {
  uint64_t began_ns = 0;
  uint64_t attached_ns = 0;  // when a session was last on it; 0: never
  uint64_t worked_ns = 0;    // when the GPU last worked for it; 0: never
  uint32_t sessions = 0;     // now
};
struct Ending {
  bool due = false;
  std::string rule, text;
};
// Whether the lease's time is over, and by which rule.
Ending check_life(const Limits& limits, const LeaseLife& life, uint64_t now_ns);

}  // namespace tendril::access

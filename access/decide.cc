// SPDX-License-Identifier: Apache-2.0
// See decide.h.
#include "access/decide.h"

#include "base/text.h"
#include "config/quantity.h"

namespace tendril::access {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000u;

Decision allow(const char* rule) { return {true, rule, std::string()}; }

Decision refuse(const char* rule, const std::string& why) {
  return {false, rule, why + " (rule: " + rule + ")"};
}

bool manages_leases(Role role) { return role == Role::kAdmin || role == Role::kOperator; }
bool holds_leases(Role role) { return role == Role::kUser || manages_leases(role); }

Decision refuse_nobody(Action action) {
  return refuse("identity",
                base::format("this server must know who you are before you may %s; give it the "
                             "token, or join it with 'tendril join', or use the same host's unix "
                             "socket",
                             action_name(action)));
}

// Where users have names, roles count. Where one secret is all that anybody knows, or where nobody
// proves anything, it gives the right to everything but identities.
Decision decide_of_pool(const Principal& who, Action action) {
  if (who.role == Role::kAdmin) return allow("admin");
  if (who.proof == Proof::kToken || (who.proof == Proof::kNone && who.role == Role::kUser))
    return allow("secret");
  const bool report = action == Action::kReport;
  if (report && who.role == Role::kServer) return allow("server");
  if (action == Action::kOperatePool && who.role == Role::kOperator) return allow("operator");
  const char* const wanted = report ? "server" : action == Action::kRulePool ? "admin" : "operator";
  return refuse(wanted, base::format("only the role %s may %s; you are %s, with the role %s",
                                     wanted, action_name(action),
                                     base::printable(who.name, 64).c_str(), role_name(who.role)));
}

Decision decide_owned(const Principal& who, Action action, const std::string& owner) {
  if (manages_leases(who.role)) return allow(role_name(who.role));
  if (holds_leases(who.role) && !owner.empty() && who.id == owner) return allow("owner");
  return refuse("owner-or-operator",
                base::format("this lease is not yours: only its owner, an operator or an "
                             "administrator may %s it; you are %s, with the role %s",
                             action_name(action), base::printable(who.name, 64).c_str(),
                             role_name(who.role)));
}

std::string gpus(uint64_t millionths) {
  return base::format("%.6g", static_cast<double>(millionths) / config::kWholeGpu);
}

Decision check_shares(const Limits& limits, uint64_t has, uint64_t more) {
  if (!limits.share_millionths) return allow("limit-shares");
  const uint64_t most = *limits.share_millionths;
  if (more <= most && has <= most - more) return allow("limit-shares");
  return refuse("limit-shares",
                base::format("you may hold %s GPUs in all on this server; you hold %s and ask for "
                             "%s more. End a lease, or ask for less",
                             gpus(most).c_str(), gpus(has).c_str(), gpus(more).c_str()));
}

Decision check_priority(const Limits& limits, int32_t priority) {
  if (!limits.priority || priority <= *limits.priority) return allow("limit-priority");
  return refuse("limit-priority",
                base::format("your leases may have a priority of at most %d on this server; you "
                             "ask for %d",
                             *limits.priority, priority));
}

std::string duration(uint64_t seconds) {
  if (seconds % 3600 == 0) return base::format("%llu h", (unsigned long long)(seconds / 3600));
  if (seconds % 60 == 0) return base::format("%llu min", (unsigned long long)(seconds / 60));
  return base::format("%llu s", (unsigned long long)seconds);
}

bool is_over(const std::optional<uint64_t>& limit_s, uint64_t since_ns, uint64_t now_ns) {
  return limit_s && now_ns > since_ns && (now_ns - since_ns) / kSecondNs >= *limit_s;
}

}  // namespace

const char* action_name(Action action) {
  switch (action) {
    case Action::kList:
      return "list";
    case Action::kLease:
      return "lease";
    case Action::kAttach:
      return "attach";
    case Action::kRelease:
      return "release";
    case Action::kChange:
      return "change";
    case Action::kInvite:
      return "invite";
    case Action::kRevoke:
      return "revoke";
    case Action::kIssued:
      return "list identities";
    case Action::kReload:
      return "reload";
    case Action::kReport:
      return "lend GPUs to this pool";
    case Action::kOperatePool:
      return "operate this pool";
    case Action::kRulePool:
      return "rule this pool";
  }
  return "do this";
}

Decision decide(const Principal& who, Action action, const std::string& owner) {
  if (who.role == Role::kNone) return refuse_nobody(action);
  switch (action) {
    case Action::kList:
      return allow(role_name(who.role));
    case Action::kLease:
      if (holds_leases(who.role)) return allow(role_name(who.role));
      return refuse("role", base::format("the role %s may not hold leases; take an identity with "
                                         "the role user",
                                         role_name(who.role)));
    case Action::kAttach:
    case Action::kRelease:
    case Action::kChange:
      return decide_owned(who, action, owner);
    case Action::kInvite:
    case Action::kRevoke:
    case Action::kIssued:
    case Action::kReload:
      if (who.role == Role::kAdmin) return allow("admin");
      return refuse("admin",
                    base::format("only an administrator may %s; you are %s, with the role %s",
                                 action_name(action), base::printable(who.name, 64).c_str(),
                                 role_name(who.role)));
    case Action::kReport:
    case Action::kOperatePool:
    case Action::kRulePool:
      return decide_of_pool(who, action);
  }
  return refuse("unknown", "this server does not know that action");
}

bool may_see(const Principal& who, const std::string& owner) {
  switch (who.role) {
    case Role::kAdmin:
    case Role::kOperator:
    case Role::kServer:
    case Role::kMetrics:
      return true;
    case Role::kUser:
      return !owner.empty() && who.id == owner;
    case Role::kNone:
      return false;
  }
  return false;
}

Decision check_lease(const Limits& limits, const Usage& has, uint64_t share_millionths,
                     int32_t priority) {
  if (limits.leases && has.leases >= *limits.leases) {
    return refuse("limit-leases",
                  base::format("you may have %u leases at once on this server, and have them; end "
                               "one ('tendril ls', 'tendril release'), or wait",
                               *limits.leases));
  }
  const Decision urgent = check_priority(limits, priority);
  if (!urgent.allowed) return urgent;
  const Decision shares = check_shares(limits, has.share_millionths, share_millionths);
  return shares.allowed ? allow("limits") : shares;
}

Decision check_session(const Limits& limits, const Usage& has) {
  if (!limits.sessions || has.sessions < *limits.sessions) return allow("limits");
  return refuse("limit-sessions",
                base::format("you may have %u attached programs at once on this server, and have "
                             "them; end one, or wait",
                             *limits.sessions));
}

Decision check_change(const Limits& limits, const Usage& others, const wire::ChangeRequest& request,
                      uint64_t share_millionths) {
  if (request.sets_policy && limits.capped.value_or(false) &&
      request.terms.policy != wire::SharePolicy::kCap) {
    return refuse("limit-cap",
                  "your leases are capped on this server, so they cannot use idle "
                  "time of others");
  }
  if (request.sets_priority) {
    const Decision urgent = check_priority(limits, request.terms.priority);
    if (!urgent.allowed) return urgent;
  }
  if (share_millionths != 0) {
    const Decision shares = check_shares(limits, others.share_millionths, share_millionths);
    if (!shares.allowed) return shares;
  }
  return allow("limits");
}

wire::LeaseTerms granted_terms(const Limits& limits, const wire::LeaseTerms& asked) {
  wire::LeaseTerms terms = asked;
  if (limits.capped.value_or(false)) terms.policy = wire::SharePolicy::kCap;
  return terms;
}

Ending check_life(const Limits& limits, const LeaseLife& life, uint64_t now_ns) {
  if (is_over(limits.longest_s, life.began_ns, now_ns)) {
    return {true, "longest-lease",
            "it has lasted " + duration(*limits.longest_s) +
                ", the longest that its owner may "
                "have a lease"};
  }
  const uint64_t attached_ns = life.attached_ns != 0 ? life.attached_ns : life.began_ns;
  if (life.sessions == 0 && is_over(limits.unattached_s, attached_ns, now_ns)) {
    return {true, "unattached",
            "no program has been attached to it for " + duration(*limits.unattached_s)};
  }
  const uint64_t worked_ns = life.worked_ns != 0 ? life.worked_ns : life.began_ns;
  if (is_over(limits.idle_s, worked_ns, now_ns)) {
    return {true, "idle", "it gave its GPU no work for " + duration(*limits.idle_s)};
  }
  return {};
}

}  // namespace tendril::access

// SPDX-License-Identifier: Apache-2.0
// What the owners of leases hold, and how long leases may last. The rules are access/decide.h's.
// See sessions.h.
#include <algorithm>

#include "base/clock.h"
#include "config/quantity.h"
#include "daemon/log.h"
#include "daemon/sessions.h"

namespace tendril::daemon {
namespace {

constexpr uint64_t kWarnAheadS = 60;

std::string warning(const std::string& rule, uint64_t in_s) {
  const std::string end =
      "it ends in " + config::format_duration(in_s) + " by a limit of this server";
  if (rule == "idle") return "its GPU gets no work, so " + end;
  if (rule == "unattached") return "no program is attached to it, so " + end;
  return end;
}

}  // namespace

std::optional<access::Principal> Sessions::owner_of(uint64_t lease_id) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = leases_.find(lease_id);
  if (found == leases_.end() || found->second->ending) return std::nullopt;
  return found->second->owner;
}

// Counted before it is placed, so that two requests at once cannot both pass a limit.
access::Decision Sessions::count_lease(Lease* lease, uint64_t share_millionths) {
  access::Usage others;
  const auto found = usage_.find(lease->owner.id);
  if (found != usage_.end()) others = found->second;
  if (lease->counted) {
    --others.leases;
    others.share_millionths -= lease->share_counted;
  }
  access::Decision decision = access::check_lease(guard_->limits_of(lease->owner), others,
                                                  share_millionths, lease->terms.priority);
  if (!decision.allowed) return decision;
  ++others.leases;
  others.share_millionths += share_millionths;
  usage_[lease->owner.id] = others;
  lease->counted = true;
  lease->share_counted = share_millionths;
  return decision;
}

void Sessions::forget_lease(const Lease& lease) {
  const auto found = usage_.find(lease.owner.id);
  if (found == usage_.end() || !lease.counted) return;
  --found->second.leases;
  found->second.share_millionths -= lease.share_counted;
  if (found->second.leases == 0) usage_.erase(found);
}

access::Decision Sessions::count_session(const access::Principal& owner) {
  access::Usage& usage = usage_[owner.id];
  access::Decision decision = access::check_session(guard_->limits_of(owner), usage);
  usage.sessions += decision.allowed;
  return decision;
}

void Sessions::forget_session(const access::Principal& owner) {
  const auto found = usage_.find(owner.id);
  if (found != usage_.end() && found->second.sessions != 0) --found->second.sessions;
}

access::Decision Sessions::check_change(const Lease& lease, const wire::ChangeRequest& request,
                                        const access::Principal& by) {
  // Who may change anybody's lease may also go beyond its owner's limits.
  if (by.id != lease.owner.id) return {true, access::role_name(by.role), std::string()};
  access::Usage others = usage_[lease.owner.id];
  others.share_millionths -= lease.share_counted;
  return access::check_change(guard_->limits_of(lease.owner), others, request,
                              uint64_t{request.share_millionths} * lease.slices.size());
}

void Sessions::look_at_work() {
  const uint64_t now_ns = base::now_ns();
  for (const auto& [id, lease] : leases_) {
    if (!lease->sessions.empty()) lease->attached_ns = now_ns;
    lease->idle.look(now_ns, arbiter_->work_of(id), lease->sessions.size(), lease->paused);
  }
}

// A minute before the end, or sooner if the limit is short.
void Sessions::warn(Lease* lease, const access::Limits& limits, const access::LeaseLife& life,
                    uint64_t now_ns) {
  uint64_t ahead_s = kWarnAheadS;
  for (const auto& limit_s : {limits.longest_s, limits.unattached_s, limits.idle_s}) {
    if (limit_s) ahead_s = std::min(ahead_s, *limit_s / 4);
  }
  const access::Ending ending = access::check_life(limits, life, now_ns + ahead_s * 1'000'000'000);
  if (ending.due && !lease->warned && ahead_s != 0)
    tell(*lease, wire::NoticeKind::kWarning, warning(ending.rule, ahead_s), ahead_s);
  lease->warned = ending.due;
}

std::vector<Sessions::Overdue> Sessions::end_overdue() {
  const uint64_t now_ns = base::now_ns();
  std::vector<Overdue> overdue;
  for (const auto& [id, lease] : leases_) {
    const access::Limits limits = guard_->limits_of(lease->owner);
    if (lease->ending || lease->phase != wire::LeasePhase::kClaimed ||
        (!limits.longest_s && !limits.unattached_s && !limits.idle_s))
      continue;
    access::LeaseLife life;
    life.began_ns = lease->began_ns;
    life.attached_ns = lease->attached_ns;
    life.worked_ns = lease->idle.worked_ns();
    life.sessions = static_cast<uint32_t>(lease->sessions.size());
    access::Ending ending = access::check_life(limits, life, now_ns);
    if (ending.due)
      overdue.push_back({id, lease->owner, std::move(ending)});
    else
      warn(lease.get(), limits, life, now_ns);
  }
  for (const Overdue& lease : overdue) {
    const auto found = leases_.find(lease.lease_id);
    if (found != leases_.end()) end_lease(found->second.get(), lease.ending.text);
  }
  return overdue;
}

}  // namespace tendril::daemon

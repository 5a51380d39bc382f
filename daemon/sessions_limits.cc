// SPDX-License-Identifier: Apache-2.0
// What the owners of leases hold, and how long leases may last. The rules are access/decide.h's.
// See sessions.h.
#include "base/clock.h"
#include "daemon/log.h"
#include "daemon/sessions.h"

namespace tendril::daemon {

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

// What the lease's sessions have had done so far: launches, bytes, time on the GPU. Only whether it
// grows matters.
uint64_t Sessions::work_of(const Lease& lease, bool* waiting) {
  uint64_t work = 0;
  for (const auto& [tally, session_id] : lease.sessions) {
    wire::SessionRecord record;
    arbiter_->describe(session_id, &record);
    work += record.launches + record.bytes_in + record.bytes_out + record.gpu_ns;
    *waiting |= record.waiting;
  }
  return work;
}

std::vector<Sessions::Overdue> Sessions::end_overdue() {
  const uint64_t now_ns = base::now_ns();
  std::vector<Overdue> overdue;
  for (const auto& [id, lease] : leases_) {
    const access::Limits limits = guard_->limits_of(lease->owner);
    if (lease->ending || (!limits.longest_s && !limits.unattached_s && !limits.idle_s)) continue;
    if (!lease->sessions.empty()) lease->attached_ns = now_ns;
    bool waiting = false;
    const uint64_t work = limits.idle_s ? work_of(*lease, &waiting) : 0;
    if (work != lease->work_seen || waiting) lease->worked_ns = now_ns;
    lease->work_seen = work;
    access::LeaseLife life;
    life.began_ns = lease->began_ns;
    life.attached_ns = lease->attached_ns;
    life.worked_ns = lease->worked_ns;
    life.sessions = static_cast<uint32_t>(lease->sessions.size());
    access::Ending ending = access::check_life(limits, life, now_ns);
    if (ending.due) overdue.push_back({id, lease->owner, std::move(ending)});
  }
  for (const Overdue& lease : overdue) {
    const auto found = leases_.find(lease.lease_id);
    if (found != leases_.end()) end_lease(found->second.get(), lease.ending.text);
  }
  return overdue;
}

}  // namespace tendril::daemon

// SPDX-License-Identifier: Apache-2.0
// What is shown of leases and sessions. See sessions.h.
#include <time.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/clock.h"
#include "daemon/sessions.h"

namespace tendril::daemon {
namespace {

// 0: the process is gone.
uint64_t processor_ns(pid_t pid) {
  clockid_t clock = 0;
  timespec used = {};
  if (pid <= 0 || clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
    return 0;
  return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(used.tv_nsec);
}

}  // namespace

uint64_t Sessions::charged_bytes(const wire::AccountingPage& page, uint32_t slice) {
  uint64_t sum = 0;
  for (const auto& tally : page.used_bytes[slice]) sum += tally.load(std::memory_order_relaxed);
  return sum;
}

void Sessions::describe(const access::Principal* viewer, const wire::ListRequest& request,
                        wire::ListReply* reply) {
  const size_t limit = request.limit != 0 ? request.limit : SIZE_MAX;
  std::lock_guard<std::mutex> hold(mutex_);
  for (wire::GpuRecord& gpu : reply->gpus) {
    if (gpu.index >= book_.gpu_count()) continue;
    lease::describe(book_.room(gpu.index), &gpu);
    gpu.memory_used_bytes = 0;
  }
  if (!reply->gpus.empty()) {
    for (const auto& [id, lease] : leases_) add_used(*lease, reply);
  }
  if ((request.parts & wire::kListLeases) != 0) {
    auto at = leases_.upper_bound(request.leases_after);
    for (; at != leases_.end() && reply->leases.size() < limit; ++at)
      reply->leases.push_back(record_of(*at->second, viewer));
    reply->more_leases = at != leases_.end();
  }
  if ((request.parts & wire::kListSessions) != 0) {
    auto at = sessions_.upper_bound(request.sessions_after);
    for (; at != sessions_.end() && reply->sessions.size() < limit; ++at) {
      if (at->second->attached && may_see(viewer, *at->second))
        reply->sessions.push_back(record_of(*at->second));
    }
    reply->more_sessions = at != sessions_.end();
  }
  reply->now_ns = base::now_ns();
}

void Sessions::add_used(const Lease& lease, wire::ListReply* reply) {
  for (uint32_t slice = 0; slice < lease.slices.size(); ++slice) {
    const uint64_t used = wire::bytes_in_use(*lease.accounting->get(), slice);
    for (wire::GpuRecord& gpu : reply->gpus) {
      if (gpu.index == lease.slices[slice].gpu_index)
        gpu.memory_used_bytes += used - std::min(used, parked_bytes(lease, slice));
    }
  }
}

bool Sessions::may_see(const access::Principal* viewer, const Session& session) const {
  const auto lease = leases_.find(session.lease_id);
  return viewer == nullptr ||
         (lease != leases_.end() && access::may_see(*viewer, lease->second->owner.id));
}

std::string Sessions::link_of(const Session& session) {
  if (!session.started || session.answers.answers.empty()) return {};
  // Not once its connections carry all of it.
  const bool direct = session.direct && session.link != session.answers.answers.back().kind;
  if (!session.link.empty()) return session.link + (direct ? ", GPUDirect" : "");
  if (session.start_on == wire::StartOn::kFirst) return session.answers.answers.front().kind;
  if (session.liveness.peer().unix_socket) return "unix";
  const std::string& kind = session.answers.answers.back().kind;
  return session.sealed ? "sealed(" + kind + ")" : kind;
}

wire::LeaseRecord Sessions::record_of(const Lease& lease, const access::Principal* viewer) {
  wire::LeaseRecord record;
  record.lease_id = lease.id;
  if (viewer == nullptr || access::may_see(*viewer, lease.owner.id)) record.client = lease.client;
  record.slices = lease.slices;
  record.processes = static_cast<uint32_t>(lease.sessions.size());
  record.age_s = age_s(lease.began_ns);
  record.terms = lease.terms;
  record.windows = arbiter_->in_gang(lease.id);
  record.uses = arbiter_->use_of(lease.id);
  std::set<std::string> links;
  std::set<std::tuple<std::string, bool, std::string>> passages;
  for (const auto& [tally, id] : lease.sessions) {
    const auto session = sessions_.find(id);
    if (session == sessions_.end()) continue;
    links.insert(link_of(*session->second));
    for (const auto& each : session->second->connected)
      passages.emplace(each.record.server, each.record.sealed, each.record.way);
  }
  for (const auto& [server, sealed, way] : passages)
    record.passages.push_back({server, sealed, way});
  links.erase("");
  for (const std::string& link : links) record.links += (record.links.empty() ? "" : ", ") + link;
  for (uint32_t slice = 0; slice < lease.slices.size(); ++slice)
    record.memory_used_bytes.push_back(wire::bytes_in_use(*lease.accounting->get(), slice));
  const lease::Parking::Parked* const parked = parking_.find(lease.id);
  if (parked == nullptr) return record;
  record.standing = parked->standing;
  record.standing_s = age_s(parked->since_ns);
  record.parks = parked->parks;
  for (uint32_t slice = 0; slice < lease.slices.size(); ++slice)
    record.memory_parked_bytes.push_back(parked_bytes(lease, slice));
  return record;
}

wire::SessionRecord Sessions::record_of(const Session& session) {
  wire::SessionRecord record;
  record.session_id = session.id;
  record.lease_id = session.lease_id;
  record.client = session.client;
  record.link = link_of(session);
  record.worker_pid = session.worker == nullptr ? 0 : static_cast<uint32_t>(session.worker->pid());
  record.age_s = age_s(session.began_ns);
  record.processor_ns = processor_ns(static_cast<pid_t>(record.worker_pid));
  const auto lease = leases_.find(session.lease_id);
  if (lease != leases_.end()) {  // the lease may know people's names; the library knows numbers
    record.client.user = lease->second->client.user;
    record.client.host = lease->second->client.host;
  }
  for (uint32_t slice = 0; lease != leases_.end() && slice < lease->second->slices.size();
       ++slice) {
    record.memory_used_bytes.push_back(
        wire::bytes_in_use(*lease->second->accounting->get(), slice, session.tally));
  }
  arbiter_->describe(session.id, &record);
  return record;
}

view::Counters Sessions::counters() {
  std::lock_guard<std::mutex> hold(mutex_);
  view::Counters counters = counters_;
  counters.worker_processes = pool_->process_count();
  counters.parked_bytes = parking_.host_used_bytes();
  counters.park_budget_bytes = parking_.host_budget_bytes();
  for (uint32_t gpu = 0; gpu < book_.gpu_count(); ++gpu) {
    counters.gpus.push_back({book_.memory_usable(gpu), book_.memory_promised(gpu),
                             arbiter_->used_ns(gpu), arbiter_->turns_given(gpu)});
  }
  for (const auto& [id, lease] : leases_) {
    if (lease->phase != wire::LeasePhase::kHeld) counters.idle_s[id] = idle_seconds(*lease);
  }
  counters.ended = ended_unscraped_.scraped(base::now_ns());
  return counters;
}

size_t Sessions::session_count() {
  std::lock_guard<std::mutex> hold(mutex_);
  return sessions_.size();
}

}  // namespace tendril::daemon

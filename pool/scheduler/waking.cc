// SPDX-License-Identifier: Apache-2.0
// Parked leases and the limits of their users and accounts. A parked lease holds no share, so
// others of its user may have what it had. It must not pass a limit when it wakes
// (docs/decisions/0032). Asking takes up to a second, so its server is told beforehand whether it
// must. Where it wakes, and who makes room, is its server's affair.
#include <algorithm>

#include "pool/scheduler/state.h"

namespace tendril::pool {

bool Scheduler::State::is_asleep(const Job& job) const {
  return std::any_of(job.parts.begin(), job.parts.end(), [](const Part& part) {
    return part.phase != PartPhase::kEnded && part.parked && !part.may_wake;
  });
}

// What it holds when it is awake.
std::vector<PlacedSlice> Scheduler::State::awake(const Job& job) const {
  Job whole;
  whole.grown_millionths = job.grown_millionths;
  whole.grown_memory_bytes = job.grown_memory_bytes;
  whole.parts = job.parts;
  for (Part& part : whole.parts) part.parked = false;
  return placed(whole);
}

// False: a limit forbids it.
bool Scheduler::State::let_wake(Job& job, std::string* why) {
  const auto beyond = engine_.beyond_limits({{job.id, awake(job)}});
  if (!beyond.empty()) {
    *why = beyond.begin()->second;
    return false;
  }
  for (Part& part : job.parts) part.may_wake = part.parked;
  if (job.in_engine) engine_.resize(job.id, placed(job));
  tell_whether_to_ask(job, false);
  return true;
}

void Scheduler::State::tell_whether_to_ask(Job& job, bool asks) {
  for (Part& part : job.parts) {
    Member* const server = member(part.server);
    if (server == nullptr || part.phase == PartPhase::kEnded || !part.parked) continue;
    if (part.asks == asks && !part.wants_wake) continue;
    part.asks = asks;
    wire::Order told;
    told.kind = asks ? wire::OrderKind::kAskToWake : wire::OrderKind::kMayWake;
    told.pool_lease_id = job.lease_id;
    told.lease_id = part.server_lease_id;
    order(*server, std::move(told));
  }
}

// Once for each time that it asks.
void Scheduler::State::tell_to_wait(Job& job, const std::string& why) {
  bool knows = true;
  for (Part& part : job.parts) {
    if (!part.wants_wake) continue;
    knows = knows && part.was_told_to_wait;
    part.was_told_to_wait = true;
  }
  if (knows) return;
  wire::Order told;
  told.kind = wire::OrderKind::kNotice;
  told.notice = wire::NoticeKind::kPaused;
  told.text = "it stays parked until a limit allows it to go on (" + why + ")";
  event("asleep", "lease " + std::to_string(job.id), told.text);
  tell_parts(job, std::move(told));
}

// Those that may be parked, and whether they want to wake: since when, else kNotAgain.
std::vector<std::pair<uint64_t, Job*>> Scheduler::State::sleepers() {
  std::vector<std::pair<uint64_t, Job*>> found;
  for (auto at = asleep_.begin(); at != asleep_.end();) {
    const auto job = jobs_.find(*at);
    if (job == jobs_.end() || !is_asleep(job->second)) {
      at = asleep_.erase(at);
      continue;
    }
    ++at;
    if (job->second.stage != Stage::kGranted) continue;
    uint64_t since_ns = kNotAgain;
    for (const Part& part : job->second.parts)
      if (part.wants_wake) since_ns = std::min(since_ns, part.wants_since_ns);
    found.emplace_back(since_ns, &job->second);
  }
  return found;
}

// Before anything new starts, in the order in which they asked.
void Scheduler::State::wake_sleepers() {
  std::vector<std::pair<uint64_t, Job*>> all = sleepers();
  std::sort(all.begin(), all.end(), [](const auto& one, const auto& other) {
    return std::tie(one.first, one.second->id) < std::tie(other.first, other.second->id);
  });
  for (const auto& [since_ns, job] : all) {
    std::string why;
    if (since_ns != kNotAgain && !let_wake(*job, &why)) tell_to_wait(*job, why);
  }
}

// When all that starts now is counted.
void Scheduler::State::tell_sleepers() {
  std::vector<EngineGrowth> growths;
  std::vector<Job*> sleeping;
  askers_ = 0;
  for (const auto& [since_ns, job] : sleepers()) {
    if (since_ns != kNotAgain) {
      ++askers_;
      continue;
    }
    sleeping.push_back(job);
    growths.push_back({job->id, awake(*job)});
  }
  const std::map<uint64_t, std::string> beyond = engine_.beyond_limits(growths);
  askers_ += beyond.size();
  for (Job* job : sleeping) tell_whether_to_ask(*job, beyond.count(job->id) != 0);
}

}  // namespace tendril::pool

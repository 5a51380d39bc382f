// SPDX-License-Identifier: Apache-2.0
// What the scheduler counts, for metrics: servers, GPUs, the queue, leases, accounts, and sums
// since the term began. One JSON object; README.md has the keys, which are a contract.
#include <algorithm>

#include "pool/scheduler/state.h"

namespace tendril::pool {

void Scheduler::State::count_grant(const Job& job) {
  const uint64_t waited_ns = uint64_t(std::max<int64_t>(0, job.granted_ns - job.submitted_ns));
  ++totals_.granted;
  Totals::Waits& waits = totals_.waits[job.account];
  waits.waited_ns += waited_ns;
  size_t at = 0;
  while (at < std::size(Totals::kWaits) && waited_ns > Totals::kWaits[at] * kSecond) ++at;
  ++waits.grants[at];
}

// By what a lease's sums have grown. What ran before this term was counted in that one.
void Scheduler::State::count_use(const Job& job, const Part& part, uint64_t used_ns,
                                 uint64_t idle_total_ns) {
  if (part.reported_ns == 0 && !part.from_zero) return;
  const auto grown = [](uint64_t from, uint64_t to) { return to > from ? to - from : 0; };
  Totals::Use& use = totals_.uses[job.account];
  use.used_ns += grown(part.used_ns, used_ns);
  use.idle_ns += grown(part.idle_total_ns, idle_total_ns);
}

// GPUs count once: by the state of their server, and if it is up, by what is given of them.
void Scheduler::State::describe_figures_of_servers(Json& json) const {
  std::map<std::string, int64_t> servers = {
      {"up", 0}, {"joining", 0}, {"silent", 0}, {"draining", 0}};
  std::map<std::pair<std::string, std::string>, int64_t> gpus;
  for (const auto& each : members_) {
    if (each == nullptr) continue;
    const Member& server = *each;
    const bool drains = server.record.drained || server.record.facts.draining;
    const bool up = !server.silent && speaks(server) && !drains;
    const char* const state = server.silent     ? "silent"
                              : !speaks(server) ? "joining"
                              : drains          ? "draining"
                                                : "up";
    ++servers[state];
    std::vector<uint64_t> share(server.record.facts.gpus.size());
    for (uint64_t id : server.jobs) {
      const auto job = jobs_.find(id);
      if (job == jobs_.end()) continue;
      for (const Part& part : job->second.parts) {
        if (part.server != server.number || part.phase == PartPhase::kEnded) continue;
        for (const wire::SliceGrant& slice : part.slices) {
          const uint32_t gpu = position_of(server, slice.gpu_index);
          if (gpu < share.size()) share[gpu] += std::max(slice.share_millionths, 1u);
        }
      }
    }
    for (size_t i = 0; i < share.size(); ++i) {
      const auto of = i < server.facts.size() ? class_of(effective_, server.facts[i])
                                              : std::optional<uint32_t>();
      const char* const given = share[i] == 0 ? "free" : share[i] < kWholeGpu ? "shared" : "full";
      ++gpus[{of ? class_name(*of) : "", up ? given : state}];
    }
  }
  json.list("servers_up");
  for (const auto& each : members_) {
    if (each == nullptr) continue;
    json.object().text("server", each->record.name);
    json.truth("up", !each->silent && speaks(*each)).end();
  }
  json.end().object("servers");
  for (const auto& [state, count] : servers) json.whole(state.c_str(), count);
  json.end().list("gpus");
  for (const auto& [key, count] : gpus) {
    json.object().text("class", key.first).text("state", key.second).whole("gpus", count).end();
  }
  json.end();
}

void Scheduler::State::describe_figures_of_queue(Json& json) {
  struct Line {
    int64_t requests = 0, longest_s = 0;
  };
  std::map<std::pair<std::string, std::string>, Line> lines;
  const auto add = [&](const Job& job, const std::string& gpu_class, const std::string& reason) {
    Line& line = lines[{gpu_class, reason}];
    ++line.requests;
    line.longest_s = std::max(line.longest_s,
                              (int64_t(now_.monotonic_ns) - job.submitted_ns) / int64_t(kSecond));
  };
  std::set<uint64_t> known;
  for (const EngineWaiting& waiting : engine_.waiting(seconds())) {
    auto found = jobs_.find(waiting.id);
    if (found == jobs_.end()) continue;
    known.insert(waiting.id);
    add(found->second, class_name(waiting.gpu_class), wait_reason_name(waiting.reason));
  }
  for (const auto& [id, job] : jobs_) {
    if (job.stage != Stage::kWaiting || known.count(id) != 0) continue;
    const WaitReason reason = planning_ ? WaitReason::kSchedule : WaitReason::kServersDown;
    add(job, "any class", job.parked.empty() ? "" : wait_reason_name(reason));
  }
  json.list("queue");
  for (const auto& [key, line] : lines) {
    json.object().text("queue", key.first).text("reason", key.second);
    json.whole("requests", line.requests).whole("longest_wait_s", line.longest_s).end();
  }
  json.end();
}

void Scheduler::State::describe_figures_of_leases(Json& json) const {
  std::map<std::string, int64_t> states;
  int64_t idle = 0, paused = 0, shrunk = 0, reclaimed = 0;
  for (const auto& [id, job] : jobs_) {
    if (job.stage == Stage::kWaiting) continue;
    ++states[stage_name(job)];
    bool is_idle = !job.parts.empty(), is_paused = false;
    for (const Part& part : job.parts) {
      is_idle = is_idle && part.idle_ns != wire::kIdleUnknown && part.idle_ns != 0;
      is_paused = is_paused || part.paused;
    }
    idle += is_idle;
    paused += is_paused;
    shrunk += job.life.shrunk();
    reclaimed += job.reclaim;
  }
  json.object("leases");
  for (const char* state : {"holding", "granting", "committing", "granted", "running", "ending"}) {
    json.whole(state, states[state]);
  }
  json.end().whole("idle", idle).whole("paused", paused).whole("shrunk", shrunk);
  json.whole("reclaimed", reclaimed);
}

namespace {

void describe_waits(Json& json, const Totals::Waits& waits) {
  json.list("waits");
  for (size_t i = 0; i < std::size(waits.grants); ++i) {
    json.object();
    if (i < std::size(Totals::kWaits)) {
      json.whole("up_to_s", int64_t(Totals::kWaits[i]));
    } else {
      json.null("up_to_s");
    }
    json.whole("grants", int64_t(waits.grants[i])).end();
  }
  json.end();
}

}  // namespace

void Scheduler::State::describe_totals(Json& json) const {
  Totals::Waits all;
  for (const auto& [account, waits] : totals_.waits) {
    all.waited_ns += waits.waited_ns;
    for (size_t i = 0; i < std::size(all.grants); ++i) all.grants[i] += waits.grants[i];
  }
  json.object("totals").whole("requests", int64_t(totals_.requests));
  json.whole("refused", int64_t(totals_.refused)).whole("granted", int64_t(totals_.granted));
  json.whole("ended", int64_t(totals_.ended)).whole("waited_ns", int64_t(all.waited_ns));
  describe_waits(json, all);
  json.list("accounts");
  for (const auto& [account, waits] : totals_.waits) {
    json.object().text("account", account).whole("waited_ns", int64_t(waits.waited_ns));
    describe_waits(json, waits);
    json.end();
  }
  json.end().list("uses");
  for (const auto& [account, use] : totals_.uses) {
    json.object().text("account", account).whole("used_ns", int64_t(use.used_ns));
    json.whole("idle_ns", int64_t(use.idle_ns)).end();
  }
  json.end().end();
}

std::string Scheduler::State::figures(Now now) {
  arrive(now);
  Json json;
  std::string why;
  json.text("pool", options.pool).text("scheduler", options.scheduler);
  json.whole("term", int64_t(options.term)).truth("planning", may_plan(&why));
  json.whole("policy_revision", int64_t(policy_record.revision));
  json.whole("batches_unstored", int64_t(unstored_.size()));
  describe_figures_of_servers(json);
  describe_classes(json);
  describe_accounts(json);
  describe_figures_of_queue(json);
  describe_figures_of_leases(json);
  describe_totals(json);
  return json.take();
}

}  // namespace tendril::pool

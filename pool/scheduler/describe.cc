// SPDX-License-Identifier: Apache-2.0
// What the scheduler shows: status, queue, and a list as a server gives it. README.md has the keys,
// which are a contract. Who may not see others' names gets none.
#include <algorithm>

#include "pool/scheduler/state.h"

namespace tendril::pool {

bool Scheduler::State::may_see(const Asker& who, const Job& job) {
  return who.sees_all || (!who.id.empty() && who.id == job.who.id);
}

std::string Scheduler::State::class_name(uint32_t gpu_class) const {
  return gpu_class < effective_.gpu_classes.size() ? effective_.gpu_classes[gpu_class].name
                                                   : "any class";
}

const char* Scheduler::State::stage_name(const Job& job) {
  switch (job.stage) {
    case Stage::kWaiting:
      return job.stored ? "waiting" : "storing";
    case Stage::kHolding:
      return "holding";
    case Stage::kGranting:
      return "granting";
    case Stage::kCommitting:
      return "committing";
    case Stage::kGranted:
      break;
    case Stage::kEnding:
      return "ending";
  }
  for (const Part& part : job.parts) {
    if (part.phase < PartPhase::kClaimed) return "granted";
  }
  return "running";
}

void Scheduler::State::describe_server(Json& json, const Member& server) const {
  const wire::ServerFacts& facts = server.record.facts;
  json.object().text("name", server.record.name).text("endpoint", facts.endpoint);
  json.text("state", server.silent ? "silent" : speaks(server) ? "up" : "joining");
  if (server.last_report_ns == 0) {
    json.null("silent_s");
  } else {
    json.number("silent_s", double(now_.monotonic_ns - server.last_report_ns) / 1e9);
  }
  json.truth("draining", server.record.drained || facts.draining);
  json.text("drain_why", server.record.drained ? server.record.drain_why
                         : facts.draining      ? "the server drains"
                                               : "");
  json.text("version", facts.product_version).text("driver", facts.driver);
  json.object("labels");
  if (!server.facts.empty()) {
    for (const auto& [key, value] : server.facts[0].labels) json.text(key.c_str(), value);
  }
  json.end().list("maintenance");
  for (const MaintenanceWindow& window : server.record.maintenance) {
    json.object().whole("from_at", window.from_s).whole("to_at", window.to_s);
    json.text("why", window.why).end();
  }
  json.end().whole("leases", int64_t(server.jobs.size())).list("gpus");
  std::vector<uint64_t> share(facts.gpus.size()), memory(facts.gpus.size());
  std::vector<bool> packed(facts.gpus.size());
  for (uint64_t id : server.jobs) {
    auto found = jobs_.find(id);
    if (found == jobs_.end()) continue;
    for (const Part& part : found->second.parts) {
      if (part.server != server.number || part.phase == PartPhase::kEnded) continue;
      for (const wire::SliceGrant& slice : part.slices) {
        const uint32_t gpu = position_of(server, slice.gpu_index);
        if (gpu >= share.size()) continue;
        share[gpu] += slice.share_millionths;
        memory[gpu] += slice.memory_bytes;
        packed[gpu] = slice.packed;
      }
    }
  }
  for (size_t i = 0; i < facts.gpus.size(); ++i) {
    const auto gpu_class =
        i < server.facts.size() ? class_of(effective_, server.facts[i]) : std::optional<uint32_t>();
    json.object().whole("index", facts.gpus[i].index).text("model", facts.gpus[i].name);
    if (gpu_class) {
      json.text("class", class_name(*gpu_class));
    } else {
      json.null("class");
    }
    json.whole("memory_bytes", int64_t(facts.gpus[i].memory_usable_bytes));
    json.whole("memory_promised_bytes", int64_t(memory[i])).gpus("given", share[i]);
    json.truth("packed", packed[i]).end();
  }
  json.end().end();
}

void Scheduler::State::describe_classes(Json& json) const {
  json.list("classes");
  for (uint32_t i = 0; i < effective_.gpu_classes.size(); ++i) {
    json.object().text("name", effective_.gpu_classes[i].name).gpus("gpus", engine_.capacity(i));
    json.gpus("given", given(i)).gpus("unused", engine_.unused(i)).end();
  }
  json.end();
}

void Scheduler::State::describe_accounts(Json& json) const {
  std::map<std::string, size_t> waiting;
  for (const auto& [id, job] : jobs_) {
    if (job.stage < Stage::kGranted) ++waiting[job.account];
  }
  json.list("accounts");
  for (uint32_t i = 0; i < effective_.accounts.size(); ++i) {
    const Account& account = effective_.accounts[i];
    json.object().text("name", account.name);
    if (account.parent < effective_.accounts.size()) {
      json.text("parent", effective_.accounts[account.parent].name);
    } else {
      json.null("parent");
    }
    const auto amounts = [&](const char* key, const Amounts& of) {
      json.object(key);
      for (size_t c = 0; c < of.size() && c < effective_.gpu_classes.size(); ++c) {
        const char* name = effective_.gpu_classes[c].name.c_str();
        if (of[c] == kUnlimited) {
          json.null(name);
        } else {
          json.gpus(name, of[c]);
        }
      }
      json.end();
    };
    amounts("quota", account.quota);
    amounts("limit", account.limit);
    json.object("used");
    for (uint32_t c = 0; c < effective_.gpu_classes.size(); ++c) {
      json.gpus(effective_.gpu_classes[c].name.c_str(), engine_.used(i, c));
    }
    json.end().object("lent");
    for (uint32_t c = 0; c < effective_.gpu_classes.size(); ++c) {
      json.gpus(effective_.gpu_classes[c].name.c_str(), engine_.lent(i, c));
    }
    json.end();
    json.whole("waiting", int64_t(waiting[account.name]));
    json.gpus("fair_share_gpus", uint64_t(engine_.entitlement(i)));
    json.number("usage_gpu_s", engine_.decayed_gpu_seconds(i)).end();
  }
  json.end();
}

void Scheduler::State::describe_lease(Json& json, const Job& job, const Asker& who) const {
  const bool seen = may_see(who, job);
  json.object().whole("lease", int64_t(job.id)).whole("request", int64_t(job.id));
  json.text("state", stage_name(job)).text("owner", seen ? job.who.name : "");
  json.text("account", job.account).text("user_class", job.user_class);
  json.text("gpu_class", job.gpu_class);
  json.text("program", seen ? job.request.client.program : "");
  json.text("host", seen ? job.request.client.host : "");
  json.whole("slices", job.request.count).gpus("share", job.share_millionths());
  uint64_t idle_ns = wire::kIdleUnknown;
  bool paused = false;
  json.list("parts");
  for (const Part& part : job.parts) {
    const Member* server = member(part.server);
    json.object().text("server", server == nullptr ? "" : server->record.name).list("gpus");
    for (const wire::SliceGrant& slice : part.slices) json.whole(slice.gpu_index);
    json.end().whole("lease", int64_t(part.server_lease_id)).text("state", phase_name(part.phase));
    json.whole("processes", part.processes).end();
    idle_ns = std::min(idle_ns, part.idle_ns);
    paused = paused || part.paused;
  }
  json.end();
  json.number("age_s", double(int64_t(now_.monotonic_ns) - job.granted_ns) / 1e9);
  if (idle_ns == wire::kIdleUnknown) {
    json.null("idle_s");
  } else {
    json.number("idle_s", double(idle_ns) / 1e9);
  }
  const uint64_t wall_s = rules_of(job).max_wall_s;
  if (wall_s == 0) {
    json.null("ends_in_s");
  } else {
    const int64_t age_s = (int64_t(now_.monotonic_ns) - job.granted_ns) / int64_t(kSecond);
    json.whole("ends_in_s", std::max<int64_t>(0, int64_t(wall_s) - age_s));
  }
  json.truth("local", job.local).truth("paused", paused).truth("shrunk", job.life.shrunk());
  json.truth("reclaimed", job.reclaim).end();
}

void Scheduler::State::describe_waiting(Json& json, const Job& job, const EngineWaiting* waiting,
                                        const Asker& who) const {
  const bool seen = may_see(who, job);
  json.object().whole("request", int64_t(job.id));
  if (waiting != nullptr && job.stored) {
    json.whole("place", waiting->place).whole("of", waiting->of);
    json.text("queue", class_name(waiting->gpu_class));
  } else {
    json.null("place").null("of").null("queue");
  }
  json.text("owner", seen ? job.who.name : "").text("account", job.account);
  json.text("user_class", job.user_class);
  json.text("program", seen ? job.request.client.program : "");
  json.text("host", seen ? job.request.client.host : "");
  json.whole("slices", job.request.count).gpus("share", job.request.slice.share_millionths);
  json.whole("memory_bytes", int64_t(job.request.slice.memory_bytes));
  json.text("filter", job.request.wish.filter);
  if (waiting != nullptr) {
    json.text("reason", wait_reason_name(waiting->reason));
    json.text("numbers", numbers_text(*waiting));
  } else if (!job.parked.empty()) {
    json.text("reason",
              wait_reason_name(planning_ ? WaitReason::kSchedule : WaitReason::kServersDown));
    json.text("numbers", job.parked);
  } else {
    json.null("reason").null("numbers");
  }
  const ToldTimes times = waiting == nullptr ? ToldTimes() : times_of(*waiting);
  for (const auto& [key, at_s] :
       {std::pair("start_from_at", times.from_s), std::pair("start_to_at", times.to_s),
        std::pair("reclaimed_at", times.reclaimed_s)}) {
    if (at_s == kNever) {
      json.null(key);
    } else {
      json.whole(key, at_s);
    }
  }
  json.text("start_why", waiting == nullptr ? "" : waiting->start_why);
  json.truth("promised", waiting != nullptr && waiting->promised);
  json.whole("waited_s", (int64_t(now_.monotonic_ns) - job.submitted_ns) / int64_t(kSecond));
  json.whole("priority", job.request.terms.priority).truth("held", !job.held.empty());
  json.text("state", stage_name(job)).truth("present", job.connection != 0).end();
}

void Scheduler::State::do_status(uint64_t connection, const Asker& who, const wire::PoolCommand&) {
  Json json;
  std::string why;
  const bool plans = may_plan(&why);
  json.text("pool", options.pool).text("scheduler", options.scheduler);
  json.whole("term", int64_t(options.term)).whole("at", now_.wall_s);
  json.truth("planning", plans).text("planning_why", why);
  json.whole("policy_revision", int64_t(policy_record.revision));
  json.text("store_trouble", store_trouble_).list("servers");
  std::map<std::string, const Member*> by_name;
  for (const auto& each : members_) {
    if (each != nullptr) by_name[each->record.name] = each.get();
  }
  for (const auto& [name, server] : by_name) describe_server(json, *server);
  json.end();
  describe_classes(json);
  describe_accounts(json);
  json.list("leases");
  int64_t waiting = 0;
  for (const auto& [id, job] : jobs_) {
    if (job.stage >= Stage::kGranted) {
      describe_lease(json, job, who);
    } else {
      ++waiting;
    }
  }
  json.end().whole("waiting", waiting);
  answer_command(connection, std::move(json));
}

void Scheduler::State::do_queue(uint64_t connection, const Asker& who, const wire::PoolCommand&) {
  waiting_ = engine_.waiting(seconds());
  Json json;
  json.text("pool", options.pool).whole("at", now_.wall_s).list("waiting");
  std::set<uint64_t> listed;
  for (const EngineWaiting& waiting : waiting_) {
    auto found = jobs_.find(waiting.id);
    if (found == jobs_.end()) continue;
    listed.insert(waiting.id);
    describe_waiting(json, found->second, &waiting, who);
  }
  for (const auto& [id, job] : jobs_) {
    if (job.stage < Stage::kGranted && listed.count(id) == 0) {
      describe_waiting(json, job, nullptr, who);
    }
  }
  json.end();
  answer_command(connection, std::move(json));
}

// ---- as a server ----

// GPUs with their running numbers, and what of them is given by all leases.
void Scheduler::State::list_gpus(const GpuNumbers& numbers, const wire::ListRequest& request,
                                 wire::ListReply* reply) const {
  const uint32_t limit = std::min(request.gpu_limit, wire::kGpuPageMax);
  uint32_t next = 0;
  for (const auto& each : members_) {
    if (each == nullptr) continue;
    for (const wire::GpuRecord& gpu : each->record.facts.gpus) {
      const uint32_t number = next++;
      if (number < request.gpus_after) continue;
      if (limit != 0 && reply->gpus.size() == limit) {
        reply->more_gpus = true;
        continue;
      }
      wire::GpuRecord shown = gpu;
      shown.index = number;
      shown.name = gpu.name + " on " + each->record.name;
      reply->gpus.push_back(std::move(shown));
    }
  }
  for (const auto& [id, job] : jobs_) {
    if (job.stage < Stage::kGranted) continue;
    for (const Part& part : job.parts) {
      for (const wire::SliceGrant& slice : part.slices) {
        const auto number = numbers.find({part.server, slice.gpu_index});
        if (number == numbers.end() || number->second < request.gpus_after) continue;
        const size_t at = number->second - request.gpus_after;
        if (at >= reply->gpus.size()) continue;
        reply->gpus[at].share_used_millionths += slice.share_millionths;
        reply->gpus[at].memory_promised_bytes += slice.memory_bytes;
      }
    }
  }
}

wire::ListReply Scheduler::State::list(const wire::ListRequest& request, const Asker& who,
                                       Now now) const {
  wire::ListReply reply;
  reply.server = options.pool;
  reply.product_version = wire::product_version();
  reply.now_ns = now.monotonic_ns;
  GpuNumbers numbers;
  uint32_t next = 0;
  for (const auto& each : members_) {
    if (each == nullptr) continue;
    for (const wire::GpuRecord& gpu : each->record.facts.gpus) {
      numbers[{each->number, gpu.index}] = next++;
    }
  }
  if ((request.parts & wire::kListServer) != 0) list_gpus(numbers, request, &reply);
  const size_t limit =
      request.limit == 0 ? wire::kListPageMax : std::min(request.limit, wire::kListPageMax);
  for (auto found = jobs_.upper_bound(request.leases_after); found != jobs_.end(); ++found) {
    const Job& job = found->second;
    if ((request.parts & wire::kListLeases) == 0) break;
    if (job.stage < Stage::kGranted) continue;
    if (reply.leases.size() >= limit) {
      reply.more_leases = true;
      break;
    }
    wire::LeaseRecord record;
    record.lease_id = job.id;
    if (may_see(who, job)) {
      record.client = job.request.client;
      record.client.owner = job.who.name;
    }
    record.terms = job.request.terms;
    record.age_s =
        uint64_t(std::max<int64_t>(0, int64_t(now.monotonic_ns) - job.granted_ns)) / kSecond;
    for (const Part& part : job.parts) {
      record.processes += part.processes;
      for (wire::SliceGrant slice : part.slices) {
        const auto number = numbers.find({part.server, slice.gpu_index});
        if (number == numbers.end()) continue;
        slice.gpu_index = number->second;
        record.slices.push_back(slice);
        record.memory_used_bytes.push_back(part.memory_used_bytes /
                                           std::max<size_t>(part.slices.size(), 1));
      }
    }
    reply.leases.push_back(std::move(record));
  }
  return reply;
}

}  // namespace tendril::pool

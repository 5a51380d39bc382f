// SPDX-License-Identifier: Apache-2.0
// Servers of the pool: their reports, whether they are there, and the orders that they get. A
// report is answered at once if there are orders, else after kReportEveryMs, or sooner while
// somebody waits.
#include <algorithm>
#include <sstream>

#include "base/text.h"
#include "pool/scheduler/state.h"

namespace tendril::pool {

using base::Code;
using base::Status;

namespace {

constexpr uint64_t kSilentNs = uint64_t(wire::kServerSilentMs) * kMillisecond;
constexpr size_t kLabelsMax = 64, kServersMax = 20'000;

// What a server's facts are for placement. The rest of them changes all the time.
wire::ServerFacts lasting(wire::ServerFacts facts) {
  for (wire::GpuRecord& gpu : facts.gpus) {
    gpu.memory_used_bytes = gpu.memory_promised_bytes = 0;
    gpu.share_used_millionths = 0;
    gpu.packed = false;
    gpu.utilization_percent = gpu.temperature_c = gpu.power_mw = -1;
  }
  return facts;
}

bool equal(const wire::ServerFacts& a, const wire::ServerFacts& b) {
  ServerRecord first, second;
  first.facts = a;
  second.facts = b;
  return pack(first) == pack(second);
}

std::map<std::string, std::string> labels_of(const ServerRecord& record) {
  std::map<std::string, std::string> labels;
  for (const std::string& label : record.facts.labels) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos || labels.size() >= kLabelsMax) continue;
    labels[label.substr(0, equals)] = label.substr(equals + 1);
  }
  for (const auto& [key, value] : record.labels) labels[key] = value;
  return labels;
}

// 13020 is {13, 2}.
Version cuda_version(uint32_t number) {
  return number == 0 ? Version{} : Version{number / 1000, number % 1000 / 10};
}

std::vector<GpuFacts> gpu_facts_of(const ServerRecord& record) {
  std::vector<GpuFacts> all;
  const auto labels = labels_of(record);
  for (const wire::GpuRecord& gpu : record.facts.gpus) {
    GpuFacts facts;
    facts.model = gpu.name;
    facts.memory_bytes = gpu.memory_total_bytes;
    if (gpu.compute_capability != 0) {
      facts.compute_capability = {gpu.compute_capability / 10, gpu.compute_capability % 10};
    }
    if (!gpu.type.empty()) facts.type = gpu.type;
    facts.vendor = gpu.vendor;
    facts.opencl = version_of(gpu.opencl_version);
    std::istringstream words(gpu.extensions);
    for (std::string word; words >> word;) facts.extensions.push_back(word);
    facts.driver = version_of(record.facts.driver);
    facts.cuda = cuda_version(record.facts.driver_version);
    facts.server = record.name;
    facts.labels = labels;
    facts.transports = record.facts.transports;
    facts.index = gpu.index;
    all.push_back(std::move(facts));
  }
  return all;
}

}  // namespace

Member* Scheduler::State::find_member(const std::string& name) {
  auto found = member_by_name_.find(name);
  return found == member_by_name_.end() ? nullptr : member(found->second);
}

Member* Scheduler::State::add_member(const ServerRecord& record) {
  EngineServer what;
  what.name = record.name;
  base::Result<uint32_t> number = engine_.add_server(what);
  if (!number.ok()) return nullptr;
  if (members_.size() <= *number) members_.resize(*number + 1);
  auto& place = members_[*number];
  place = std::make_unique<Member>();
  place->number = *number;
  place->record = record;
  name_to_others(*place);
  member_by_name_[record.name] = *number;
  engine_.set_state(*number, ServerState::kSilent);
  describe_to_engine(*place);
  set_engine_maintenance(*place);
  return place.get();
}

void Scheduler::State::refuse_report(uint64_t connection, Status status) {
  effects_.to_servers.push_back({connection, std::move(status), {}});
}

// The server behind a report; null: the report was answered.
Member* Scheduler::State::speaker(uint64_t connection, const std::string& proven_name,
                                  const wire::PoolReport& report) {
  auto known = member_by_connection_.find(connection);
  if (known != member_by_connection_.end() && member(known->second) != nullptr) {
    return member(known->second);
  }
  if (report.facts.empty()) {  // it told them to somebody else: a scheduler before this one
    refuse_report(connection,
                  Status(Code::kClosed,
                         "pool " + options.pool + " has a new scheduler; connect to it again"));
    return nullptr;
  }
  const wire::ServerFacts& facts = report.facts[0];
  const std::string name = proven_name.empty() ? facts.name : proven_name;
  if (name.empty() || name.size() > wire::kPoolNameBytesMax || facts.gpus.size() > kMostGpus) {
    refuse_report(connection,
                  Status(Code::kInvalid, base::format("pool %s: a server needs a name of 1 to %zu "
                                                      "bytes and has at most %u GPUs; this one has "
                                                      "%zu",
                                                      options.pool.c_str(), wire::kPoolNameBytesMax,
                                                      kMostGpus, facts.gpus.size())));
    return nullptr;
  }
  Member* server = find_member(name);
  if (server != nullptr && server->connection != 0 && !server->silent &&
      server->record.facts.server_id != facts.server_id) {
    refuse_report(connection,
                  Status(Code::kRefused, "pool " + options.pool + ": another server, at " +
                                             base::printable(server->record.facts.endpoint) +
                                             ", reports as " + base::printable(name) +
                                             "; give one of them another name"));
    return nullptr;
  }
  if (server == nullptr) {
    if (member_by_name_.size() >= kServersMax) {
      refuse_report(connection,
                    Status(Code::kExhausted,
                           "pool " + options.pool +
                               " has as many servers as it can; `tendril pool forget SERVER` "
                               "removes one that is gone"));
      return nullptr;
    }
    ServerRecord record;
    record.name = name;
    server = add_member(record);
    if (server == nullptr) return nullptr;
  }
  return server;
}

void Scheduler::State::begin_connection(Member& server, uint64_t connection,
                                        const wire::PoolReport& report) {
  const uint64_t boot = report.boot;
  if (server.connection != 0 && server.connection != connection) {
    member_by_connection_.erase(server.connection);
    if (server.reply_due_ns != kNotAgain) {
      refuse_report(server.connection,
                    Status(Code::kClosed, "this server reports on another connection"));
    }
  }
  server.connection = connection;
  member_by_connection_[connection] = server.number;
  server.reply_due_ns = kNotAgain;
  server.joined = server.in_full = false;
  server.policy_sent = 0;
  server.peers = PeerNames::Told();
  for (auto& [id, pending] : server.orders) pending.sent = false;
  if (server.boot != boot) {
    server.told_of_earlier.clear();
    if (server.boot != 0) {
      restarted(server, report);
    } else {
      lose_parts_of_other_boots(server, boot, report);
    }
    server.boot = boot;
    if (server.ended_boot != boot) {
      server.ended_boot = boot;
      server.ended_seen = server.ended_stored = 0;
      server.ended_batches.clear();
    }
  }
}

void Scheduler::State::reported(uint64_t connection, const std::string& proven_name,
                                const wire::PoolReport& report, Now now) {
  arrive(now);
  Member* server = speaker(connection, proven_name, report);
  if (server == nullptr) return;
  if (server->connection != connection || server->boot != report.boot) {
    begin_connection(*server, connection, report);
  }
  server->last_report_ns = now_.monotonic_ns;
  if (server->silent) {
    server->silent = false;
    // Its connection may have lasted: then nothing else tells the engine.
    if (server->joined) set_engine_state(*server);
    if (server->was_joined) event("back", "server " + server->record.name, "it reports again");
  }
  if (!server->silence_armed) {
    server->silence_armed = true;
    arm(now_.monotonic_ns + kSilentNs, Timer::kSilence, server->number);
  }
  if (report.newest_term > options.term && !deposed_) {
    deposed_ = true;
    event("deposed", options.pool,
          base::format("server %s knows a scheduler of term %llu; this one has %llu",
                       server->record.name.c_str(), (unsigned long long)report.newest_term,
                       (unsigned long long)options.term));
  }
  if (!report.facts.empty()) take_facts(*server, report.facts[0]);
  take_book(*server, report);
  server->reply_due_ns = now_.monotonic_ns + uint64_t(report_every_ms()) * kMillisecond;
  bool unsent = report.more || (!server->joined && !server->in_full) || server->peers.more;
  if (server->joined) {
    for (const auto& [id, pending] : server->orders) unsent = unsent || !pending.sent;
    unsent = unsent || server->policy_sent != policy_record.revision;
  }
  if (unsent) {
    reply_now_.insert(server->number);
  } else {
    arm(server->reply_due_ns, Timer::kReply, server->number);
  }
}

uint32_t Scheduler::State::report_every_ms() const {
  constexpr size_t kServersPerMs = 2;  // at most two thousand reports a second
  const uint32_t most = std::min(options.report_ms, uint32_t(wire::kReportEveryMs));
  if (engine_.waiting_count() == 0 && askers_ == 0) return most;
  return std::min(most, std::max(options.hurried_ms, uint32_t(members_.size() / kServersPerMs)));
}

// When the first one begins to wait, what servers know is up to kReportEveryMs old.
void Scheduler::State::hurry_reports() {
  const bool waits = engine_.waiting_count() != 0;
  if (waits && !reports_hurry_ && options.hurried_ms < uint32_t(wire::kReportEveryMs)) {
    for (const auto& server : members_) {
      if (server != nullptr && server->joined) reply_now_.insert(server->number);
    }
  }
  reports_hurry_ = waits;
}

void Scheduler::State::lost(uint64_t connection, Now now) {
  arrive(now);
  auto found = member_by_connection_.find(connection);
  if (found == member_by_connection_.end()) return;
  Member* server = member(found->second);
  member_by_connection_.erase(found);
  if (server == nullptr || server->connection != connection) return;
  server->connection = 0;
  server->joined = server->in_full = false;
  server->reply_due_ns = kNotAgain;
  for (auto& [id, pending] : server->orders) pending.sent = false;
  set_engine_state(*server);
}

// ---- what a server is ----

void Scheduler::State::take_facts(Member& server, const wire::ServerFacts& facts) {
  const wire::ServerFacts kept = lasting(facts);
  const bool drains = facts.draining != server.record.facts.draining;
  if (equal(kept, server.record.facts)) return;
  wire::ServerFacts accepted = kept;
  if (accepted.gpus.size() > kMostGpus) accepted.gpus.resize(kMostGpus);
  server.record.facts = std::move(accepted);
  name_to_others(server);
  describe_to_engine(server);
  save(server);
  if (drains) {
    event(facts.draining ? "drain" : "undrain", "server " + server.record.name,
          facts.draining ? "it takes no more leases" : "it takes leases again");
    set_engine_state(server);
  }
}

void Scheduler::State::name_to_others(const Member& server) {
  const wire::ServerFacts& facts = server.record.facts;
  const bool apart = !facts.data_endpoint.empty();
  wire::PoolPeer peer{server.record.name, apart ? facts.data_endpoint : facts.endpoint,
                      facts.passage_id};
  // What one server writes must not spoil the answers to all others.
  if (peer.endpoint.size() > wire::kPeerEndpointBytesMax) peer.endpoint.clear();
  if (peer.passage_id.size() != wire::kPassageIdBytes) peer.passage_id.clear();
  peers_.set(server.number, std::move(peer));
}

void Scheduler::State::describe_to_engine(Member& server) {
  server.facts = gpu_facts_of(server.record);
  EngineServer what;
  what.name = server.record.name;
  for (size_t i = 0; i < server.record.facts.gpus.size(); ++i) {
    const wire::GpuRecord& gpu = server.record.facts.gpus[i];
    EngineGpu described;
    described.model = gpu.name;
    described.gpu_class = class_of(effective_, server.facts[i]).value_or(kNoClass);
    described.memory_usable_bytes = gpu.memory_usable_bytes;
    described.process_bytes = gpu.process_bytes;
    what.gpus.push_back(std::move(described));
  }
  const Status status = engine_.update_server(server.number, what);
  if (!status.ok()) event("server", "server " + server.record.name, status.message());
  plan_dirty_ = true;
}

void Scheduler::State::set_engine_state(Member& server) {
  ServerState state = ServerState::kOpen;
  if (server.record.drained || server.record.facts.draining) state = ServerState::kDraining;
  if (!speaks(server) || server.silent) state = ServerState::kSilent;
  engine_.set_state(server.number, state);
  plan_dirty_ = true;
}

void Scheduler::State::set_engine_maintenance(Member& server) {
  std::vector<Interval> windows;
  for (const MaintenanceWindow& window : server.record.maintenance) {
    windows.push_back(
        {seconds() + (window.from_s - now_.wall_s), seconds() + (window.to_s - now_.wall_s)});
  }
  engine_.set_maintenance(server.number, std::move(windows));
  plan_dirty_ = true;
}

void Scheduler::State::save(const Member& server) {
  write({{keys::kServer + server.record.name, pack(server.record)}});
}

// ---- whether it is there ----

void Scheduler::State::joined(Member& server) {
  server.joined = server.was_joined = true;
  set_engine_state(server);
  // It may have missed the last word, or been forgotten since.
  wire::Order told;
  told.kind = server.record.drained ? wire::OrderKind::kDrain : wire::OrderKind::kUndrain;
  order(server, std::move(told));
  enter_parked();
  bool all = true;
  for (const auto& each : members_) all = all && (each == nullptr || each->was_joined);
  // The first server of a new pool may be one of many, so only known ones end the wait.
  if (!planning_ && all && planning_due_ns_ != kNotAgain) begin_planning();
}

void Scheduler::State::silence(Member& server) {
  const uint64_t due_ns = server.last_report_ns + kSilentNs;
  if (now_.monotonic_ns < due_ns) {
    arm(due_ns, Timer::kSilence, server.number);
    return;
  }
  server.silence_armed = false;
  server.silent = true;
  event("silent", "server " + server.record.name,
        base::format("it has not reported for %d s; what it holds counts as held",
                     wire::kServerSilentMs / 1000));
  set_engine_state(server);
  history_.lost(server.record.name);
  const std::set<uint64_t> jobs = server.jobs;
  for (uint64_t id : jobs) {
    auto job = jobs_.find(id);
    if (job == jobs_.end()) continue;
    if (job->second.recovered) continue;
    if (job->second.stage == Stage::kHolding || job->second.stage == Stage::kGranting ||
        job->second.stage == Stage::kCommitting) {
      attempt_failed(job->second, server.number, "server " + server.record.name + " is silent");
    }
  }
}

// tendrild began anew: it has no lease and no hold of before.
void Scheduler::State::restarted(Member& server, const wire::PoolReport& report) {
  event("restart", "server " + server.record.name, "its tendrild started again");
  server.orders.clear();
  server.book.clear();
  remnants_gone(server.number);
  lose_parts_of_other_boots(server, 0, report);
}

// All parts; if `boot` is not 0, those that are known to be of another one. The server may have
// kept what came of them.
void Scheduler::State::lose_parts_of_other_boots(Member& server, uint64_t boot,
                                                 const wire::PoolReport& report) {
  const std::set<uint64_t> jobs = server.jobs;
  for (uint64_t id : jobs) {
    auto job = jobs_.find(id);
    if (job == jobs_.end()) continue;
    Part* part = part_of(job->second, server.number);
    if (part == nullptr || (boot != 0 && (part->boot == 0 || part->boot == boot))) continue;
    // In the new boot that number may be another lease's.
    for (auto order = server.orders.begin(); order != server.orders.end();) {
      const wire::Order& told = order->second.order;
      const bool about =
          told.pool_lease_id == job->second.lease_id && told.lease_id == part->server_lease_id;
      order = about ? server.orders.erase(order) : std::next(order);
    }
    const auto last = std::find_if(
        report.entries.begin(), report.entries.end(), [&](const wire::BookEntry& entry) {
          return entry.phase == wire::LeasePhase::kEnded && entry.boot != 0 &&
                 entry.boot == part->boot && entry.lease_id == part->server_lease_id;
        });
    const std::string why = "server " + server.record.name + " started again";
    if (last == report.entries.end()) {
      part_gone(server, job->second, *part, nullptr, why);
    } else {
      server.told_of_earlier.insert(last->lease_id);
      part_gone(server, job->second, *part, &*last, why + "; before that: " + last->why);
    }
  }
}

// An administrator says that it will not come back.
void Scheduler::State::forget(Member& server) {
  history_.lost(server.record.name);
  const std::set<uint64_t> jobs = server.jobs;
  for (uint64_t id : jobs) {
    auto job = jobs_.find(id);
    if (job == jobs_.end()) continue;
    Part* part = part_of(job->second, server.number);
    if (part != nullptr) {
      part_gone(server, job->second, *part, nullptr,
                "server " + server.record.name + " was forgotten");
    }
  }
  settle_all();
  remnants_gone(server.number);
  if (server.connection != 0) {
    member_by_connection_.erase(server.connection);
    if (server.reply_due_ns != kNotAgain) {
      refuse_report(server.connection,
                    Status(Code::kClosed,
                           "an administrator of pool " + options.pool + " forgot this server"));
    }
  }
  engine_.remove_server(server.number);
  peers_.remove(server.number);
  member_by_name_.erase(server.record.name);
  reply_now_.erase(server.number);
  members_[server.number].reset();
  plan_dirty_ = true;
}

// ---- orders ----

uint64_t Scheduler::State::order(Member& server, wire::Order order) {
  order.order_id = (options.term << 32) + ++next_order_;
  const uint64_t id = order.order_id;
  server.orders[id] = PendingOrder{std::move(order), false};
  if (server.joined && server.reply_due_ns != kNotAgain) reply_now_.insert(server.number);
  return id;
}

void Scheduler::State::drop_order(Member& server, uint64_t order_id) {
  if (order_id != 0) server.orders.erase(order_id);
}

void Scheduler::State::name_watched(const Member& server, wire::PoolOrders* orders) {
  for (auto each = watched_.begin(); each != watched_.end();) {
    const auto found = jobs_.find(each->first);
    if (found == jobs_.end() || each->second <= now_.monotonic_ns) {
      each = watched_.erase(each);
      continue;
    }
    const Part* const part = part_of(found->second, server.number);
    if (part != nullptr && part->server_lease_id != 0 && orders->watched.size() < wire::kWatchedMax)
      orders->watched.push_back(part->server_lease_id);
    ++each;
  }
}

void Scheduler::State::answer_report(Member& server) {
  if (server.connection == 0 || server.reply_due_ns == kNotAgain) return;
  wire::PoolOrders orders;
  orders.pool = options.pool;
  orders.scheduler = options.scheduler;
  orders.term = options.term;
  orders.schedules = !deposed_;
  orders.ended_stored = server.ended_stored;
  if (!deposed_ && server.joined) {
    for (auto& [id, pending] : server.orders) {
      if (pending.sent || orders.orders.size() >= kOrdersAtOnce) continue;
      pending.sent = true;
      orders.orders.push_back(pending.order);
    }
  }
  orders.policy_revision = policy_record.revision;
  if (server.policy_sent != policy_record.revision) {
    server.policy_sent = policy_record.revision;
    orders.policy = policy_record.text;
  }
  if (!deposed_ && server.joined) peers_.tell(server.number, &server.peers, &orders);
  if (!deposed_ && server.joined && !watched_.empty()) name_watched(server, &orders);
  orders.wants_full = !server.joined && !server.in_full;
  server.reply_due_ns = kNotAgain;
  effects_.to_servers.push_back({server.connection, Status(), std::move(orders)});
}

std::string Scheduler::State::server_names(const Job& job) const {
  std::string names;
  for (const Part& part : job.parts) {
    const Member* server = member(part.server);
    if (server == nullptr) continue;
    names += (names.empty() ? "" : ", ") + server->record.name;
  }
  return names;
}

}  // namespace tendril::pool

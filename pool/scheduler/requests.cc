// SPDX-License-Identifier: Apache-2.0
// From a request to its grant: it enters the queue, holds are asked of all its servers, the grant
// goes to the store, all servers commit, the client gets its parts. Whatever fails on the way
// cancels all parts, and the request is back in its place.
#include <algorithm>

#include "base/text.h"
#include "pool/scheduler/state.h"

namespace tendril::pool {

using base::Code;
using base::format;
using base::Status;

namespace {

constexpr size_t kJobsMax = 200'000;
constexpr size_t kTextMax = 256;  // of what a client says of itself

std::string key_of(const Asker& who, const std::string& request_key) {
  return request_key.empty() ? std::string() : who.id + '\n' + request_key;
}

Spread spread_of(wire::Layout layout) {
  switch (layout) {
    case wire::Layout::kOneServer:
      return Spread::kOneServer;
    case wire::Layout::kPack:
      return Spread::kPack;
    case wire::Layout::kSpread:
      return Spread::kSpread;
    case wire::Layout::kAny:
      break;
  }
  return Spread::kAnyServers;
}

}  // namespace

void Scheduler::State::refuse(uint64_t connection, Status status) {
  ++totals_.refused;
  effects_.to_clients.push_back({connection, std::move(status), {}});
}

Status Scheduler::State::check(const Asker& who, const wire::LeaseRequest& request) const {
  if (deposed_) {
    return Status(Code::kUnavailable, "scheduler " + options.scheduler +
                                          " no longer schedules pool " + options.pool +
                                          "; ask the pool's other schedulers");
  }
  if (request.count == 0 || request.count > kMostSlices) {
    return Status(Code::kInvalid, format("pool %s gives 1 to %u slices to a request, not %u",
                                         options.pool.c_str(), kMostSlices, request.count));
  }
  if (request.slice.share_millionths > kWholeGpu ||
      (request.slice.share_millionths == 0 && request.slice.memory_bytes == 0)) {
    return Status(Code::kInvalid,
                  "a slice needs a share of at most one GPU, or an amount of "
                  "memory");
  }
  if (request.terms.priority < -wire::kPriorityMax || request.terms.priority > wire::kPriorityMax) {
    return Status(Code::kInvalid, format("a priority is a number from -%d to %d",
                                         wire::kPriorityMax, wire::kPriorityMax));
  }
  if (request.client.host.size() > kTextMax || request.client.user.size() > kTextMax ||
      request.client.program.size() > wire::kPoolTextBytesMax || who.id.size() > kTextMax) {
    return Status(Code::kInvalid, "the names in this request are too long for a pool");
  }
  if (!request.wish.request_key.empty() &&
      request.wish.request_key.size() != wire::kRequestKeyBytes) {
    return Status(Code::kInvalid, "a request's key has 16 bytes");
  }
  if (jobs_.size() >= kJobsMax) {
    return Status(Code::kExhausted,
                  reason_text(WaitReason::kResources,
                              base::format("pool %s has %zu requests and leases, as many as it can "
                                           "keep; ask again later",
                                           options.pool.c_str(), jobs_.size())));
  }
  return Status();
}

bool Scheduler::State::speaks_apis(const Member& server,
                                   const std::vector<wire::ApiRecord>& wanted_apis) const {
  for (const wire::ApiRecord& wanted : wanted_apis) {
    const auto& apis = server.record.facts.apis;
    const bool has = std::any_of(apis.begin(), apis.end(), [&](const wire::ApiRecord& api) {
      return api.name == wanted.name && api.digest == wanted.digest;
    });
    if (!has) return false;
  }
  return true;
}

// A client whose calls no server understands is told so before it gets a lease.
Status Scheduler::State::unequal_apis(const wire::LeaseRequest& request) const {
  const Member* other = nullptr;
  for (const auto& each : members_) {
    if (each == nullptr || each->record.facts.gpus.empty()) continue;
    if (speaks_apis(*each, request.wish.apis)) return Status();
    if (other == nullptr) other = each.get();
  }
  if (other == nullptr) return Status();
  return Status(
      Code::kMismatch,
      reason_text(WaitReason::kNeverFits,
                  "no server of pool " + options.pool + " understands this client's calls of " +
                      base::printable(request.wish.apis[0].name) + "; server " +
                      other->record.name + " has Tendril " +
                      base::printable(other->record.facts.product_version) +
                      ": use the client of that version, or bring the servers to this "
                      "client's"));
}

void Scheduler::State::submitted(uint64_t connection, const Asker& who,
                                 const wire::LeaseRequest& request, Now now) {
  arrive(now);
  const std::string key = key_of(who, request.wish.request_key);
  auto known = job_by_key_.find(key);
  if (!key.empty() && known != job_by_key_.end()) {
    resume_request(jobs_.at(known->second), connection);
    return;
  }
  Status status = check(who, request);
  if (status.ok()) status = unequal_apis(request);
  if (!status.ok()) return refuse(connection, std::move(status));
  base::Result<Filter> filter = Filter::parse(request.wish.filter);
  if (!filter.ok()) return refuse(connection, filter.status());
  base::Result<Assigned> assigned =
      assign(effective_, UserFacts{who.name, who.groups, who.role, who.host}, request.wish.account,
             request.wish.user_class);
  if (!assigned.ok()) {
    const Status& why = assigned.status();
    return refuse(connection, Status(why.code(), reason_text(WaitReason::kAccount, why.message())));
  }

  const uint64_t id = new_id();
  Job& job = jobs_[id];
  job.id = id;
  job.who = who;
  job.request = request;
  job.filter = filter.take();
  job.account = effective_.accounts[assigned->account].name;
  job.user_class = effective_.user_classes[assigned->user_class].name;
  job.submitted_ns = int64_t(now_.monotonic_ns);
  job.submitted_s = now_.wall_s;
  job.connection = connection;
  status = enter(job);
  if (!status.ok()) {
    jobs_.erase(id);
    return refuse(connection, std::move(status));
  }
  job_by_connection_[connection] = id;
  if (!key.empty()) job_by_key_[key] = id;
  if (request.wish.refuses_wait) hurried_.insert(id);
  job.batch = write({{keys::kRequest + std::to_string(id), pack(record_of(job))}});
  awaiting_.insert(id);
  ++totals_.requests;
  event("submit", "request " + std::to_string(id), "by " + base::printable(who.name));
}

// The same client on another connection: it lost the first one, or another scheduler.
void Scheduler::State::resume_request(Job& job, uint64_t connection) {
  if (job.connection != 0 && job.connection != connection) {
    job_by_connection_.erase(job.connection);
    refuse(job.connection, Status(Code::kClosed,
                                  "this request was made again on another "
                                  "connection"));
  }
  job.connection = connection;
  job.absent_due_ns = kNotAgain;
  job.was_told = false;
  job_by_connection_[connection] = job.id;
  if (job.stage == Stage::kGranted) {
    answer_again(job);
  } else if (job.stage == Stage::kEnding) {
    answer(job, Status(Code::kClosed, "lease " + std::to_string(job.id) + " ends: " + job.end_why));
  } else if (job.stage == Stage::kWaiting && !job.in_engine) {
    const Status status = enter(job);
    if (!status.ok()) {
      answer(job, status);
      drop_job(job);
      return;
    }
  }
  news_dirty_ = true;
}

// Who asks again has claimed nothing. A lease that lost a part is no answer. Of a grant of an
// earlier scheduler the servers must say the secrets again.
void Scheduler::State::answer_again(Job& job) {
  bool lost = job.lost_parts, complete = true;
  for (const Part& part : job.parts) {
    lost = lost || part.phase == PartPhase::kEnded;
    complete = complete && part.server_lease_id != 0 && !part.secret.empty();
  }
  if (!lost && complete) return answer(job, Status());
  set_stage(job, Stage::kCommitting, 0);
  if (lost) return attempt_failed(job, kNoServer, "it lost a part before its client had it");
  commit(job);
}

// Into the engine's queue, or beside it while servers are still expected.
Status Scheduler::State::enter(Job& job) {
  job.parked.clear();
  if (!planning_) {
    job.parked = "servers are still reporting";
    return Status();
  }
  if (!effective_.account(job.account) || !effective_.user_class(job.user_class)) {
    return Status(Code::kRefused,
                  reason_text(WaitReason::kAccount, "the policy of pool " + options.pool +
                                                        " has no account " + job.account +
                                                        " or no class " + job.user_class + " now"));
  }
  if (!job.held.empty()) {
    job.parked = job.held;
    return Status();
  }
  Ask ask = ask_of(job);
  ask.accepted = job.accepted;
  const Status status = engine_.submit(ask, seconds());
  if (!status.ok()) return status;
  job.in_engine = job.accepted = true;
  plan_dirty_ = true;
  return Status();
}

Ask Scheduler::State::ask_of(const Job& job) const {
  const wire::LeaseRequest& request = job.request;
  Ask ask;
  ask.id = job.id;
  ask.user = job.who.name;
  ask.account = effective_.account(job.account).value_or(0);
  ask.user_class = effective_.user_class(job.user_class).value_or(0);
  if (ask.user_class < effective_.user_classes.size()) {
    ask.gpu_classes = effective_.user_classes[ask.user_class].gpu_classes;
  }
  ask.slices = request.count;
  ask.share_millionths = request.slice.share_millionths;
  ask.memory_bytes = request.slice.memory_bytes;
  ask.packed = request.slice.packed;
  ask.spread = spread_of(request.wish.layout);
  ask.priority = request.terms.priority;
  const uint64_t longest_s = longest_of(job);
  if (longest_s != 0) ask.most_s = int64_t(std::min<uint64_t>(longest_s, 1u << 30));
  ask.submitted_s = job.submitted_ns / int64_t(kSecond);
  if (job.filter.matches_everything() && request.wish.apis.empty()) return ask;
  ask.filter_text = job.filter.text();
  for (const wire::ApiRecord& api : request.wish.apis) {
    ask.filter_text += format("\n%s %llx", api.name.c_str(), (unsigned long long)api.digest);
  }
  ask.filter_changes = job.filter.looks_at_load();
  // The engine shares the answers of equal texts, so this may outlive the request.
  ask.filter = [this, filter = job.filter, apis = request.wish.apis](uint32_t number,
                                                                     uint32_t gpu) {
    const Member* server = number < members_.size() ? member(number) : nullptr;
    return server != nullptr && gpu < server->facts.size() && speaks_apis(*server, apis) &&
           (filter.looks_at_load() ? filter.matches(with_load(*server, gpu))
                                   : filter.matches(server->facts[gpu]));
  };
  if (!ask.filter_changes) return ask;
  ask.filter_ever = [this, filter = job.filter, apis = request.wish.apis](uint32_t number,
                                                                          uint32_t gpu) {
    const Member* server = number < members_.size() ? member(number) : nullptr;
    return server != nullptr && gpu < server->facts.size() && speaks_apis(*server, apis) &&
           filter.could_match(server->facts[gpu]);
  };
  return ask;
}

GpuFacts Scheduler::State::with_load(const Member& server, uint32_t gpu) const {
  GpuFacts facts = server.facts[gpu];
  facts.tenants = engine_.leases_on(server.number, gpu);
  facts.tenants_known = true;
  return facts;
}

void Scheduler::State::leave_engine(Job& job) {
  if (!job.in_engine) return;
  if (job.on_servers()) {
    engine_.ended(job.id, seconds());
  } else {
    engine_.withdraw(job.id);
  }
  job.in_engine = false;
  plan_dirty_ = true;
}

void Scheduler::State::left(uint64_t connection, bool orderly, Now now) {
  arrive(now);
  auto found = job_by_connection_.find(connection);
  if (found == job_by_connection_.end()) return;
  Job& job = jobs_.at(found->second);
  job_by_connection_.erase(found);
  job.connection = 0;
  if (job.stage == Stage::kGranted || job.stage == Stage::kEnding) return;
  if (!orderly) return set_absent(job);
  event("leave", "request " + std::to_string(job.id), "its client left the queue");
  drop_job(job);
}

// Its place is kept for a while. Nothing starts for it meanwhile.
void Scheduler::State::set_absent(Job& job) {
  job.absent_due_ns = now_.monotonic_ns + kAbsentMs * kMillisecond;
  arm(job.absent_due_ns, Timer::kAbsent, job.id);
  if (job.stage == Stage::kWaiting) leave_engine(job);
}

// ---- two phases ----

void Scheduler::State::place_parts(Job& job, const EngineStart& start) {
  job.parts.clear();
  for (const PlacedSlice& slice : start.slices) {
    if (job.parts.empty() || job.parts.back().server != slice.server) {
      Part part;
      part.server = slice.server;
      part.boot = member(slice.server)->boot;
      part.from_zero = true;
      job.parts.push_back(std::move(part));
    }
    const Member* server = member(slice.server);
    job.parts.back().slices.push_back({server->record.facts.gpus[slice.gpu].index,
                                       slice.share_millionths, slice.memory_bytes,
                                       job.request.slice.packed});
  }
}

void Scheduler::State::hold(Job& job) {
  ++job.attempts;
  job.lease_id = job.id | ((options.term & 0xff) << 8 | (job.attempts & 0xff)) << kIdBits;
  job_by_lease_[job.lease_id] = job.id;
  set_stage(job, Stage::kHolding, kHoldAnswerNs);
  for (Part& part : job.parts) {
    Member& server = *member(part.server);
    wire::Order hold;
    hold.kind = wire::OrderKind::kHold;
    hold.pool_lease_id = job.lease_id;
    for (const wire::SliceGrant& slice : part.slices) hold.gpus.push_back(slice.gpu_index);
    hold.slice = job.request.slice;
    hold.terms = job.request.terms;
    hold.client = job.request.client;
    hold.owner_id = job.who.id;
    hold.owner_name = job.who.name;
    hold.account = job.account;
    hold.user_class = job.user_class;
    hold.expires_ms = wire::kHoldMs;
    server.jobs.insert(job.id);
    part.phase = PartPhase::kAsked;
    part.order_id = order(server, std::move(hold));
  }
}

void Scheduler::State::held(Job& job) {
  for (const Part& part : job.parts) {
    if (part.phase != PartPhase::kHeld) return;
  }
  // The store's answer may take long, but the holds expire by themselves. Then commits fail.
  set_stage(job, Stage::kGranting, 0);
  job.granted_stored = job.committed = false;
  job.granted_s = now_.wall_s;
  std::vector<Write> writes;
  writes.push_back({keys::kGrant + std::to_string(job.id), pack(grant_of(job))});
  writes.push_back({keys::kRequest + std::to_string(job.id), std::nullopt});
  job.batch = write(std::move(writes));
  awaiting_.insert(job.id);
}

void Scheduler::State::commit(Job& job) {
  set_stage(job, Stage::kCommitting, kCommitAnswerNs);
  for (Part& part : job.parts) {
    wire::Order commit;
    commit.kind = wire::OrderKind::kCommit;
    commit.pool_lease_id = job.lease_id;
    commit.unclaimed_ms = wire::kUnclaimedMs;
    if (part.phase < PartPhase::kCommitting) part.phase = PartPhase::kCommitting;
    part.order_id = order(*member(part.server), std::move(commit));
  }
}

void Scheduler::State::committed(Job& job) {
  for (const Part& part : job.parts) {
    if (part.phase < PartPhase::kCommitted || part.order_id != 0) return;
  }
  set_stage(job, Stage::kGranted, 0);
  job.granted_ns = int64_t(now_.monotonic_ns);
  job.waited_s = uint64_t(job.granted_ns - job.submitted_ns) / kSecond;
  job.life = Life();
  job.committed = true;
  count_grant(job);
  note_waiting(job, true);
  write({{keys::kGrant + std::to_string(job.id), pack(grant_of(job))}});
  event("grant", "lease " + std::to_string(job.id),
        "to " + base::printable(job.who.name) + " on " + server_names(job));
  if (job.connection != 0) answer(job, Status());
  look_at_life(job);
}

// What was sent counts for its user and account until it is cancelled there.
void Scheduler::State::cancel_parts(Job& job) {
  std::vector<PlacedSlice> sent;
  bool may_be_committed = false;
  for (Part& part : job.parts) {
    Member* server = member(part.server);
    if (server == nullptr || part.phase == PartPhase::kEnded) continue;
    auto pending = server->orders.find(part.order_id);
    const bool unsent = pending != server->orders.end() && !pending->second.sent;
    drop_order(*server, part.order_id);
    server->jobs.erase(job.id);
    if (part.server_lease_id != 0) server->book.erase(part.server_lease_id);
    if (unsent && part.phase == PartPhase::kAsked) continue;  // it never heard of it
    wire::Order cancel;
    cancel.kind = wire::OrderKind::kCancel;
    cancel.pool_lease_id = job.lease_id;
    order(*server, std::move(cancel));
    may_be_committed = may_be_committed || part.phase == PartPhase::kUnknown ||
                       part.phase >= PartPhase::kCommitting;
    for (const wire::SliceGrant& slice : part.slices) {
      const uint32_t gpu = position_of(*server, slice.gpu_index);
      if (gpu >= server->record.facts.gpus.size()) continue;
      sent.push_back({part.server, gpu, slice.share_millionths, slice.memory_bytes});
    }
  }
  if (!sent.empty()) remember_remnant(job, std::move(sent), may_be_committed);
  job.parts.clear();
  if (job.lease_id != 0) job_by_lease_.erase(job.lease_id);
  job.lease_id = 0;
}

void Scheduler::State::remember_remnant(const Job& job, std::vector<PlacedSlice> slices,
                                        bool may_be_committed) {
  if (effective_.accounts.empty() || effective_.user_classes.empty()) return;
  // A server that hears nothing more lets go by itself. Orders reach it before it is silent.
  const int lasts_ms = (may_be_committed ? int(wire::kUnclaimedMs) : int(wire::kHoldMs));
  const uint64_t lasts_ns = uint64_t(lasts_ms + wire::kServerSilentMs) * kMillisecond;
  Ask ask = ask_of(job);
  ask.id = job.lease_id;
  ask.most_s = int64_t(lasts_ns / kSecond);
  engine_.adopt(ask, slices, seconds());
  remnants_[job.lease_id].slices = std::move(slices);
  arm(now_.monotonic_ns + lasts_ns, Timer::kRemnant, job.lease_id);
  plan_dirty_ = true;
}

void Scheduler::State::remnant_gone(uint64_t lease_id, uint32_t server) {
  auto found = remnants_.find(lease_id);
  if (found == remnants_.end()) return;
  std::vector<PlacedSlice>& slices = found->second.slices;
  const size_t before = slices.size();
  slices.erase(std::remove_if(slices.begin(), slices.end(),
                              [&](const PlacedSlice& slice) {
                                return server == kNoServer || slice.server == server;
                              }),
               slices.end());
  if (slices.size() == before) return;
  plan_dirty_ = true;
  if (!slices.empty()) return engine_.resize(lease_id, slices);
  // It was no lease, so how long it lasted says nothing about leases.
  engine_.failed(lease_id, kNoServer, seconds());
  engine_.withdraw(lease_id);
  remnants_.erase(found);
}

void Scheduler::State::remnants_gone(uint32_t server) {
  std::vector<uint64_t> all;
  for (const auto& [lease_id, remnant] : remnants_) all.push_back(lease_id);
  for (uint64_t lease_id : all) remnant_gone(lease_id, server);
}

// The request is back in its place. The server that failed it gets nothing of it for a while.
void Scheduler::State::attempt_failed(Job& job, uint32_t server, const std::string& why) {
  event("retry", "request " + std::to_string(job.id), why);
  const bool grant_written = job.stage == Stage::kGranting || job.stage == Stage::kCommitting;
  if (job.in_engine) engine_.failed(job.id, server, seconds());
  cancel_parts(job);
  set_stage(job, Stage::kWaiting, 0);
  job.recovered = job.committed = job.lost_parts = job.loss_told = false;
  job.loss_due_ns = kNotAgain;  // the next attempt has lost nothing
  job.end_why.clear();
  if (grant_written) {
    std::vector<Write> writes;
    writes.push_back({keys::kGrant + std::to_string(job.id), std::nullopt});
    writes.push_back({keys::kRequest + std::to_string(job.id), pack(record_of(job))});
    job.stored = false;
    job.batch = write(std::move(writes));
    awaiting_.insert(job.id);
  }
  plan_dirty_ = news_dirty_ = true;
  if (job.connection == 0) set_absent(job);
}

// ---- answers ----

wire::LeaseReply Scheduler::State::reply_of(const Job& job) const {
  wire::LeaseReply reply;
  reply.lease_id = job.id;
  reply.waited_s = job.waited_s;
  for (const Part& part : job.parts) {
    const Member* server = member(part.server);
    if (server == nullptr || part.phase == PartPhase::kEnded) continue;
    wire::LeasePart told;
    told.server = server->record.name;
    told.endpoint = server->record.facts.endpoint;
    told.lease_id = part.server_lease_id;
    told.secret = part.secret;
    told.slices = part.slices;
    reply.parts.push_back(std::move(told));
  }
  return reply;
}

void Scheduler::State::answer(Job& job, Status status) {
  hurried_.erase(job.id);
  if (job.connection == 0) return;
  wire::LeaseReply reply;
  if (status.ok()) reply = reply_of(job);
  effects_.to_clients.push_back({job.connection, std::move(status), std::move(reply)});
  job_by_connection_.erase(job.connection);
  job.connection = 0;
}

void Scheduler::State::drop_job(Job& job) {
  if (job.stage < Stage::kGranted) note_waiting(job, true);
  leave_engine(job);
  const bool on_servers = job.on_servers();
  cancel_parts(job);
  std::vector<Write> writes;
  writes.push_back({keys::kRequest + std::to_string(job.id), std::nullopt});
  if (on_servers) writes.push_back({keys::kGrant + std::to_string(job.id), std::nullopt});
  if (!job.local) write(std::move(writes));
  if (job.connection != 0) job_by_connection_.erase(job.connection);
  job_by_key_.erase(key_of(job.who, job.request.wish.request_key));
  hurried_.erase(job.id);
  awaiting_.erase(job.id);
  news_dirty_ = true;
  jobs_.erase(job.id);
}

RequestRecord Scheduler::State::record_of(const Job& job) const {
  RequestRecord record;
  record.id = job.id;
  record.owner_id = job.who.id;
  record.owner_name = job.who.name;
  record.role = job.who.role;
  record.host = job.who.host;
  record.groups = job.who.groups;
  record.account = job.account;
  record.user_class = job.user_class;
  record.submitted_s = job.submitted_s;
  record.request = job.request;
  record.held = job.held;
  record.held_by_operator = job.held_by_operator;
  return record;
}

GrantRecord Scheduler::State::grant_of(const Job& job) const {
  GrantRecord record;
  record.request = record_of(job);
  record.lease_id = job.lease_id;
  record.granted_s = job.granted_s;
  record.committed = job.committed;
  record.lost_parts = job.lost_parts;
  record.gpu_class = job.gpu_class;
  record.local = job.local;
  record.ending = job.released;
  if (record.ending) record.end_why = job.end_why;
  for (const Part& part : job.parts) {
    const Member* server = member(part.server);
    if (part.phase == PartPhase::kEnded) {
      record.lost_parts = true;
    } else if (server != nullptr) {
      record.parts.push_back({server->record.name, part.slices, part.server_lease_id, part.boot,
                              part.given_gpu_ns, part.given_rest, part.given_age_ns});
    }
  }
  return record;
}

}  // namespace tendril::pool

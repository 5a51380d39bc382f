// SPDX-License-Identifier: Apache-2.0
// The start of a term. The store says what waited and what was granted; servers say what runs. The
// scheduler plans when every known server has reported in full, or after kServerSilentMs.
#include <algorithm>

#include "base/text.h"
#include "pool/scheduler/state.h"

namespace tendril::pool {

using base::Status;

namespace {

bool begins_with(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

}  // namespace

void Scheduler::State::recover(const std::vector<std::pair<std::string, std::string>>& records,
                               Now now) {
  arrive(now);
  usage_saved_ns_ = news_pass_ns_ = signs_ns_ = now_.monotonic_ns;
  for (const auto& [key, value] : records) {
    if (key != keys::kPolicy) continue;
    base::Result<PoolPolicy> policy = Status(base::Code::kInvalid, "");
    if (!unpack(value, &policy_record)) {
      event("damaged", key, "the stored policy cannot be read; apply it again");
    } else if (policy = parse_pool_policy(policy_record.text, "the stored policy", options.zones);
               !policy.ok()) {
      event("damaged", key, policy.status().message());
    } else {
      use_policy(policy.take());
    }
  }
  if (!has_policy_) use_policy(default_policy());
  std::vector<GrantRecord> grants;
  std::vector<RequestRecord> requests;
  for (const auto& [key, value] : records) recover_record(key, value, &grants, &requests);
  for (const auto& [key, value] : records) {
    EndedRecord mark;
    if (!begins_with(key, keys::kEnded) || !unpack(value, &mark)) continue;
    Member* server = find_member(key.substr(keys::kEnded.size()));
    if (server == nullptr) continue;
    server->ended_boot = mark.boot;
    server->ended_seen = server->ended_stored = mark.number;
  }
  recover_history(records);
  next_id_ = std::max<uint64_t>(next_id_, ids_reserved_ + 1);
  engine_.restore(recovered_usage_.usage, recovered_usage_.durations, seconds());
  for (const GrantRecord& grant : grants) recover_grant(grant);
  for (const RequestRecord& request : requests) {
    if (jobs_.count(request.id) == 0) recover_request(request);
  }
  // Also without any known server: the first ones may be about to report, and what never fits is
  // refused at once.
  planning_due_ns_ = now_.monotonic_ns + uint64_t(wire::kServerSilentMs) * kMillisecond;
}

void Scheduler::State::recover_record(const std::string& key, const std::string& value,
                                      std::vector<GrantRecord>* grants,
                                      std::vector<RequestRecord>* requests) {
  bool ok = true;
  if (key == keys::kMeta) {
    MetaRecord record;
    ok = unpack(value, &record);
    ids_reserved_ = std::max(ids_reserved_, record.ids_used);
  } else if (key == keys::kUsage) {
    ok = unpack(value, &recovered_usage_);
    if (!ok) recovered_usage_ = EngineRecord();
  } else if (begins_with(key, keys::kServer)) {
    ServerRecord record;
    ok = unpack(value, &record) && record.facts.gpus.size() <= kMostGpus &&
         key == keys::kServer + record.name;
    if (ok && find_member(record.name) == nullptr) add_member(record);
  } else if (begins_with(key, keys::kRequest)) {
    ok = unpack(value, &requests->emplace_back());
    if (!ok) requests->pop_back();
  } else if (begins_with(key, keys::kGrant)) {
    ok = unpack(value, &grants->emplace_back());
    if (!ok) grants->pop_back();
  }
  if (!ok) event("damaged", key, "this record of the store cannot be read, and is left out");
}

Job& Scheduler::State::job_from(const RequestRecord& record) {
  Job& job = jobs_[record.id];
  job.id = record.id;
  job.who = Asker{
      record.owner_id, record.owner_name, record.role, record.groups, record.host, false, false};
  job.account = record.account;
  job.user_class = record.user_class;
  job.request = record.request;
  job.submitted_s = record.submitted_s;
  job.held = record.held;
  job.held_by_operator = record.held_by_operator;
  job.submitted_ns =
      int64_t(now_.monotonic_ns) -
      std::clamp<int64_t>(now_.wall_s - record.submitted_s, 0, 1 << 30) * int64_t(kSecond);
  job.stored = job.accepted = true;
  base::Result<Filter> filter = Filter::parse(record.request.wish.filter);
  if (filter.ok()) job.filter = filter.take();
  next_id_ = std::max(next_id_, record.id + 1);
  const std::string& key = record.request.wish.request_key;
  if (!key.empty()) job_by_key_[record.owner_id + '\n' + key] = record.id;
  return job;
}

// Its client must come back to keep its place.
void Scheduler::State::recover_request(const RequestRecord& record) {
  Job& job = job_from(record);
  set_absent(job);
  job.absent_due_ns += uint64_t(wire::kServerSilentMs) * kMillisecond;
  arm(job.absent_due_ns, Timer::kAbsent, job.id);
}

void Scheduler::State::recover_grant(const GrantRecord& record) {
  Job& job = job_from(record.request);
  job.lease_id = record.lease_id;
  job.gpu_class = record.gpu_class;
  job.granted_s = record.granted_s;
  job.granted_ns =
      int64_t(now_.monotonic_ns) -
      std::clamp<int64_t>(now_.wall_s - record.granted_s, 0, 1 << 30) * int64_t(kSecond);
  job.waited_s = uint64_t(std::max<int64_t>(0, record.granted_s - record.request.submitted_s));
  job.granted_stored = true;
  job.committed = record.committed;
  job.lost_parts = record.lost_parts;
  job.local = record.local;
  job.released = record.ending;
  job.end_why = record.end_why;
  job.recovered = !record.ending;
  if (job.lease_id != 0) job_by_lease_[job.lease_id] = job.id;
  for (const PartRecord& stored : record.parts) {
    Member* server = find_member(stored.server);
    Part part;
    part.slices = stored.slices;
    part.given_gpu_ns = stored.given_gpu_ns;
    part.given_rest = stored.given_rest;
    part.given_age_ns = stored.given_age_ns;
    part.phase = server == nullptr ? PartPhase::kEnded : PartPhase::kUnknown;
    part.server = server == nullptr ? kNoServer : server->number;
    if (server == nullptr) continue;
    if (record.ending) {
      part.server_lease_id = stored.server_lease_id;
      part.boot = stored.boot;
      if (part.server_lease_id != 0) server->book[part.server_lease_id] = job.id;
    }
    server->jobs.insert(job.id);
    job.parts.push_back(std::move(part));
  }
  if (record.ending) return end_recovered(job);
  set_stage(job, Stage::kCommitting,
            uint64_t(wire::kServerSilentMs) * kMillisecond + kCommitAnswerNs);
  if (job.parts.empty()) unsettled_.insert(job.id);
  adopt_in_engine(job);
}

// An earlier scheduler ended it, and its servers may not have heard of it.
void Scheduler::State::end_recovered(Job& job) {
  for (Part& part : job.parts) part.phase = PartPhase::kClaimed;
  set_stage(job, Stage::kEnding, 0);
  adopt_in_engine(job);
  tell_end(job);
  finish_if_over(job);
}

// Decides about a grant of an earlier scheduler, when its servers have said what they have. What a
// silent server may have counts as running until it speaks or is forgotten, if all had committed.
// `final`: else it no longer waits for silent ones.
void Scheduler::State::settle_recovered(Job& job, bool final) {
  bool claimed = false, missing = job.parts.empty() || job.lost_parts, unknown = false;
  bool held = false;
  for (const Part& part : job.parts) {
    // What something attached to was claimed, even if it has ended since.
    claimed = claimed || part.phase == PartPhase::kClaimed ||
              (part.phase == PartPhase::kEnded && part.was_attached);
    missing = missing || part.phase == PartPhase::kEnded;
    unknown = unknown || part.phase == PartPhase::kUnknown;
    held = held || part.phase == PartPhase::kHeld;
  }
  if (unknown && !claimed && !final) return;
  // Its client had the answer: it runs, or ran. A client that asks again had none.
  const bool had_it = unknown || (missing && job.connection == 0);
  if (claimed || (job.committed && had_it)) return go_on(job);
  // A client that has not come back to ask may have had the answer, too, unless one only holds.
  if (unknown && !held && job.connection == 0) return go_on(job);
  if (missing || unknown) {
    attempt_failed(job, kNoServer, "its servers do not all have it");
    return;
  }
  job.recovered = false;
  commit(job);  // again: that gives the secrets
}

// A lease that an earlier scheduler granted runs on.
void Scheduler::State::go_on(Job& job) {
  job.recovered = false;
  job.committed = true;
  set_stage(job, Stage::kGranted, 0);
  bool paused = false, shrunk = false, missing = job.parts.empty() || job.lost_parts;
  uint64_t age_ns = 0;
  for (Part& part : job.parts) {
    paused = paused || part.paused;
    shrunk = shrunk || (!part.slices.empty() && job.request.slice.share_millionths != 0 &&
                        part.slices[0].share_millionths < job.request.slice.share_millionths);
    age_ns = std::max(age_ns, part.age_ns);
    missing = missing || part.phase == PartPhase::kEnded;
    // A silent server's part counts as it was; if it is gone, the server will say so.
    if (part.phase == PartPhase::kUnknown) part.phase = PartPhase::kClaimed;
  }
  // Servers know better than the wall's clock how long it has run.
  if (age_ns != 0 && age_ns < kNotAgain / 4) {
    job.granted_ns = int64_t(now_.monotonic_ns) - int64_t(age_ns);
  }
  job.life = Life(shrunk, paused);
  job.stirred = shrunk || paused;
  if (missing && finish_parts(job)) return;
  if (missing) lost_a_part(job, false);
  look_at_life(job);
}

void Scheduler::State::settle_all() {
  const std::set<uint64_t> unsettled = std::move(unsettled_);
  unsettled_.clear();
  for (uint64_t id : unsettled) {
    auto found = jobs_.find(id);
    if (found != jobs_.end() && found->second.recovered) settle_recovered(found->second, false);
  }
}

// Records the parts that ended while nobody listened. True: the lease is over.
bool Scheduler::State::finish_parts(Job& job) {
  const uint64_t id = job.id;
  for (Part& part : job.parts) {
    const Member* server = part.phase == PartPhase::kEnded ? member(part.server) : nullptr;
    if (server != nullptr && !part.accounted) {
      part.accounted = true;
      ends_.push_back(accounting(*server, job, part, "it ended while no scheduler was there"));
    }
  }
  if (job.in_engine && !placed(job).empty()) engine_.resize(job.id, placed(job));
  save_grant(job);
  finish_if_over(job);
  return jobs_.count(id) == 0;
}

void Scheduler::State::begin_planning() {
  settle_all();
  flush_ends();
  planning_ = true;
  planning_due_ns_ = kNotAgain;
  event("plan", options.pool, "this scheduler plans now");
  enter_all();
  plan_dirty_ = true;
}

}  // namespace tendril::pool

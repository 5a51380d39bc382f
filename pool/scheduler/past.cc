// SPDX-License-Identifier: Apache-2.0
// What the history (pool/accounting) is told: what servers say of leases, who waits, which GPUs
// were there; and when it is written.
#include <algorithm>

#include "base/text.h"
#include "pool/scheduler/state.h"

namespace tendril::pool {
namespace {

constexpr uint64_t kOrphanNs = 5 * kMinuteNs;  // by then its server has said what it knows

std::string second_text(uint64_t ns) { return std::to_string(ns / kSecond); }

}  // namespace

void Scheduler::State::recover_history(
    const std::vector<std::pair<std::string, std::string>>& records) {
  for (const std::string& key : history_.recover(records, history_ns_))
    event("damaged", key, "this part of the history cannot be read, and is left out");
  history_ns_ = history_.clock(now_.monotonic_ns, now_.wall_s);
  if (!history_.gap()) return;
  event("history", options.pool,
        "nobody recorded from second " + second_text(history_.gap()->from_ns) + " to " +
            second_text(history_.gap()->to_ns) +
            " since 1970; what leases used then is counted, and spread evenly over that time");
}

// What the part had so far, as its server counts it.
const HistoryRow& Scheduler::State::note_use(const Member& server, const Job& job, Part& part,
                                             LeaseEnd end) {
  grow_given(part, part.age_ns);
  HistoryWho who;
  who.lease = job.lease_id & ((uint64_t(1) << kIdBits) - 1);
  who.server = server.record.name;
  if (part.server_lease_id == 0) {  // its server was lost before it spoke to this scheduler
    if (const HistoryWho* const known = history_.find(who.lease, who.server)) {
      part.server_lease_id = known->server_lease;
      part.boot = known->boot;
    }
  }
  who.server_lease = part.server_lease_id;
  who.boot = part.boot;
  who.owner_id = job.who.id;
  who.owner = job.who.name;
  who.account = job.account;
  who.user_class = job.user_class;
  who.gpu_class = job.gpu_class;
  UsedSums sums;
  sums.leases = 1;
  sums.waited_ns = job.waited_s * kSecond;
  sums.held_ns = part.age_ns;
  sums.idle_ns = part.idle_total_ns;
  sums.used_ns = part.used_ns;
  sums.gpu_waited_ns = part.waited_ns;
  sums.asked_gpu_ns = uint64_t(static_cast<unsigned __int128>(part.age_ns) *
                               job.request.slice.share_millionths * part.slices.size() / kWholeGpu);
  sums.given_gpu_ns = part.given_gpu_ns;
  History::Holding holding;
  holding.memory_used_bytes = part.memory_used_bytes;
  for (const wire::SliceGrant& slice : part.slices) {
    holding.memory_bytes += slice.memory_bytes;
    holding.share_millionths += slice.share_millionths;
  }
  uint64_t at_ns = history_ns_;
  if (part.ended_s != 0) at_ns = std::min(at_ns, uint64_t(part.ended_s) * kSecond);
  if (end == LeaseEnd::kConcluded) {  // it was heard last when its server reported last
    at_ns = part.reported_ns == 0
                ? uint64_t(std::max<int64_t>(0, job.granted_s)) * kSecond
                : history_ns_ - std::min(history_ns_, now_.monotonic_ns - part.reported_ns);
  }
  const uint64_t began_ns = at_ns - std::min(at_ns, part.age_ns);
  return history_.heard(who, sums, holding, began_ns, at_ns, end);
}

// Of a request that was accepted. `last`: it waits no longer.
void Scheduler::State::note_waiting(const Job& job, bool last) {
  if (!job.accepted || job.local) return;
  HistoryWho who;
  who.lease = job.id;
  who.owner_id = job.who.id;
  who.owner = job.who.name;
  who.account = job.account;
  who.user_class = job.user_class;
  who.gpu_class = job.gpu_class;
  UsedSums sums;
  sums.queued_ns = uint64_t(std::max<int64_t>(0, int64_t(now_.monotonic_ns) - job.submitted_ns));
  sums.queued_gpu_ns = uint64_t(static_cast<unsigned __int128>(sums.queued_ns) *
                                job.request.slice.share_millionths * job.request.count / kWholeGpu);
  const uint64_t began_ns = history_ns_ - std::min(history_ns_, sums.queued_ns);
  history_.heard(who, sums, {}, began_ns, history_ns_, last ? LeaseEnd::kTold : LeaseEnd::kLives);
}

// Its GPUs were there up to its last report.
void Scheduler::State::note_capacity(Member& server) {
  const uint64_t since_ns = now_.monotonic_ns - server.last_report_ns;
  const uint64_t to_ns = history_ns_ - std::min(history_ns_, since_ns);
  if (server.capacity_ns != 0 && to_ns > server.capacity_ns) {
    std::map<std::string, uint64_t> gpus;
    for (const GpuFacts& facts : server.facts) {
      const auto of = class_of(effective_, facts);
      ++gpus[of ? class_name(*of) : ""];
    }
    for (const auto& [gpu_class, count] : gpus) {
      HistoryRow row;
      row.who.server = server.record.name;
      row.who.gpu_class = gpu_class;
      row.from_ns = server.capacity_ns;
      row.to_ns = to_ns;
      row.sums.capacity_gpu_ns = count * (to_ns - server.capacity_ns);
      history_.add(std::move(row));
    }
  }
  server.capacity_ns = server.silent ? 0 : std::max(server.capacity_ns, to_ns);
}

// A lease that an earlier scheduler saw, and that neither its server nor a request knows any more:
// its server was lost while nobody scheduled. It has a record, too, of what was heard of it. And a
// request that waits no longer, whose last row an earlier scheduler did not write any more.
void Scheduler::State::end_orphans() {
  if (!planning_ || history_ns_ < orphans_due_ns_) return;
  orphans_due_ns_ = history_ns_ + kMinuteNs;
  for (const HistoryRow& row : history_.unheard_since(history_ns_ - kOrphanNs)) {
    const HistoryWho& who = row.who;
    const auto job = jobs_.find(who.lease);
    if (who.server.empty()) {
      if (job == jobs_.end() || job->second.stage >= Stage::kGranted)
        history_.heard(who, row.sums, {}, row.to_ns, row.to_ns, LeaseEnd::kTold);
      continue;
    }
    const Member* const server = find_member(who.server);
    if (server != nullptr && (!speaks(*server) || server->silent)) continue;
    if (server != nullptr && server->boot == who.boot && server->book.count(who.server_lease) != 0)
      continue;
    if (job != jobs_.end() && job->second.on_servers()) continue;
    UsedRecord record;
    record.sums =
        history_.heard(who, row.sums, {}, row.to_ns, row.to_ns, LeaseEnd::kConcluded).sums;
    record.lease = who.lease;
    record.server_lease = who.server_lease;
    record.server = who.server;
    record.owner_id = who.owner_id;
    record.owner = who.owner;
    record.account = who.account;
    record.user_class = who.user_class;
    record.gpu_class = who.gpu_class;
    record.ended_at = int64_t(row.to_ns / kSecond);
    record.granted_at = record.ended_at - int64_t(row.sums.held_ns / kSecond);
    record.submitted_at = record.granted_at - int64_t(row.sums.waited_ns / kSecond);
    record.local = who.lease == 0;
    record.attached = true;
    record.why = "its server was lost while no scheduler was there";
    end_write({used_key(who.server, who.boot, who.server_lease, who.lease), used_json(record)});
  }
}

// While the store is slow, what comes is kept together, and is written in one piece later.
void Scheduler::State::write_history() {
  end_orphans();
  const bool waits = engine_.waiting_count() != 0, slow = store_is_slow();
  if (store_was_slow_ && !slow) history_.store_is_back();
  store_was_slow_ = slow;
  if (slow || history_ns_ < history_.due_ns(waits)) return;
  for (const auto& [id, job] : jobs_) {
    if (job.stage < Stage::kGranted) note_waiting(job, false);
  }
  for (const auto& each : members_) {
    if (each != nullptr) note_capacity(*each);
  }
  for (HistoryWrites& batch : history_.cut(history_ns_)) {
    std::vector<Write> writes;
    for (auto& [key, value] : batch) writes.push_back({key, std::move(value)});
    write(std::move(writes));
  }
}

// By the monotonic clock.
uint64_t Scheduler::State::history_due_ns() const {
  const uint64_t due_ns = history_.due_ns(engine_.waiting_count() != 0);
  const uint64_t in_ns = due_ns > history_ns_ ? due_ns - history_ns_ : 0;
  // The store is slow, or it would have been written: it will be, when the store has answered.
  return now_.monotonic_ns + std::max(in_ns, kSecond / 20);
}

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// What servers say of leases: entries of their books, leases that ended, results of orders. A
// server's book is the truth of what runs there; the scheduler only follows it. A server is a peer:
// it may name numbers that are not its own, and no more leases than any server can have.
#include <algorithm>

#include "base/text.h"
#include "pool/scheduler/state.h"

namespace tendril::pool {

using base::Code;

namespace {

constexpr size_t kBookMax = 8192;                  // leases of one server
constexpr uint64_t kLossGraceS = 30;               // for a program that lost a part, to stop
constexpr uint64_t kLossPatienceNs = 5 * kSecond;  // for one that ends, to give all parts back
constexpr size_t kEndsAtOnce = 60;                 // writes that make a batch
constexpr uint64_t kIdMask = (uint64_t(1) << kIdBits) - 1;

bool equal(const std::vector<wire::SliceGrant>& a, const std::vector<wire::SliceGrant>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const wire::SliceGrant& one, const wire::SliceGrant& other) {
                      return one.gpu_index == other.gpu_index &&
                             one.share_millionths == other.share_millionths &&
                             one.memory_bytes == other.memory_bytes && one.packed == other.packed;
                    });
}

// What it did so far. True if its use of the GPU changed from idle to not.
template <typename Said>  // a wire::BookEntry or wire::LeaseUse
bool take_sums(Part* part, const Said& said, uint64_t now_ns) {
  const bool woke = part->reported_ns != 0 && said.idle_ns < part->idle_ns;
  part->waits_for_turn = part->reported_ns != 0 && said.waited_ns > part->waited_ns;
  part->reported_ns = now_ns;
  part->age_ns = said.age_ns;
  part->idle_ns = said.idle_ns;
  part->idle_total_ns = said.idle_total_ns;
  part->used_ns = said.used_ns;
  part->waited_ns = said.waited_ns;
  part->memory_used_bytes = said.memory_used_bytes;
  return woke;
}

// The same of an entry, with what only entries say.
bool take_use(Part* part, const wire::BookEntry& entry, uint64_t now_ns) {
  const bool woke = take_sums(part, entry, now_ns);
  part->processes = entry.processes;
  part->paused = entry.paused;
  part->parked = entry.standing == wire::Standing::kParked;
  part->stays_bytes = entry.stays_bytes;
  const bool wants = part->parked && entry.wants_wake;
  if (wants && !part->wants_wake) part->wants_since_ns = now_ns;
  part->wants_wake = wants;
  part->was_told_to_wait = part->was_told_to_wait && wants;
  part->may_wake = part->may_wake && part->parked;
  part->standing = entry.standing;
  const bool attached = entry.was_attached && !part->was_attached;
  part->was_attached = part->was_attached || entry.was_attached;
  return woke || attached;
}

}  // namespace

uint32_t Scheduler::State::position_of(const Member& server, uint32_t gpu_index) {
  const auto& gpus = server.record.facts.gpus;
  for (uint32_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i].index == gpu_index) return i;
  }
  return kMostGpus;
}

std::vector<PlacedSlice> Scheduler::State::placed(const Job& job) const {
  std::vector<PlacedSlice> slices;
  for (const Part& part : job.parts) {
    const Member* server = member(part.server);
    if (server == nullptr || part.phase == PartPhase::kEnded) continue;
    for (size_t i = 0; i < part.slices.size(); ++i) {
      const wire::SliceGrant& slice = part.slices[i];
      const uint32_t gpu = position_of(*server, slice.gpu_index);
      if (gpu >= server->record.facts.gpus.size()) continue;
      slices.push_back({part.server, gpu, std::max(slice.share_millionths, job.grown_millionths),
                        std::max(slice.memory_bytes, job.grown_memory_bytes)});
      if (!part.parked || part.may_wake) continue;
      const uint64_t stays = i < part.stays_bytes.size() ? part.stays_bytes[i] : 0;
      slices.back().share_millionths = 0;
      slices.back().memory_bytes = std::min(stays, slice.memory_bytes);
    }
  }
  return slices;
}

Part* Scheduler::State::part_of(Job& job, uint32_t server) {
  for (Part& part : job.parts) {
    if (part.server == server && part.phase != PartPhase::kEnded) return &part;
  }
  return nullptr;
}

Job* Scheduler::State::job_of(Member& server, const wire::BookEntry& entry) {
  auto booked = server.book.find(entry.lease_id);
  if (booked != server.book.end()) {
    auto job = jobs_.find(booked->second);
    if (job != jobs_.end() && job->second.lease_id == entry.pool_lease_id) return &job->second;
  }
  if (entry.pool_lease_id == 0) return nullptr;
  auto leased = job_by_lease_.find(entry.pool_lease_id);
  if (leased == job_by_lease_.end()) return nullptr;
  Job& job = jobs_.at(leased->second);
  return part_of(job, server.number) == nullptr ? nullptr : &job;
}

void Scheduler::State::take_book(Member& server, const wire::PoolReport& report) {
  if (report.full && !server.in_full) {
    server.in_full = true;
    server.seen.clear();
  }
  std::vector<const wire::BookEntry*> ended;
  for (const wire::BookEntry& entry : report.entries) {
    if (entry.phase == wire::LeasePhase::kEnded) {
      ended.push_back(&entry);
    } else {
      if (server.in_full && server.seen.size() < kBookMax) server.seen.insert(entry.lease_id);
      take_entry(server, entry);
    }
  }
  std::sort(ended.begin(), ended.end(), [](const wire::BookEntry* a, const wire::BookEntry* b) {
    return a->ended_number < b->ended_number;
  });
  for (const wire::BookEntry* entry : ended) {
    take_ended(server, *entry);
    if (ends_.size() >= kEndsAtOnce) write_ends(server);
  }
  if (!ended.empty()) write_ends(server);
  for (const wire::LeaseUse& use : report.uses) take_sample(server, use);
  for (const wire::LeaseCounts& counts : report.counts) take_counts(server, counts);
  for (const wire::OrderResult& result : report.results) take_result(server, result);
  if (server.in_full && !report.more) {
    server.in_full = false;
    finish_full(server);
  }
  settle_all();
  flush_ends();
}

// Everything of the server's that the full book does not have is gone.
void Scheduler::State::finish_full(Member& server) {
  const std::set<uint64_t> jobs = server.jobs;
  for (uint64_t id : jobs) {
    auto found = jobs_.find(id);
    if (found == jobs_.end()) continue;
    Job& job = found->second;
    Part* part = part_of(job, server.number);
    if (part == nullptr) continue;
    const bool booked = part->server_lease_id != 0 && server.seen.count(part->server_lease_id) != 0;
    // A hold that was ordered may have been lost on the way: it is ordered again.
    const bool expected = part->phase == PartPhase::kUnknown ||
                          part->phase >= PartPhase::kCommitted ||
                          (part->phase == PartPhase::kHeld && part->server_lease_id != 0);
    if (!booked && expected) {
      part_gone(server, job, *part, nullptr, "server " + server.record.name + " lost it");
    }
  }
  history_.told_all(server.record.name, server.boot, history_ns_);
  unsettled_.insert(jobs.begin(), jobs.end());
  const bool first = !server.joined;
  if (first) joined(server);
}

void Scheduler::State::take_entry(Member& server, const wire::BookEntry& entry) {
  Job* job = job_of(server, entry);
  if (job != nullptr) {
    update_part(server, *job, *part_of(*job, server.number), entry);
    return;
  }
  if (entry.pool_lease_id != 0 && entry.phase != wire::LeasePhase::kClaimed) {
    cancel_stray(server, entry.pool_lease_id);
    return;
  }
  if (server.book.size() >= kBookMax || entry.slices.empty() || entry.slices.size() > kMostGpus) {
    return;
  }
  adopt(server, entry);
}

// What an attempt left behind that was given up.
void Scheduler::State::cancel_stray(Member& server, uint64_t pool_lease_id) {
  for (const auto& [id, pending] : server.orders) {
    if (pending.order.pool_lease_id == pool_lease_id) return;
  }
  wire::Order cancel;
  cancel.kind = wire::OrderKind::kCancel;
  cancel.pool_lease_id = pool_lease_id;
  order(server, std::move(cancel));
}

void Scheduler::State::update_part(Member& server, Job& job, Part& part,
                                   const wire::BookEntry& entry) {
  if (part.server_lease_id != entry.lease_id) {
    part.server_lease_id = entry.lease_id;
    server.book[entry.lease_id] = job.id;
  }
  part.boot = server.boot;
  count_use(job, part, entry.used_ns, entry.idle_total_ns);
  // Of a lease of an earlier scheduler the wall's clock said how long it has run.
  const bool has_age = part.reported_ns == 0 && !part.from_zero && job.stage == Stage::kGranted &&
                       entry.age_ns < kNotAgain / 4;
  if (has_age) job.granted_ns = int64_t(now_.monotonic_ns) - int64_t(entry.age_ns);
  const bool moved = part.parked != (entry.standing == wire::Standing::kParked);
  if (moved) {
    grow_given(part, entry.age_ns);
    event(part.parked ? "wake" : "park", "lease " + std::to_string(job.id),
          "on server " + server.record.name);
    part.asks.reset();
  }
  const bool wanted = part.wants_wake;
  if (part.standing != entry.standing)
    part.standing_since_s = part.reported_ns == 0 ? kNever : now_.wall_s;
  const bool stirs = take_use(&part, entry, now_.monotonic_ns);
  if (part.parked) asleep_.insert(job.id);
  plan_dirty_ = plan_dirty_ || (part.wants_wake && !wanted);
  if (job.stage >= Stage::kGranted && part.phase == PartPhase::kClaimed)
    note_use(server, job, part, LeaseEnd::kLives);
  if (!entry.slices.empty() && (moved || !equal(entry.slices, part.slices))) {
    if (!moved) grow_given(part, entry.age_ns);
    part.slices = entry.slices;
    if (std::all_of(part.slices.begin(), part.slices.end(), [&](const wire::SliceGrant& slice) {
          return slice.memory_bytes >= job.grown_memory_bytes;
        }))
      job.grown_memory_bytes = 0;
    if (job.stage >= Stage::kGranted) save_grant(job);
    if (job.in_engine) {
      engine_.resize(job.id, placed(job));
      plan_dirty_ = true;
    }
  }
  if (part.phase == PartPhase::kUnknown) {
    part.phase = entry.phase == wire::LeasePhase::kHeld        ? PartPhase::kHeld
                 : entry.phase == wire::LeasePhase::kCommitted ? PartPhase::kCommitted
                                                               : PartPhase::kClaimed;
  } else if (entry.phase == wire::LeasePhase::kClaimed && part.phase == PartPhase::kCommitted) {
    part.phase = PartPhase::kClaimed;
    event("claim", "lease " + std::to_string(job.id), "on server " + server.record.name);
  }
  const bool looks = has_age || (stirs && (job.stirred || part.was_attached));
  if (job.stage == Stage::kGranted && looks) look_at_life(job);
}

// What it did so far, between two entries.
void Scheduler::State::take_sample(Member& server, const wire::LeaseUse& use) {
  const auto booked = server.book.find(use.lease_id);
  if (booked == server.book.end()) return;
  const auto found = jobs_.find(booked->second);
  Part* const part = found == jobs_.end() ? nullptr : part_of(found->second, server.number);
  if (part == nullptr || part->server_lease_id != use.lease_id || part->reported_ns == 0) return;
  Job& job = found->second;
  count_use(job, *part, use.used_ns, use.idle_total_ns);
  const bool stirs = take_sums(part, use, now_.monotonic_ns);
  if (job.stage >= Stage::kGranted && part->phase == PartPhase::kClaimed)
    note_use(server, job, *part, LeaseEnd::kLives);
  if (job.stage == Stage::kGranted && stirs && (job.stirred || part->was_attached))
    look_at_life(job);
}

void Scheduler::State::take_counts(Member& server, const wire::LeaseCounts& counts) {
  const auto booked = server.book.find(counts.lease_id);
  const auto found = booked == server.book.end() ? jobs_.end() : jobs_.find(booked->second);
  Part* const part = found == jobs_.end() ? nullptr : part_of(found->second, server.number);
  if (part == nullptr || part->server_lease_id != counts.lease_id) return;
  part->counts = counts;
  part->counted_ns = now_.monotonic_ns;
}

// A lease that the server granted by itself, or that is older than what the store knows.
void Scheduler::State::adopt(Member& server, const wire::BookEntry& entry) {
  if (entry.pool_lease_id != 0) remnant_gone(entry.pool_lease_id, server.number);
  Job* job = nullptr;
  auto leased = job_by_lease_.find(entry.pool_lease_id);
  if (entry.pool_lease_id != 0 && leased != job_by_lease_.end()) {
    job = &jobs_.at(leased->second);
    if (!job->local || job->stage != Stage::kGranted) {  // a number that is somebody else's
      cancel_stray(server, entry.pool_lease_id);
      return;
    }
  } else {
    const uint64_t id = new_id();
    job = &jobs_[id];
    job->id = id;
    job->lease_id = entry.pool_lease_id;
    if (job->lease_id != 0) job_by_lease_[job->lease_id] = id;
    job->local = true;
    job->who.id = entry.owner_id;
    job->who.name = entry.owner_name.empty() ? entry.client.user : entry.owner_name;
    job->who.host = entry.client.host;
    job->account = entry.account;
    job->user_class = entry.user_class;
    job->request.client = entry.client;
    job->request.terms = entry.terms;
    job->request.slice.share_millionths = entry.slices[0].share_millionths;
    job->request.slice.memory_bytes = entry.slices[0].memory_bytes;
    job->request.slice.packed = entry.slices[0].packed;
    job->request.count = 0;
    job->stage = Stage::kGranted;
    job->granted_ns = int64_t(now_.monotonic_ns) - int64_t(std::min(entry.age_ns, kNotAgain / 4));
    job->granted_s = now_.wall_s - int64_t(entry.age_ns / kSecond);
    job->submitted_ns = job->granted_ns;
    job->submitted_s = job->granted_s;
    event("adopt", "lease " + std::to_string(id),
          "server " + server.record.name + " granted it by itself to " +
              base::printable(job->who.name));
  }
  Part part;
  part.server = server.number;
  part.phase = PartPhase::kClaimed;
  part.boot = server.boot;
  part.slices = entry.slices;
  part.server_lease_id = entry.lease_id;
  take_use(&part, entry, now_.monotonic_ns);
  if (part.parked) asleep_.insert(job->id);
  job->request.count += uint32_t(part.slices.size());
  job->parts.push_back(std::move(part));
  server.book[entry.lease_id] = job->id;
  server.jobs.insert(job->id);
  adopt_in_engine(*job);
  look_at_life(*job);
}

void Scheduler::State::adopt_in_engine(Job& job) {
  if (job.in_engine) engine_.ended(job.id, seconds());
  job.in_engine = false;
  if (effective_.accounts.empty() || effective_.user_classes.empty()) return;
  UserFacts facts{job.who.name, job.who.groups, job.who.role, job.who.host};
  if (!effective_.account(job.account) || !effective_.user_class(job.user_class)) {
    base::Result<Assigned> assigned = assign(effective_, facts);
    const uint32_t account = assigned.ok() ? assigned->account : 0;
    const uint32_t user_class = assigned.ok() ? assigned->user_class : 0;
    job.account = effective_.accounts[account].name;
    job.user_class = effective_.user_classes[user_class].name;
  }
  const std::vector<PlacedSlice> slices = placed(job);
  engine_.adopt(ask_of(job), slices, job.granted_ns / int64_t(kSecond));
  job.in_engine = true;
  if (job.gpu_class.empty() && !slices.empty()) {
    const Member* server = member(slices[0].server);
    const auto found = class_of(effective_, server->facts[slices[0].gpu]);
    if (found) job.gpu_class = effective_.gpu_classes[*found].name;
  }
  plan_dirty_ = true;
}

// ---- ends ----

// When it ended, if that was before its server started again.
int64_t Scheduler::State::ended_before(const wire::BookEntry& entry) const {
  return entry.boot == 0 ? 0 : std::max<int64_t>(1, std::min(entry.ended_s, now_.wall_s));
}

void Scheduler::State::take_ended(Member& server, const wire::BookEntry& entry) {
  if (entry.ended_number != 0) {
    if (entry.ended_number <= server.ended_seen) return;
    server.ended_seen = entry.ended_number;
  }
  if (entry.boot != 0 && server.told_of_earlier.count(entry.lease_id) != 0) return;
  Job* job = entry.boot != 0 ? nullptr : job_of(server, entry);
  if (job != nullptr) {
    part_gone(server, *job, *part_of(*job, server.number), &entry, entry.why);
    return;
  }
  if (entry.pool_lease_id != 0) remnant_gone(entry.pool_lease_id, server.number);
  // It began and ended unseen. An attempt that was given up was never a lease.
  if (entry.pool_lease_id != 0 && !entry.was_attached) return;
  Job unseen;
  unseen.id = entry.pool_lease_id & kIdMask;
  unseen.lease_id = entry.pool_lease_id;
  unseen.local = entry.pool_lease_id == 0;
  unseen.who.id = entry.owner_id;
  unseen.who.name = entry.owner_name.empty() ? entry.client.user : entry.owner_name;
  unseen.account = entry.account;
  unseen.user_class = entry.user_class;
  unseen.request.client = entry.client;
  unseen.request.count = uint32_t(entry.slices.size());
  Part part;
  part.ended_s = ended_before(entry);
  unseen.granted_s =
      (part.ended_s != 0 ? part.ended_s : now_.wall_s) - int64_t(entry.age_ns / kSecond);
  unseen.submitted_s = unseen.granted_s;
  part.server = server.number;
  part.boot = entry.boot != 0 ? entry.boot : server.boot;
  part.server_lease_id = entry.lease_id;
  part.slices = entry.slices;
  take_use(&part, entry, now_.monotonic_ns);
  ends_.push_back(accounting(server, unseen, part, entry.why));
}

// The records of ended leases go to the store together with the mark up to which they are there. So
// each is written once.
void Scheduler::State::write_ends(Member& server) {
  if (server.ended_seen != 0) {
    EndedRecord mark;
    mark.boot = server.ended_boot;
    mark.number = server.ended_seen;
    end_write({keys::kEnded + server.record.name, pack(mark)});
  }
  flush_ends();
  if (server.ended_seen > server.ended_stored) {
    server.ended_batches.push_back({next_batch_ - 1, server.ended_seen});
  }
}

void Scheduler::State::flush_ends() {
  // History first: what a later scheduler finds in it, it does not add again, and what it does not
  // find it hears again from the servers.
  if (!ends_.empty()) {
    for (auto& [key, value] : history_.ended()) ends_.insert(ends_.begin(), Write{key, value});
  }
  for (size_t at = 0; at < ends_.size(); at += kWritesMax) {
    const auto from = ends_.begin() + ptrdiff_t(at);
    const auto to = ends_.begin() + ptrdiff_t(std::min(at + kWritesMax, ends_.size()));
    write(std::vector<Write>(std::make_move_iterator(from), std::make_move_iterator(to)));
  }
  ends_.clear();
}

void Scheduler::State::part_gone(Member& server, Job& job, Part& part, const wire::BookEntry* last,
                                 const std::string& why) {
  if (part.phase == PartPhase::kEnded) return;
  if (last != nullptr) {
    count_use(job, part, last->used_ns, last->idle_total_ns);
    take_use(&part, *last, now_.monotonic_ns);
    part.server_lease_id = last->lease_id;
    part.boot = last->boot != 0 ? last->boot : server.boot;
    part.ended_s = ended_before(*last);
  }
  drop_order(server, part.order_id);
  part.order_id = 0;
  if (part.server_lease_id != 0) server.book.erase(part.server_lease_id);
  server.jobs.erase(job.id);
  part.phase = PartPhase::kEnded;
  if (job.recovered) {  // settle_recovered looks at all parts
    if (last != nullptr) {
      part.accounted = true;
      ends_.push_back(accounting(server, job, part, why));
      save_grant(job);
    }
    unsettled_.insert(job.id);
    return;
  }
  if (job.stage < Stage::kGranted) {
    attempt_failed(job, server.number, why);
    return;
  }
  ends_.push_back(accounting(server, job, part, why));
  event("end", "lease " + std::to_string(job.id),
        "on server " + server.record.name + ": " + base::printable(why));
  const std::vector<PlacedSlice> left = placed(job);
  if (job.in_engine && !left.empty()) {
    engine_.resize(job.id, left);
    plan_dirty_ = true;
  }
  if (job.end_why.empty()) job.end_why = base::printable(why);
  if (job.stage == Stage::kGranted && !left.empty()) lost_a_part(job, last == nullptr);
  save_grant(job);
  finish_if_over(job);
}

// With the parts that are left. So a later scheduler records no part twice.
void Scheduler::State::save_grant(const Job& job) {
  if (job.local && !job.released) return;  // its server keeps it
  end_write({keys::kGrant + std::to_string(job.id), pack(grant_of(job))});
}

// Keys of a batch differ. The last value counts.
void Scheduler::State::end_write(Write write) {
  for (Write& other : ends_) {
    if (other.key != write.key) continue;
    other = std::move(write);
    return;
  }
  ends_.push_back(std::move(write));
}

// A gang ends whole. A program that ends gives its parts back one after the other, so that alone is
// no loss yet. A part that is gone without a word is: the holders of the rest hear of it at once.
void Scheduler::State::lost_a_part(Job& job, bool suddenly) {
  if (job.loss_told || (!suddenly && job.loss_due_ns != kNotAgain)) return;
  if (suddenly) return end_the_rest(job);
  job.loss_due_ns = now_.monotonic_ns + kLossPatienceNs;
  arm(job.loss_due_ns, Timer::kLoss, job.id);
}

std::string Scheduler::State::loss_text(const Job& job) {
  return "it has lost a part: " + base::printable(job.end_why);
}

std::string Scheduler::State::loss_notice(const Job& job) {
  return "lease " + std::to_string(job.id) + ": " + loss_text(job);
}

// First those who hold the rest are told, and a program that can be started again is. Whatever is
// still there after the grace is ended. The grace begins when they have heard (take_result).
void Scheduler::State::end_the_rest(Job& job) {
  job.loss_due_ns = kNotAgain;
  if (job.stage != Stage::kGranted) return;
  const std::string why = loss_text(job);
  if (job.loss_told && is_told(job)) return end_job(job, why);
  if (job.loss_told) {  // a server is silent
    job.loss_due_ns = now_.monotonic_ns + kLossPatienceNs;
    arm(job.loss_due_ns, Timer::kLoss, job.id);
    return;
  }
  job.loss_told = true;
  wire::Order told;
  told.kind = wire::OrderKind::kNotice;
  told.text = loss_notice(job);
  told.in_s = kLossGraceS;
  if (job.request.wish.requeues) told.notice = wire::NoticeKind::kRequeue;
  tell_parts(job, std::move(told));
  job.loss_due_ns = now_.monotonic_ns + kLossGraceS * kSecond;
  arm(job.loss_due_ns, Timer::kLoss, job.id);
}

// ---- results ----

void Scheduler::State::take_result(Member& server, const wire::OrderResult& result) {
  auto found = server.orders.find(result.order_id);
  if (found == server.orders.end()) return;
  const wire::Order order = std::move(found->second.order);
  server.orders.erase(found);
  if (order.kind == wire::OrderKind::kCancel) remnant_gone(order.pool_lease_id, server.number);
  auto leased = job_by_lease_.find(order.pool_lease_id);
  Job* job = leased == job_by_lease_.end() ? nullptr : &jobs_.at(leased->second);
  if (job == nullptr) {
    const auto booked = server.book.find(order.lease_id);  // one that the server granted itself
    const auto found_job = booked == server.book.end() ? jobs_.end() : jobs_.find(booked->second);
    if (order.pool_lease_id == 0 && found_job != jobs_.end()) job = &found_job->second;
  }
  Part* part = job == nullptr ? nullptr : part_of(*job, server.number);
  if (part == nullptr) return;
  if (job->loss_told && order.kind == wire::OrderKind::kNotice && order.text == loss_notice(*job)) {
    job->loss_due_ns = now_.monotonic_ns + kLossGraceS * kSecond;
    arm(job->loss_due_ns, Timer::kLoss, job->id);
  }
  if (order.kind == wire::OrderKind::kChange && result.code != base::Code::kOk &&
      job->grown_millionths != 0) {
    stays_small(*job);
  }
  if (order.kind == wire::OrderKind::kChange && order.memory_bytes != 0)
    memory_changed(*job, result);
  if (job->acted_ns != 0 && is_told(*job)) {
    job->life.delay(int64_t(now_.monotonic_ns - job->acted_ns));
    job->acted_ns = 0;
    if (result.code == base::Code::kOk) return look_at_life(*job);
  }
  if (order.kind == wire::OrderKind::kPark && result.code != base::Code::kOk) {
    event("stays", "lease " + std::to_string(job->id),
          server.record.name + ": " + base::printable(result.text));
  }
  const bool awaited = part->order_id == result.order_id;
  if (awaited) part->order_id = 0;
  if (order.kind == wire::OrderKind::kHold && awaited && job->stage == Stage::kHolding) {
    if (result.code != base::Code::kOk) {
      attempt_failed(*job, server.number, base::printable(result.text));
    } else {
      part->phase = PartPhase::kHeld;
      if (result.lease_id != 0 && part->server_lease_id == 0) {
        part->server_lease_id = result.lease_id;
        server.book[result.lease_id] = job->id;
      }
      held(*job);
    }
  } else if (order.kind == wire::OrderKind::kCommit && awaited &&
             job->stage == Stage::kCommitting) {
    if (result.code != base::Code::kOk) {
      attempt_failed(*job, server.number, base::printable(result.text));
    } else {
      if (part->phase < PartPhase::kCommitted) part->phase = PartPhase::kCommitted;
      if (result.lease_id != 0 && part->server_lease_id != result.lease_id) {
        part->server_lease_id = result.lease_id;
        server.book[result.lease_id] = job->id;
      }
      part->secret = result.secret;
      committed(*job);
    }
  } else if (order.kind == wire::OrderKind::kEnd && result.code == base::Code::kNotFound) {
    part_gone(server, *job, *part, nullptr, job->end_why);
  } else if (result.code != base::Code::kOk) {
    event("order", "lease " + std::to_string(job->id),
          "server " + server.record.name + ": " + base::printable(result.text));
  }
}

}  // namespace tendril::pool

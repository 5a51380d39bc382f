// SPDX-License-Identifier: Apache-2.0
// Leases that run: the limits of their classes (pool/life), what their holders are told, how they
// end, and the record that the store keeps of each.
#include <algorithm>

#include "base/text.h"
#include "pool/accounting/used_record.h"
#include "pool/scheduler/state.h"

namespace tendril::pool {

namespace {

constexpr uint32_t kLeastShare = 50'000;  // a shrunk lease keeps this much at least
constexpr uint32_t kShrunkPart = 4;       // and a quarter of what it was granted

std::string cut_text(const std::string& text) {
  return text.size() <= wire::kPoolTextBytesMax ? text : text.substr(0, wire::kPoolTextBytesMax);
}

wire::NoticeKind notice_of(const LifeAction& action) {
  switch (action.act) {
    case LifeAct::kShrink:
      return wire::NoticeKind::kShrunk;
    case LifeAct::kPause:
    case LifeAct::kPark:
      return wire::NoticeKind::kPaused;
    case LifeAct::kResume:
      return wire::NoticeKind::kResumed;
    case LifeAct::kRequeue:
      return wire::NoticeKind::kRequeue;
    case LifeAct::kEnd:
      return wire::NoticeKind::kEnded;
    case LifeAct::kWarn:
      break;
  }
  return wire::NoticeKind::kWarning;
}

uint32_t shrunk_share(uint32_t granted_millionths) {
  return std::max(granted_millionths / kShrunkPart, std::min(granted_millionths, kLeastShare));
}

}  // namespace

// The longest time that it asked for, or that its class gives to who asks for none. 0: no such.
uint64_t Scheduler::State::longest_of(const Job& job) const {
  const uint32_t number = effective_.user_class(job.user_class).value_or(0);
  if (job.request.wish.longest_s != 0 || number >= effective_.user_classes.size()) {
    return job.request.wish.longest_s;
  }
  const uint64_t usual_s = effective_.user_classes[number].default_wall_s;
  return usual_s == kUnlimited ? 0 : usual_s;
}

LifeRules Scheduler::State::rules_of(const Job& job) const {
  const uint32_t number = effective_.user_class(job.user_class).value_or(0);
  if (number >= effective_.user_classes.size()) return {};
  return life_rules(effective_.user_classes[number], effective_, longest_of(job));
}

LifeFacts Scheduler::State::facts_of(const Job& job) const {
  LifeFacts facts;
  facts.granted_ns = job.granted_ns;
  std::vector<LifeUse> uses;
  for (const Part& part : job.parts) {
    if (part.phase == PartPhase::kEnded) continue;
    const Member* server = member(part.server);
    LifeUse use;
    use.known = part.reported_ns != 0 && part.idle_ns != wire::kIdleUnknown && server != nullptr &&
                speaks(*server) && !server->silent;
    use.attached = part.was_attached;
    use.waiting = part.waits_for_turn;
    // A server says when a lease begins or ends to be idle. In between it is what it was, up to
    // the server's last report.
    use.idle_ns = int64_t(std::min<uint64_t>(part.idle_ns, kNever / 2));
    if (use.known && use.idle_ns != 0) {
      use.idle_ns += int64_t(server->last_report_ns - part.reported_ns);
    }
    uses.push_back(use);
    for (const MaintenanceWindow& window :
         server == nullptr ? std::vector<MaintenanceWindow>() : server->record.maintenance) {
      if (window.to_s <= now_.wall_s) continue;
      const int64_t from_ns =
          int64_t(now_.monotonic_ns) +
          std::clamp<int64_t>(window.from_s - now_.wall_s, -(1 << 30), 1 << 30) * int64_t(kSecond);
      facts.end_ns = std::min(facts.end_ns, std::max<int64_t>(from_ns, 0));
    }
  }
  facts.use = together(uses);
  facts.can_requeue = job.request.wish.requeues;
  facts.can_shrink = !job.local && job.share_millionths() > kLeastShare;
  facts.reclaim = job.reclaim;
  facts.reclaim_why = job.reclaim_why;
  if (facts.end_ns != kNever) facts.end_why = "maintenance of its server";
  return facts;
}

// False: a server has not confirmed yet what the holder is to hear. It may be silent.
bool Scheduler::State::is_told(const Job& job) const {
  for (const Part& part : job.parts) {
    const Member* server = member(part.server);
    if (server == nullptr || part.phase == PartPhase::kEnded) continue;
    for (const auto& [id, pending] : server->orders) {
      const wire::Order& order = pending.order;
      const bool its = order.pool_lease_id == job.lease_id &&
                       (job.lease_id != 0 || order.lease_id == part.server_lease_id);
      if (its && order.kind != wire::OrderKind::kHold && order.kind != wire::OrderKind::kCommit)
        return false;
    }
  }
  return true;
}

// The next step waits until the last one was heard.
void Scheduler::State::look_at_life(Job& job) {
  if (job.stage != Stage::kGranted || (job.stirred && !is_told(job))) return;
  live(job, job.life.advance(rules_of(job), facts_of(job), int64_t(now_.monotonic_ns)));
}

void Scheduler::State::live(Job& job, const LifeAdvance& advance) {
  if (advance.again_ns != kNever && uint64_t(advance.again_ns) != job.life_due_ns) {
    job.life_due_ns = uint64_t(std::max<int64_t>(advance.again_ns, 0));
    arm(job.life_due_ns, Timer::kLife, job.id);
  }
  const uint64_t id = job.id;
  for (const LifeAction& action : advance.actions) {
    act(job, action);
    if (jobs_.count(id) == 0) return;
  }
}

void Scheduler::State::tell_parts(Job& job, wire::Order told) {
  for (Part& part : job.parts) {
    Member* server = member(part.server);
    if (server == nullptr || part.phase == PartPhase::kEnded) continue;
    wire::Order one = told;
    one.pool_lease_id = job.lease_id;
    one.lease_id = part.server_lease_id;
    order(*server, std::move(one));
  }
}

void Scheduler::State::act(Job& job, const LifeAction& action) {
  job.stirred = true;
  job.acted_ns = now_.monotonic_ns;
  static const char* const kWhats[] = {"warn",    "shrink", "pause", "resume",
                                       "requeue", "end",    "park"};
  event(kWhats[size_t(action.act)], "lease " + std::to_string(job.id), action.text);
  wire::Order told;
  told.kind = wire::OrderKind::kNotice;
  told.notice = notice_of(action);
  told.text = cut_text(action.text);
  told.in_s = action.next_s;
  const uint32_t granted = granted_share(job);
  switch (action.act) {
    case LifeAct::kEnd:
      end_job(job, action.text);
      return;
    case LifeAct::kWarn:
    case LifeAct::kRequeue:
      break;
    case LifeAct::kShrink:
      growing_.erase(job.id);
      job.grown_millionths = 0;
      told.kind = wire::OrderKind::kChange;
      told.share_millionths = shrunk_share(granted);
      break;
    case LifeAct::kPause:
      told.kind = wire::OrderKind::kPause;
      break;
    case LifeAct::kPark:
      told.kind = wire::OrderKind::kPark;
      break;
    case LifeAct::kResume:
      if (!action.paused) {
        told.kind = wire::OrderKind::kResume;
        tell_parts(job, told);
      }
      told.kind = wire::OrderKind::kChange;
      told.share_millionths = action.shrunk ? shrunk_share(granted) : granted;
      if (!action.shrunk) return grow(job, std::move(told));
      break;
  }
  tell_parts(job, std::move(told));
}

uint32_t Scheduler::State::granted_share(const Job& job) const {
  return job.request.slice.share_millionths != 0 ? job.request.slice.share_millionths
                                                 : job.share_millionths();
}

// While a lease was small, others may have been given what it had. So the engine decides whether it
// gets its share back now. If not, it keeps what it has, goes first when something becomes free,
// and its holder hears what is in the way. `told`: the order to its servers.
void Scheduler::State::grow(Job& job, wire::Order told) {
  std::vector<PlacedSlice> slices = placed(job);
  uint32_t least = told.share_millionths;
  for (const Part& part : job.parts) {
    for (const wire::SliceGrant& slice : part.slices)
      least = std::min(least, slice.share_millionths);
  }
  const bool is_small = job.in_engine && least < told.share_millionths && !slices.empty();
  for (PlacedSlice& slice : slices) {
    if (slice.share_millionths != 0) slice.share_millionths = told.share_millionths;  // not parked
  }
  std::string why;
  if (is_small && !engine_.grow(job.id, slices, seconds(), &why)) {
    if (!growing_.insert(job.id).second) return;
    told.kind = wire::OrderKind::kNotice;
    told.share_millionths = 0;
    told.text =
        cut_text("it works again and keeps its small share until there is room beside " + why);
    event("small", "lease " + std::to_string(job.id), told.text);
    return tell_parts(job, std::move(told));
  }
  growing_.erase(job.id);
  if (is_small) job.grown_millionths = told.share_millionths;
  plan_dirty_ = true;
  tell_parts(job, std::move(told));
}

// Before anything new starts.
void Scheduler::State::grow_again() {
  const std::set<uint64_t> growing = growing_;
  for (uint64_t id : growing) {
    const auto found = jobs_.find(id);
    if (found == jobs_.end() || found->second.stage != Stage::kGranted) {
      growing_.erase(id);
      continue;
    }
    Job& job = found->second;
    if (job.grows_from_ns > now_.monotonic_ns) continue;
    wire::Order told;
    told.kind = wire::OrderKind::kChange;
    told.notice = wire::NoticeKind::kResumed;
    told.text = "it has what it had before";
    told.share_millionths = granted_share(job);
    grow(job, std::move(told));
  }
}

// A server did not give it back: it has leases there that it granted by itself.
void Scheduler::State::stays_small(Job& job) {
  job.grown_millionths = 0;
  job.grows_from_ns = now_.monotonic_ns + kGrowsAgainNs;
  growing_.insert(job.id);
  if (job.in_engine && !placed(job).empty()) engine_.resize(job.id, placed(job));
}

// All its servers are told to end it. It counts until they say that it has.
void Scheduler::State::end_job(Job& job, const std::string& why) {
  if (job.stage == Stage::kEnding) return;
  set_stage(job, Stage::kEnding, 0);
  job.end_why = cut_text(why);
  tell_end(job);
}

void Scheduler::State::tell_end(Job& job) {
  wire::Order end;
  end.kind = wire::OrderKind::kEnd;
  end.notice = wire::NoticeKind::kEnded;
  end.text = job.end_why;
  tell_parts(job, std::move(end));
}

void Scheduler::State::finish_if_over(Job& job) {
  for (const Part& part : job.parts) {
    if (part.phase != PartPhase::kEnded) return;
  }
  if (!job.local || job.released) {
    end_write({keys::kGrant + std::to_string(job.id), std::nullopt});
  }
  ++totals_.ended;
  if (job.in_engine) engine_.ended(job.id, seconds());
  job.in_engine = false;
  plan_dirty_ = true;
  answer(job, base::Status(base::Code::kClosed,
                           "lease " + std::to_string(job.id) + " ended: " + job.end_why));
  if (job.lease_id != 0) job_by_lease_.erase(job.lease_id);
  const std::string& key = job.request.wish.request_key;
  if (!key.empty()) job_by_key_.erase(job.who.id + '\n' + key);
  if (job.changer != 0) {
    refuse_command(job.changer, base::Status(base::Code::kClosed, "the lease ended meanwhile"));
  }
  awaiting_.erase(job.id);
  growing_.erase(job.id);
  jobs_.erase(job.id);
}

// GPUs that the part had since it was last looked at, times that time, with what rounding left.
void Scheduler::State::grow_given(Part& part, uint64_t age_ns) {
  if (age_ns <= part.given_age_ns) return;
  uint64_t share = 0;
  for (const wire::SliceGrant& slice : part.slices)
    share += part.parked ? 0 : slice.share_millionths;
  const auto sum =
      static_cast<unsigned __int128>(age_ns - part.given_age_ns) * share + part.given_rest;
  part.given_gpu_ns += uint64_t(sum / kWholeGpu);
  part.given_rest = uint64_t(sum % kWholeGpu);
  part.given_age_ns = age_ns;
}

// What was asked, granted and used, of one lease on one server (pool/accounting). Its sums are
// those that the history has.
Write Scheduler::State::accounting(const Member& server, const Job& job, Part& part,
                                   const std::string& why) {
  UsedRecord record;
  record.exact = part.phase != PartPhase::kEnded || part.reported_ns == now_.monotonic_ns;
  const HistoryRow& all =
      note_use(server, job, part, record.exact ? LeaseEnd::kTold : LeaseEnd::kConcluded);
  record.sums = all.sums;
  record.lease = job.id & ((uint64_t(1) << kIdBits) - 1);
  record.server_lease = part.server_lease_id;
  record.server = server.record.name;
  record.owner_id = all.who.owner_id;
  record.owner = all.who.owner;
  record.account = all.who.account;
  record.user_class = all.who.user_class;
  record.gpu_class = all.who.gpu_class;
  record.program = job.request.client.program;
  record.host = job.request.client.host;
  record.asked_slices = job.request.count;
  record.asked_share_millionths = job.request.slice.share_millionths;
  record.asked_memory_bytes = job.request.slice.memory_bytes;
  record.asked_longest_s = job.request.wish.longest_s;
  for (const wire::SliceGrant& slice : part.slices) {
    record.gpus.push_back(slice.gpu_index);
    record.share_millionths += slice.share_millionths;
    record.memory_bytes += slice.memory_bytes;
  }
  record.submitted_at = job.submitted_s;
  record.granted_at = job.granted_s;
  record.ended_at = part.ended_s != 0 ? part.ended_s : now_.wall_s;
  record.attached = part.was_attached;
  record.local = job.local;
  record.why = base::printable(why, wire::kPoolTextBytesMax);
  const std::string key =
      used_key(server.record.name, part.boot, part.server_lease_id, all.who.lease);
  return {key, used_json(record)};
}

void Scheduler::State::save_usage() {
  usage_saved_ns_ = now_.monotonic_ns;
  if (!planning_ || deposed_) return;
  EngineRecord record;
  record.usage = engine_.usage();
  record.durations = engine_.durations();
  std::string bytes = pack(record);
  if (bytes == usage_bytes_) return;
  usage_bytes_ = std::move(bytes);
  write({{keys::kUsage, usage_bytes_}});
}

}  // namespace tendril::pool

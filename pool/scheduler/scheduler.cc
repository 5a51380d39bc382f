// SPDX-License-Identifier: Apache-2.0
// The scheduler's clockwork: events are passed on, timers fire, batches for the store are counted,
// and effects are gathered until the driver takes them.
#include "pool/scheduler/scheduler.h"

#include <algorithm>

#include "pool/scheduler/state.h"

namespace tendril::pool {

Scheduler::Scheduler(SchedulerOptions options)
    : state_(std::make_unique<State>(std::move(options))) {}
Scheduler::~Scheduler() = default;

void Scheduler::recover(const std::vector<std::pair<std::string, std::string>>& records, Now now) {
  state_->recover(records, now);
}
void Scheduler::reported(uint64_t connection, const std::string& proven_name,
                         const wire::PoolReport& report, Now now) {
  state_->reported(connection, proven_name, report, now);
}
void Scheduler::lost(uint64_t connection, Now now) { state_->lost(connection, now); }
void Scheduler::submitted(uint64_t connection, const Asker& who, const wire::LeaseRequest& request,
                          Now now) {
  state_->submitted(connection, who, request, now);
}
void Scheduler::left(uint64_t connection, bool orderly, Now now) {
  state_->left(connection, orderly, now);
}
void Scheduler::command(uint64_t connection, const Asker& who, const wire::PoolCommand& command,
                        Now now) {
  state_->command(connection, who, command, now);
}
void Scheduler::stored(uint64_t batch, const base::Status& status, Now now) {
  state_->stored(batch, status, now);
}
Effects Scheduler::tick(Now now) { return state_->tick(now); }
wire::ListReply Scheduler::list(const wire::ListRequest& request, const Asker& who, Now now) const {
  return state_->list(request, who, now);
}
const std::string& Scheduler::policy_text() const { return state_->policy_record.text; }
uint64_t Scheduler::policy_revision() const { return state_->policy_record.revision; }
std::string Scheduler::figures(Now now) { return state_->figures(now); }
Scheduler::Counts Scheduler::counts() const { return state_->counts(); }

Scheduler::State::State(SchedulerOptions given)
    : options(std::move(given)), history_(options.history) {
  if (!options.zones) options.zones = only_utc;
}

const char* phase_name(PartPhase phase) {
  switch (phase) {
    case PartPhase::kUnknown:
      return "unknown";
    case PartPhase::kAsked:
      return "asked";
    case PartPhase::kHeld:
      return "held";
    case PartPhase::kCommitting:
      return "committing";
    case PartPhase::kCommitted:
      return "committed";
    case PartPhase::kClaimed:
      return "claimed";
    case PartPhase::kEnded:
      return "ended";
  }
  return "";
}

// Time stands still between events: a driver's clock that runs backwards is not believed.
void Scheduler::State::arrive(Now now) {
  now.monotonic_ns = std::max(now.monotonic_ns, now_.monotonic_ns);
  now_ = now;
  history_ns_ = history_.clock(now.monotonic_ns, now.wall_s);
}

void Scheduler::State::event(const char* what, const std::string& object, const std::string& text) {
  effects_.events.push_back({what, object, text});
}

void Scheduler::State::set_stage(Job& job, Stage stage, uint64_t lasts_ns) {
  job.stage = stage;
  job.stage_due_ns = lasts_ns == 0 ? kNotAgain : now_.monotonic_ns + lasts_ns;
  if (lasts_ns != 0) arm(job.stage_due_ns, Timer::kStage, job.id);
}

// ---- store ----

uint64_t Scheduler::State::write(std::vector<Write> writes) {
  effects_.writes.push_back({next_batch_, std::move(writes)});
  unstored_.push_back({next_batch_, now_.monotonic_ns});
  return next_batch_++;
}

// Numbers are reserved in the store before they are used, so a later scheduler never gives one
// again.
uint64_t Scheduler::State::new_id() {
  if (next_id_ > ids_reserved_) {
    ids_reserved_ = next_id_ + kIdsAtOnce;
    MetaRecord meta;
    meta.ids_used = ids_reserved_;
    write({{keys::kMeta, pack(meta)}});
  }
  return next_id_++;
}

bool Scheduler::State::store_is_slow() const {
  return !unstored_.empty() && now_.monotonic_ns - unstored_.front().second > kStoreSlowNs;
}

void Scheduler::State::stored(uint64_t batch, const base::Status& status, Now now) {
  arrive(now);
  if (!status.ok()) {
    if (store_trouble_ != status.message()) event("store", options.pool, status.message());
    store_trouble_ = status.message();
    news_dirty_ = true;
    return;
  }
  if (!store_trouble_.empty()) event("store", options.pool, "the store writes again");
  store_trouble_.clear();
  stored_batch_ = std::max(stored_batch_, batch);
  while (!unstored_.empty() && unstored_.front().first <= batch) unstored_.pop_front();

  for (auto coming = coming_policies_.begin();
       coming != coming_policies_.end() && coming->first <= batch;) {
    policy_record = std::move(coming->second.first);
    use_policy(std::move(coming->second.second));
    coming = coming_policies_.erase(coming);
  }
  for (auto answer = command_answers_.begin();
       answer != command_answers_.end() && answer->first <= batch;) {
    effects_.to_commanders.push_back(std::move(answer->second));
    answer = command_answers_.erase(answer);
  }
  for (const auto& each : members_) {
    if (each == nullptr) continue;
    while (!each->ended_batches.empty() && each->ended_batches.front().first <= batch) {
      each->ended_stored = std::max(each->ended_stored, each->ended_batches.front().second);
      each->ended_batches.pop_front();
    }
  }
  const std::set<uint64_t> awaiting = std::move(awaiting_);
  awaiting_.clear();
  for (uint64_t id : awaiting) {
    auto job = jobs_.find(id);
    if (job == jobs_.end()) continue;
    if (job->second.batch > batch) {
      awaiting_.insert(id);
    } else if (job->second.stage == Stage::kGranting) {
      job->second.granted_stored = true;
      commit(job->second);
    } else if (!job->second.stored) {
      job->second.stored = true;
      news_dirty_ = true;
    }
  }
}

// ---- time ----

void Scheduler::State::fire(const Due& due) {
  const auto [due_ns, timer, id] = due;
  if (timer == Timer::kReply || timer == Timer::kSilence) {
    Member* server = id < members_.size() ? member(uint32_t(id)) : nullptr;
    if (server == nullptr) return;
    if (timer == Timer::kReply) {
      if (server->reply_due_ns <= now_.monotonic_ns) reply_now_.insert(server->number);
    } else if (!server->silent) {
      silence(*server);
    }
    return;
  }
  if (timer == Timer::kRemnant) return remnant_gone(id, kNoServer);
  auto found = jobs_.find(id);
  if (timer == Timer::kOther || found == jobs_.end()) return;
  Job& job = found->second;
  if (timer == Timer::kStage && job.stage_due_ns == due_ns) {
    job.stage_due_ns = kNotAgain;
    if (job.recovered) {
      // A client that asks again has claimed nothing, so its lease may be given up. Without one, a
      // program may run on a server that is silent.
      settle_recovered(job, job.committed || job.connection != 0);
      if (jobs_.count(id) != 0 && job.recovered) set_stage(job, job.stage, kCommitAnswerNs);
    } else if (job.stage == Stage::kHolding || job.stage == Stage::kCommitting) {
      uint32_t late = kNoServer;
      for (const Part& part : job.parts) {
        if (part.order_id != 0) late = part.server;
      }
      attempt_failed(job, late, "a server did not answer in time");
    }
  } else if (timer == Timer::kAbsent && job.absent_due_ns == due_ns) {
    if (job.stage == Stage::kWaiting && job.connection == 0) {
      event("leave", "request " + std::to_string(job.id), "its client did not come back");
      drop_job(job);
    }
  } else if (timer == Timer::kLife && job.life_due_ns == due_ns) {
    job.life_due_ns = kNotAgain;
    look_at_life(job);
  } else if (timer == Timer::kLoss && job.loss_due_ns == due_ns) {
    end_the_rest(job);
  }
}

Effects Scheduler::State::tick(Now now) {
  arrive(now);
  while (!timers_.empty() && std::get<0>(timers_.top()) <= now_.monotonic_ns) {
    const Due due = timers_.top();
    timers_.pop();
    fire(due);
  }
  if (!planning_ && planning_due_ns_ <= now_.monotonic_ns) begin_planning();
  flush_ends();
  write_history();
  refresh_policy(false);
  if (plan_due_ns_ <= now_.monotonic_ns) plan_dirty_ = true;
  if (plan_dirty_) plan();
  hurry_reports();
  tell_waiting();
  if (now_.monotonic_ns - usage_saved_ns_ >= kUsageEveryNs) save_usage();

  const std::set<uint32_t> replies = std::move(reply_now_);
  reply_now_.clear();
  for (uint32_t number : replies) {
    if (members_[number] != nullptr) answer_report(*members_[number]);
  }
  Effects effects = std::move(effects_);
  effects_ = Effects();
  effects.again_ns = now_.monotonic_ns + kUsageEveryNs;
  if (!timers_.empty()) effects.again_ns = std::min(effects.again_ns, std::get<0>(timers_.top()));
  effects.again_ns = std::min(effects.again_ns, history_due_ns());
  if (planning_) effects.again_ns = std::min(effects.again_ns, plan_due_ns_);
  if (!planning_) effects.again_ns = std::min(effects.again_ns, planning_due_ns_);
  if (news_dirty_) {
    effects.again_ns = std::min(effects.again_ns, news_pass_ns_ + news_pass_every_ns());
  }
  if (plan_dirty_) effects.again_ns = std::min(effects.again_ns, now_.monotonic_ns + kSecond);
  if (!job_by_connection_.empty()) {
    effects.again_ns = std::min(effects.again_ns, now_.monotonic_ns + kSecond);
  }
  return effects;
}

// Of a class, by all accounts. What a server that drains has free is neither given nor unused.
uint64_t Scheduler::State::given(uint32_t gpu_class) const {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < effective_.accounts.size(); ++i) {
    if (effective_.accounts[i].parent == kNoAccount) sum += engine_.used(i, gpu_class);
  }
  return sum;
}

Scheduler::Counts Scheduler::State::counts() const {
  Counts counts;
  for (const auto& each : members_) {
    if (each == nullptr) continue;
    ++counts.servers;
    if (each->silent) ++counts.servers_silent;
  }
  for (const auto& [id, job] : jobs_) {
    ++(job.stage < Stage::kGranted ? counts.waiting : counts.leases);
  }
  for (uint32_t i = 0; i < effective_.gpu_classes.size(); ++i) {
    counts.share_millionths += engine_.capacity(i);
    counts.share_given_millionths += given(i);
  }
  counts.batches_unstored = unstored_.size();
  return counts;
}

}  // namespace tendril::pool

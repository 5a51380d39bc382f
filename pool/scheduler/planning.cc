// SPDX-License-Identifier: Apache-2.0
// What the engine is told and what it plans: the policy in effect, who starts, who must make room,
// and what those who wait are told.
#include <algorithm>
#include <cstdlib>

#include "base/text.h"
#include "pool/scheduler/state.h"

namespace tendril::pool {

using base::Code;
using base::format;
using base::Status;

namespace {

constexpr int64_t kClockStepS = 2;  // more than rounding makes
constexpr int64_t kLittleS = 60;    // what clocks show without seconds

std::string cut_news(std::string text) {
  if (text.size() > wire::kNewsTextBytesMax) text.resize(wire::kNewsTextBytesMax);
  return text;
}

bool equal(const wire::News& a, const wire::News& b) {
  return a.text == b.text && a.place == b.place && a.of == b.of && a.queue == b.queue &&
         a.reason == b.reason && a.start == b.start;
}

}  // namespace

// ---- policy ----

void Scheduler::State::use_policy(PoolPolicy policy) {
  policy_ = std::move(policy);
  has_policy_ = true;
  if (!policy_.name.empty()) options.pool = policy_.name;
  peers_.allow(policy_.servers_are_peers);
  refresh_policy(true);
}

// The policy depends on the time of day. The wall's clock may also be set.
void Scheduler::State::refresh_policy(bool changed) {
  if (!has_policy_) return;
  const int64_t ahead_s = now_.wall_s - seconds();
  const bool was_set =
      ahead_s - wall_ahead_s_ > kClockStepS || wall_ahead_s_ - ahead_s > kClockStepS;
  const bool expired = now_.wall_s >= effective_to_s_ || now_.wall_s < effective_from_s_ || was_set;
  if (!changed && !expired) return;
  effective_ = effective(policy_, now_.wall_s);
  effective_from_s_ = now_.wall_s;
  wall_ahead_s_ = ahead_s;
  effective_to_s_ = next_change(policy_, now_.wall_s);
  engine_.set_policy(effective_, now_.wall_s, seconds());
  for (const auto& each : members_) {
    if (each == nullptr) continue;
    describe_to_engine(*each);
    set_engine_maintenance(*each);
  }
  if (planning_) enter_all();
  plan_dirty_ = news_dirty_ = true;
}

// Requests get the classes that they may use now.
void Scheduler::State::enter_all() {
  std::vector<uint64_t> waiting;
  for (const auto& [id, job] : jobs_) {
    if (job.stage == Stage::kWaiting && job.connection != 0) waiting.push_back(id);
  }
  for (uint64_t id : waiting) enter_again(jobs_.at(id));
}

// One that can no longer start stays if the policy will change by itself, and says why.
void Scheduler::State::enter_again(Job& job) {
  if (job.stage != Stage::kWaiting || job.connection == 0) return;
  if (job.in_engine) engine_.withdraw(job.id);
  job.in_engine = false;
  const Status status = enter(job);
  if (status.ok()) return;
  if (effective_to_s_ == kNever) {
    answer(job, status);
    drop_job(job);
    return;
  }
  job.parked = status.message();
  parked_.insert(job.id);
}

void Scheduler::State::enter_parked() {
  const std::set<uint64_t> parked = std::move(parked_);
  parked_.clear();
  for (uint64_t id : parked) {
    auto job = jobs_.find(id);
    if (job != jobs_.end() && planning_) enter_again(job->second);
  }
}

// ---- plans ----

bool Scheduler::State::may_plan(std::string* why) const {
  if (deposed_) {
    *why = "another scheduler has taken over";
  } else if (!planning_) {
    *why = "the pool's servers are still reporting";
  } else if (store_is_slow()) {
    *why = store_trouble_.empty() ? "the pool's store does not answer" : store_trouble_;
  } else {
    return true;
  }
  return false;
}

void Scheduler::State::plan() {
  std::string why;
  if (!may_plan(&why)) {
    news_dirty_ = true;
    return;
  }
  plan_dirty_ = false;
  wake_sleepers();
  grow_again();
  EnginePlan plan = engine_.plan(seconds());
  for (const EngineStart& start : plan.starts) {
    auto found = jobs_.find(start.id);
    if (found == jobs_.end()) {
      engine_.ended(start.id, seconds());
      continue;
    }
    Job& job = found->second;
    if (start.gpu_class < effective_.gpu_classes.size()) {
      job.gpu_class = effective_.gpu_classes[start.gpu_class].name;
    }
    place_parts(job, start);
    hold(job);
  }
  tell_sleepers();
  for (EngineReclaim& reclaim : plan.reclaims) {
    auto found = jobs_.find(reclaim.id);
    if (found == jobs_.end()) continue;
    found->second.reclaim = true;
    found->second.reclaim_why = std::move(reclaim.why);
    look_at_life(found->second);
  }
  plan_due_ns_ = plan.again_s == kNever
                     ? kNotAgain
                     : std::max(now_.monotonic_ns + kMillisecond,
                                uint64_t(std::max<int64_t>(plan.again_s, 0)) * kSecond);
  if (!growing_.empty()) plan_due_ns_ = std::min(plan_due_ns_, now_.monotonic_ns + kGrowsAgainNs);
  news_dirty_ = true;
  refuse_who_will_not_wait();
}

void Scheduler::State::refuse_who_will_not_wait() {
  if (hurried_.empty()) return;
  waiting_ = engine_.waiting(seconds());
  std::map<uint64_t, const EngineWaiting*> by_id;
  for (const EngineWaiting& waiting : waiting_) by_id[waiting.id] = &waiting;
  const std::set<uint64_t> hurried = hurried_;
  for (uint64_t id : hurried) {
    auto found = jobs_.find(id);
    if (found == jobs_.end() || found->second.stage != Stage::kWaiting) continue;
    Job& job = found->second;
    auto waiting = by_id.find(id);
    std::string why = parked_text(job);
    if (waiting != by_id.end()) {
      why = reason_text(waiting->second->reason, numbers_text(*waiting->second));
    }
    answer(job, Status(Code::kUnavailable, "pool " + options.pool +
                                               " has nothing free for this request now (" + why +
                                               "); let it wait for its turn, or ask for less"));
    drop_job(job);
  }
}

// ---- news ----

std::string Scheduler::State::clock_text(int64_t wall_s) const {
  return format_clock(wall_s, now_.wall_s, policy_.zone);
}

ToldTimes Scheduler::State::times_of(const EngineWaiting& waiting) const {
  const auto wall = [this](int64_t engine_s) {
    return engine_s == kNever ? kNever : std::max(wall_of(engine_s), now_.wall_s);
  };
  return ToldTimes{wall(waiting.start_from_s), wall(waiting.start_to_s), wall(waiting.reclaimed_s)};
}

std::string Scheduler::State::start_text(const ToldTimes& times, const std::string& why) const {
  std::string text;
  if (times.from_s != kNever && times.to_s != kNever) {
    const std::string from = clock_text(times.from_s), to = clock_text(times.to_s);
    text = from == to ? "at " + from : "between " + from + " and " + to;
  } else if (times.from_s != kNever) {
    text = "not before " + clock_text(times.from_s);
  } else if (times.to_s != kNever) {
    text = "by " + clock_text(times.to_s);
  }
  if (!text.empty() && !why.empty()) text += " (" + why + ")";
  return text;
}

// "vision holds 2.0 of 4.0 top, 2.0 lent to nlp; those are reclaimed at 14:10"
std::string Scheduler::State::numbers_text(const EngineWaiting& waiting, int64_t wall_s) const {
  if (waiting.reclaimed.empty() || wall_s == kNever) return waiting.text;
  return waiting.text + "; " + waiting.reclaimed + " are reclaimed at " + clock_text(wall_s);
}

std::string Scheduler::State::numbers_text(const EngineWaiting& waiting) const {
  return numbers_text(waiting, times_of(waiting).reclaimed_s);
}

// What was told stays if it differs by little: by a tenth of the time until the latest start, or
// by a minute. So who waits does not read the same line again and again.
ToldTimes Scheduler::State::damped(const ToldTimes& told, const ToldTimes& fresh,
                                   int64_t submitted_s) const {
  const auto damp = [this](int64_t told_s, int64_t new_s, int64_t span_s) {
    if (told_s == kNever || new_s == kNever) return new_s;
    const int64_t moved_s = new_s - std::max(told_s, now_.wall_s);
    return std::abs(moved_s) <= std::max(kLittleS, span_s / 10) ? told_s : new_s;
  };
  // What was to happen by then, and did not, is told again.
  const auto damp_end = [&](int64_t told_s, int64_t new_s) {
    return told_s < now_.wall_s - kLittleS ? new_s : damp(told_s, new_s, new_s - now_.wall_s);
  };
  const int64_t span_s =
      fresh.to_s == kNever ? fresh.from_s - submitted_s : fresh.to_s - now_.wall_s;
  return ToldTimes{damp(told.from_s, fresh.from_s, span_s), damp_end(told.to_s, fresh.to_s),
                   damp_end(told.reclaimed_s, fresh.reclaimed_s)};
}

// Why one that is not in the engine's queue waits.
std::string Scheduler::State::parked_text(const Job& job) const {
  if (job.parked.empty()) return std::string();
  return reason_text(planning_ ? WaitReason::kSchedule : WaitReason::kServersDown, job.parked);
}

wire::News Scheduler::State::news_of(Job& job, const EngineWaiting* waiting) const {
  wire::News news;
  std::string why;
  if (!job.stored) {
    news.text = store_trouble_.empty()
                    ? "the pool has not stored this request yet"
                    : "the pool cannot store this request yet: " + store_trouble_;
  } else if (!may_plan(&why)) {
    news.text = "nothing starts now: " + why;
  }
  news.text = cut_news(std::move(news.text));
  if (!job.stored) return news;
  if (waiting != nullptr && job.stage == Stage::kWaiting) {
    news.place = waiting->place;
    news.of = waiting->of;
    news.queue = cut_news(class_name(waiting->gpu_class) + " (account " + job.account + ")");
    job.told_times = damped(job.told_times, times_of(*waiting), job.submitted_s);
    news.reason =
        cut_news(reason_text(waiting->reason, numbers_text(*waiting, job.told_times.reclaimed_s)));
    news.start = cut_news(start_text(job.told_times, waiting->start_why));
  } else if (job.stage == Stage::kWaiting && !job.parked.empty()) {
    news.reason = cut_news(parked_text(job));
  } else if (job.stage > Stage::kWaiting && news.text.empty()) {
    news.text = "its servers are being asked";
  }
  return news;
}

// Between two looks at all that wait. The engine searches for the reason of each, so a long queue
// is looked at less often.
uint64_t Scheduler::State::news_pass_every_ns() const {
  const uint64_t of_all_ns = engine_.waiting_count() * kNewsOfEachNs;
  return std::max(std::min(of_all_ns, kNewsEveryNs), uint64_t(options.news_ms) * kMillisecond);
}

// One news at once, then on change only; and now and then, as a sign that the pool lives.
void Scheduler::State::tell_waiting() {
  const bool looks = news_dirty_ && now_.monotonic_ns - news_pass_ns_ >= news_pass_every_ns();
  const bool signs = now_.monotonic_ns - signs_ns_ >= kSecond && !job_by_connection_.empty();
  if (!looks && !signs) return;
  signs_ns_ = now_.monotonic_ns;
  if (looks) {
    waiting_ = engine_.waiting(seconds());
    news_dirty_ = false;
    news_pass_ns_ = now_.monotonic_ns;
  }
  std::unordered_map<uint64_t, const EngineWaiting*> by_id;
  for (const EngineWaiting& waiting : waiting_) by_id[waiting.id] = &waiting;
  for (const auto& [connection, id] : job_by_connection_) {
    Job& job = jobs_.at(id);
    const bool late = now_.monotonic_ns - job.told_ns >= kNewsEveryNs;
    if (job.stage > Stage::kCommitting || (!looks && !(job.was_told && late))) continue;
    auto waiting = by_id.find(id);
    wire::News news = news_of(job, waiting == by_id.end() ? nullptr : waiting->second);
    if (job.was_told && !late && equal(news, job.told)) continue;
    job.told = news;
    job.told_ns = now_.monotonic_ns;
    job.was_told = true;
    effects_.news.push_back({connection, std::move(news)});
  }
  std::sort(effects_.news.begin(), effects_.news.end(),
            [](const Effects::NewsTo& a, const Effects::NewsTo& b) {
              return a.connection < b.connection;
            });
}

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// See fake_process.h.
#include "pool/simulation/fake_process.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "pool/simulation/world.h"

namespace tendril::pool::simulation {

FakeProcess::FakeProcess(World* world, size_t index)
    : world_(world), index_(index), clock_offset_ns_(world->clock().between(1, 1000) * kHour) {}

Now FakeProcess::now() const {
  const int64_t now_ns = world_->now_ns();
  return {static_cast<uint64_t>(now_ns + clock_offset_ns_),
          world_->wall_s(now_ns) + wall_offset_s_};
}

bool FakeProcess::stalled() const { return world_->now_ns() < stalled_until_ns_; }

void FakeProcess::later(int64_t span_ns, std::function<void()> action) {
  world_->clock().in(span_ns, [this, life = life_, action = std::move(action)] {
    if (life != life_ || !alive_) return;
    if (!stalled()) return action();
    later(stalled_until_ns_ - world_->now_ns(), action);
  });
}

void FakeProcess::start() {
  if (alive_) return;
  alive_ = true;
  ++life_;
  stalled_until_ns_ = 0;
  clock_offset_ns_ = world_->clock().between(1, 1000) * kHour;
  later(world_->clock().between(0, kSecond), [this] { campaign(); });
}

void FakeProcess::die() {
  if (!alive_) return;
  stop();
  alive_ = false;
  ++life_;
}

void FakeProcess::stall(int64_t for_ns) {
  stalled_until_ns_ = std::max(stalled_until_ns_, world_->now_ns() + for_ns);
  world_->clock().at(stalled_until_ns_, [this, life = life_] {
    if (life != life_ || stalled()) return;
    while (!inbox_.empty() && scheduler_) {
      const auto action = std::move(inbox_.front());
      inbox_.pop_front();
      perform(action);
    }
    inbox_.clear();
  });
}

void FakeProcess::campaign() {
  uint64_t term = 0;
  const int64_t asked_ns = world_->now_ns();
  const auto outcome = world_->store().campaign(index_, asked_ns, &term);
  if (outcome == FakeStore::Outcome::kDone) {
    kept_ns_ = asked_ns;
    return later(world_->store_delay_ns(), [this, term] { begin(term); });
  }
  later(kSecond, [this] { campaign(); });
}

void FakeProcess::begin(uint64_t term) {
  if (world_->now_ns() - kept_ns_ >= FakeStore::kLockNs) return campaign();
  term_ = term;
  SchedulerOptions options;
  options.pool = "lab";
  options.scheduler = "pool" + std::to_string(index_);
  options.term = term;
  options.hurried_ms = uint32_t(wire::kReportEveryMs);  // simulated days cost less so
  options.news_ms = world_->options().news_ms;          // this, too
  options.report_ms = uint32_t(wire::kReportEveryMs);
  options.history.least_step_s = 10;
  scheduler_ = std::make_unique<Scheduler>(options);
  world_->log(options.scheduler + " schedules in term " + std::to_string(term));
  auto records = world_->store().read(Scheduler::kStorePrefix);
  std::vector<std::pair<std::string, std::string>> past;
  const auto list = [&](const std::vector<HistoryRead>& reads) {
    for (const HistoryRead& each : reads) {
      for (auto& record : world_->store().read(each.prefix, each.after))
        past.push_back(std::move(record));
    }
  };
  list(first_history_reads());
  list(later_history_reads(past));
  records.insert(records.end(), std::make_move_iterator(past.begin()),
                 std::make_move_iterator(past.end()));
  scheduler_->recover(records, now());
  keep_later();
  world_->announce(index_);
  turn();
}

void FakeProcess::keep_later() {
  later(3 * kSecond, [this] { keep(); });
}

void FakeProcess::keep() {
  const int64_t asked_ns = world_->now_ns();
  const auto outcome = world_->store().keep(index_, term_, asked_ns);
  if (outcome == FakeStore::Outcome::kDone) kept_ns_ = asked_ns;
  if (outcome == FakeStore::Outcome::kDeposed ||
      asked_ns - kept_ns_ >= FakeStore::kLockNs - kSecond) {
    stop();
    return later(kSecond, [this] { campaign(); });
  }
  keep_later();
}

void FakeProcess::resign() {
  if (!scheduler_) return;
  const uint64_t term = term_;
  stop();
  world_->store().resign(index_, term);
  later(5 * kSecond, [this] { campaign(); });
}

// What it had not written is lost with it, so nobody was told of it.
void FakeProcess::stop() {
  if (scheduler_) world_->log("pool" + std::to_string(index_) + " stops");
  scheduler_.reset();
  ++life_;
  unwritten_.clear();
  inbox_.clear();
  writing_ = false;
  wake_ns_ = INT64_MAX;
  world_->process_stopped(index_);
}

void FakeProcess::event(std::function<void(Scheduler*, Now)> action) {
  if (!alive_ || !scheduler_) return;
  if (stalled() || !inbox_.empty()) {
    inbox_.push_back(std::move(action));
  } else {
    perform(action);
  }
}

void FakeProcess::perform(const std::function<void(Scheduler*, Now)>& action) {
  if (world_->now_ns() - kept_ns_ >= FakeStore::kLockNs) {
    stop();
    return later(kSecond, [this] { campaign(); });
  }
  action(scheduler_.get(), now());
  turn();
}

void FakeProcess::turn() {
  Effects effects = scheduler_->tick(now());
  const uint64_t again_ns = effects.again_ns;
  give(std::move(effects));
  if (again_ns == kNotAgain || !scheduler_) return;
  const int64_t wake_ns = std::max<int64_t>(static_cast<int64_t>(again_ns) - clock_offset_ns_,
                                            world_->now_ns() + kMillisecond);
  if (wake_ns >= wake_ns_) return;
  wake_ns_ = wake_ns;
  later(wake_ns - world_->now_ns(), [this, wake_ns] {
    if (wake_ns_ != wake_ns || !scheduler_) return;
    wake_ns_ = INT64_MAX;
    perform([](Scheduler*, Now) {});
  });
}

void FakeProcess::give(Effects effects) {
  for (Effects::Event& event : effects.events) {
    if (event.what == "retry") world_->rules().attempt_failed();
    world_->log("  [" + event.what + "] " + event.object + ": " + event.text);
  }
  for (auto& to : effects.to_servers) world_->answer_server(index_, std::move(to));
  for (auto& to : effects.to_clients) world_->answer_client(index_, std::move(to));
  for (auto& to : effects.news) world_->news(index_, std::move(to));
  for (auto& to : effects.to_commanders) world_->command_answered(std::move(to));
  for (Batch& batch : effects.writes) {
    std::set<std::string> keys;
    for (const Write& write : batch.writes) keys.insert(write.key);
    if (keys.size() != batch.writes.size() || batch.writes.size() > kWritesMax) {
      world_->checks().fail("a batch has a key twice, or " + std::to_string(batch.writes.size()) +
                            " writes");
    }
    unwritten_.push_back(std::move(batch));
  }
  if (!writing_) write_next();
}

void FakeProcess::write_next() {
  if (unwritten_.empty()) return;
  writing_ = true;
  later(world_->store_delay_ns(), [this] {
    written(world_->store().write(index_, term_, unwritten_.front(), world_->now_ns()));
  });
}

void FakeProcess::written(FakeStore::Outcome outcome) {
  if (outcome == FakeStore::Outcome::kDeposed) {
    stop();
    return later(kSecond, [this] { campaign(); });
  }
  const uint64_t number = unwritten_.front().number;
  base::Status status;
  if (outcome == FakeStore::Outcome::kDone) {
    unwritten_.pop_front();
  } else {
    status = base::Status(base::Code::kUnavailable, "the store does not answer");
  }
  writing_ = false;
  if (status.ok() && !unwritten_.empty()) {
    write_next();
  } else if (!status.ok()) {
    writing_ = true;
    later(kSecond, [this] { write_next(); });
  }
  event(
      [number, status](Scheduler* scheduler, Now now) { scheduler->stored(number, status, now); });
}

}  // namespace tendril::pool::simulation

// SPDX-License-Identifier: Apache-2.0
// A process that runs a Scheduler in a simulated world, as scheduler/ does in the real one: it
// campaigns for the lock, keeps it, stops at its own clock's end of it, passes events and writes
// batches. It can die, stall, and have a wall clock that steps.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pool/scheduler/scheduler.h"
#include "pool/simulation/clockwork.h"
#include "pool/simulation/fake_store.h"

namespace tendril::pool::simulation {

class World;

class FakeProcess {
 public:
  FakeProcess(World* world, size_t index);

  void start();
  void die();
  void stall(int64_t for_ns);
  void step_wall(int64_t by_s) { wall_offset_s_ += by_s; }
  // Gives its term up in order.
  void resign();

  bool alive() const { return alive_; }
  bool schedules() const { return scheduler_ != nullptr; }
  bool stalled() const;
  uint64_t term() const { return term_; }
  Scheduler* scheduler() { return scheduler_.get(); }
  Now now() const;

  // An event for its Scheduler. A process that stalls performs it later; one that does not schedule
  // drops it.
  void event(std::function<void(Scheduler*, Now)> action);

 private:
  void campaign();
  void keep();
  void keep_later();
  void begin(uint64_t term);
  void stop();
  void perform(const std::function<void(Scheduler*, Now)>& action);
  void turn();
  void give(Effects effects);
  void write_next();
  void written(FakeStore::Outcome outcome);
  // Runs unless this life or term of the process is over by then.
  void later(int64_t span_ns, std::function<void()> action);

  World* const world_;
  const size_t index_;
  int64_t clock_offset_ns_;
  int64_t wall_offset_s_ = 0;
  bool alive_ = false;
  uint64_t life_ = 0;  // counts starts and stops, to make what was planned before obsolete
  int64_t stalled_until_ns_ = 0;
  std::deque<std::function<void(Scheduler*, Now)>> inbox_;  // while it stalls
  std::unique_ptr<Scheduler> scheduler_;
  uint64_t term_ = 0;
  int64_t kept_ns_ = 0;  // when it asked for what it last knew of the lock
  std::deque<Batch> unwritten_;
  bool writing_ = false;
  int64_t wake_ns_ = INT64_MAX;
};

}  // namespace tendril::pool::simulation

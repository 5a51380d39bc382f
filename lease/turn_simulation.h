// SPDX-License-Identifier: Apache-2.0
// A GPU, workers and their programs on simulated time, for tests of the turn policy. It models
// kernels that cannot be interrupted, a window of unfinished work, programs that wait for each
// piece, and the price of a switch. It records to the nanosecond what the GPU did for whom.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "lease/turn_policy.h"

namespace tendril::lease {

constexpr uint64_t kMs = 1'000'000, kSecond = 1'000'000'000;

// What a program does on the GPU.
struct Load {
  uint64_t piece_ns = 500'000;  // a kernel, or a graph: once begun, it runs to its end
  uint64_t gap_ns = 0;  // not 0: it waits for each piece and sends the next one this much later
  uint64_t from_ns = 0, to_ns = UINT64_MAX;
  uint64_t in_flight = 1;  // pieces submitted at a time, if they are long
};

class TurnSimulation {
 public:
  struct Costs {
    uint64_t begin_ns = 60'000;  // from a decision to the first kernel's start
    uint64_t end_ns = 40'000;    // from the last kernel's end until tendrild knows
    uint64_t window_ns = 1 * kMs;
    uint64_t linger_ns = 1 * kMs;
    uint64_t jitter_ns = 0;  // begin and end take up to this much longer, by chance
  };

  TurnSimulation() : TurnSimulation(TurnRules{}, Costs{}) {}
  TurnSimulation(const TurnRules& rules, const Costs& costs) : policy_(rules), costs_(costs) {}

  uint64_t add(const TurnTerms& terms, const Load& load);
  void at(uint64_t time_ns, std::function<void()> action);
  // The program has no work in this interval. Otherwise it always has more.
  void pause(uint64_t tenant, uint64_t from_ns, uint64_t to_ns);
  void run(uint64_t until_ns);

  TurnPolicy& policy() { return policy_; }
  uint64_t now_ns() const { return now_ns_; }
  // The part of the time between the two points in which `tenant` had the GPU.
  double delivered(uint64_t tenant, uint64_t from_ns, uint64_t to_ns) const;
  // The largest and the smallest such part over all intervals of this length that begin at a
  // multiple of 10 ms.
  std::pair<double, double> extremes(uint64_t tenant, uint64_t from_ns, uint64_t to_ns,
                                     uint64_t length_ns) const;
  uint64_t first_after(uint64_t tenant, uint64_t time_ns) const;  // when it next had the GPU
  std::vector<uint64_t> starts(uint64_t tenant) const;            // of its turns' first pieces
  uint64_t turns() const { return turns_; }
  uint64_t decisions() const { return decisions_; }

 private:
  struct Span {
    uint64_t from_ns, to_ns;
  };
  struct Program {
    uint64_t id = 0;
    Load load;
    bool holding = false, draining = false, wants = false;
    uint64_t until_ns = 0, start_ns = 0;
    uint64_t version = 0;  // makes events of an earlier turn or an earlier end obsolete
    std::vector<Span> spans;
    std::vector<uint64_t> sums_ns;  // before each span
    std::vector<uint64_t> starts;
  };

  void settle();
  void come(Program* program);
  void rest(Program* program);
  void begin(Program* program, uint64_t until_ns);
  void plan_end(Program* program);
  void run_piece(Program* program);
  void give_up(Program* program);
  void used(Program* program, uint64_t from_ns, uint64_t to_ns);
  uint64_t with_jitter(uint64_t cost_ns);
  static uint64_t used_before(const Program& program, uint64_t time_ns);

  struct Event {
    uint64_t time_ns, order;
    std::function<void()> action;
    bool operator>(const Event& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : order > other.order;
    }
  };

  TurnPolicy policy_;
  const Costs costs_;
  std::minstd_rand chance_{1};
  uint64_t now_ns_ = 0, order_ = 0, turns_ = 0, decisions_ = 0, look_planned_ns_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::map<uint64_t, std::unique_ptr<Program>> programs_;
};

}  // namespace tendril::lease

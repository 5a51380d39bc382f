// SPDX-License-Identifier: Apache-2.0
// See turn_simulation.h.
#include "lease/turn_simulation.h"

#include <algorithm>

namespace tendril::lease {

void TurnSimulation::at(uint64_t time_ns, std::function<void()> action) {
  events_.push({std::max(time_ns, now_ns_), order_++, std::move(action)});
}

uint64_t TurnSimulation::add(const TurnTerms& terms, const Load& load) {
  auto program = std::make_unique<Program>();
  Program* const raw = program.get();
  raw->id = programs_.size() + 1;
  raw->load = load;
  programs_[raw->id] = std::move(program);
  policy_.add(now_ns_, raw->id, terms);
  at(load.from_ns, [this, raw] { come(raw); });
  if (load.to_ns != UINT64_MAX) at(load.to_ns, [this, raw] { rest(raw); });
  return raw->id;
}

uint64_t TurnSimulation::with_jitter(uint64_t cost_ns) {
  return costs_.jitter_ns == 0 ? cost_ns : cost_ns + chance_() % costs_.jitter_ns;
}

void TurnSimulation::rest(Program* program) {
  program->wants = false;
  if (program->holding) return plan_end(program);
  policy_.set_wanting(now_ns_, program->id, false);
}

void TurnSimulation::pause(uint64_t tenant, uint64_t from_ns, uint64_t to_ns) {
  Program* const program = programs_.at(tenant).get();
  at(from_ns, [this, program, from_ns] {
    program->load.to_ns = from_ns;
    rest(program);
  });
  at(to_ns, [this, program] {
    program->load.to_ns = UINT64_MAX;
    come(program);
    if (program->holding) plan_end(program);
  });
}

void TurnSimulation::run(uint64_t until_ns) {
  // A policy that always wants to look again at once would stop time.
  const uint64_t most = decisions_ + 10'000'000;
  while (!events_.empty() && events_.top().time_ns <= until_ns && decisions_ < most) {
    const Event event = events_.top();
    events_.pop();
    now_ns_ = event.time_ns;
    event.action();
    settle();
  }
  now_ns_ = until_ns;
  // Account for a turn without end that is running.
  for (auto& [id, program] : programs_) {
    if (!program->holding || program->load.gap_ns != 0 || program->start_ns >= now_ns_) continue;
    used(program.get(), program->start_ns, now_ns_);
    program->start_ns = now_ns_;
  }
}

void TurnSimulation::settle() {
  ++decisions_;
  for (const TurnPolicy::Turn& turn : policy_.decide(now_ns_)) {
    Program* const program = programs_[turn.tenant].get();
    if (program->draining) continue;
    if (!program->holding) {
      begin(program, turn.until_ns);
    } else {
      program->until_ns = turn.until_ns;
      plan_end(program);
    }
  }
  const uint64_t look_ns = policy_.look_again_ns();
  if (look_ns == TurnPolicy::kNever || (look_ns >= look_planned_ns_ && look_planned_ns_ > now_ns_))
    return;
  look_planned_ns_ = look_ns;
  at(look_ns, [] {});  // each event is followed by a decision
}

void TurnSimulation::come(Program* program) {
  program->wants = now_ns_ >= program->load.from_ns && now_ns_ < program->load.to_ns;
  if (program->wants) policy_.set_wanting(now_ns_, program->id, true);
}

void TurnSimulation::begin(Program* program, uint64_t until_ns) {
  ++turns_;
  program->holding = true;
  program->until_ns = until_ns;
  program->start_ns = now_ns_ + with_jitter(costs_.begin_ns);
  program->starts.push_back(program->start_ns);
  ++program->version;
  if (program->load.gap_ns == 0) return plan_end(program);
  at(program->start_ns, [this, program] { run_piece(program); });
}

// For a program that always has more work. Its pieces follow each other without a gap, so the end
// of its work follows from the end of its turn. What was submitted by then is unfinished: a
// window's worth, or one or two pieces that are longer.
void TurnSimulation::plan_end(Program* program) {
  if (program->load.gap_ns != 0) return;  // waits for each piece
  const uint64_t version = ++program->version;
  const uint64_t last_ns = std::min(program->until_ns, program->load.to_ns);
  if (last_ns == UINT64_MAX) return;
  const uint64_t piece_ns = program->load.piece_ns;
  const uint64_t ahead_ns =
      piece_ns < costs_.window_ns ? costs_.window_ns : (program->load.in_flight - 1) * piece_ns;
  const uint64_t work_ns = std::max(last_ns, now_ns_) + ahead_ns;
  const uint64_t pieces =
      work_ns > program->start_ns ? (work_ns - program->start_ns + piece_ns - 1) / piece_ns : 1;
  const uint64_t done_ns = program->start_ns + pieces * piece_ns;
  at(done_ns, [this, program, version] {
    if (version != program->version) return;
    used(program, program->start_ns, now_ns_);
    give_up(program);
  });
}

// For a program that waits for each piece.
void TurnSimulation::run_piece(Program* program) {
  if (!program->holding) return;
  if (now_ns_ >= program->until_ns || !program->wants) return give_up(program);
  const uint64_t from_ns = now_ns_, version = program->version;
  at(now_ns_ + program->load.piece_ns, [this, program, from_ns, version] {
    used(program, from_ns, now_ns_);
    const uint64_t gap_ns = program->load.gap_ns;
    if (now_ns_ < program->until_ns && gap_ns <= costs_.linger_ns) {
      at(now_ns_ + gap_ns, [this, program, version] {
        if (version == program->version) run_piece(program);
      });
      return;
    }
    program->wants = false;
    const uint64_t lingers_ns = now_ns_ < program->until_ns ? costs_.linger_ns : 0;
    at(now_ns_ + lingers_ns, [this, program] { give_up(program); });
    at(now_ns_ + gap_ns, [this, program] { come(program); });
  });
}

void TurnSimulation::give_up(Program* program) {
  program->holding = false;
  program->draining = true;
  ++program->version;
  at(now_ns_ + with_jitter(costs_.end_ns), [this, program] {
    program->draining = false;
    policy_.drained(now_ns_, program->id);
    policy_.set_wanting(now_ns_, program->id, program->wants);
  });
}

void TurnSimulation::used(Program* program, uint64_t from_ns, uint64_t to_ns) {
  const uint64_t sum =
      program->spans.empty()
          ? 0
          : program->sums_ns.back() + program->spans.back().to_ns - program->spans.back().from_ns;
  program->spans.push_back({from_ns, to_ns});
  program->sums_ns.push_back(sum);
}

uint64_t TurnSimulation::used_before(const Program& program, uint64_t time_ns) {
  const auto after =
      std::upper_bound(program.spans.begin(), program.spans.end(), time_ns,
                       [](uint64_t time, const Span& span) { return time < span.from_ns; });
  if (after == program.spans.begin()) return 0;
  const size_t last = static_cast<size_t>(after - program.spans.begin()) - 1;
  const Span& span = program.spans[last];
  return program.sums_ns[last] + std::min(time_ns, span.to_ns) - span.from_ns;
}

double TurnSimulation::delivered(uint64_t tenant, uint64_t from_ns, uint64_t to_ns) const {
  const Program& program = *programs_.at(tenant);
  return static_cast<double>(used_before(program, to_ns) - used_before(program, from_ns)) /
         static_cast<double>(to_ns - from_ns);
}

std::pair<double, double> TurnSimulation::extremes(uint64_t tenant, uint64_t from_ns,
                                                   uint64_t to_ns, uint64_t length_ns) const {
  std::pair<double, double> found = {0, 1};
  for (uint64_t at_ns = from_ns; at_ns + length_ns <= to_ns; at_ns += 10 * kMs) {
    const double part = delivered(tenant, at_ns, at_ns + length_ns);
    found.first = std::max(found.first, part);
    found.second = std::min(found.second, part);
  }
  return found;
}

std::vector<uint64_t> TurnSimulation::starts(uint64_t tenant) const {
  return programs_.at(tenant)->starts;
}

uint64_t TurnSimulation::first_after(uint64_t tenant, uint64_t time_ns) const {
  for (const uint64_t start_ns : programs_.at(tenant)->starts) {
    if (start_ns >= time_ns) return start_ns;
  }
  return UINT64_MAX;
}

}  // namespace tendril::lease

// SPDX-License-Identifier: Apache-2.0
// See config.h.

#include "softgpu/driver/config.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>

#include "softgpu/board/board.h"

namespace tendril::softgpu {
namespace {

struct Loaded {
  Faults faults;
  uint64_t generation = 0;
  std::unordered_map<std::string, uint64_t>
      calls;        // of the functions that a rule names, counted since the rule came into force
  std::mutex lock;  // calls
  std::atomic<uint64_t> copies{0};
  const Loaded* before = nullptr;  // kept: threads may be reading it; only tests change knobs often
};

Loaded& loaded() {
  static std::atomic<Loaded*> current{nullptr};
  static std::mutex& loading = *new std::mutex;
  Loaded* now = current.load(std::memory_order_acquire);
  const uint64_t generation = board().live_generation();
  if (now != nullptr && now->generation == generation) return *now;
  std::lock_guard guard(loading);
  now = current.load(std::memory_order_acquire);
  if (now != nullptr && now->generation == generation) return *now;
  auto* fresh = new Loaded;
  fresh->generation = generation;
  fresh->faults = board().faults();
  fresh->before = now;
  current.store(fresh, std::memory_order_release);
  return *fresh;
}

bool hits(const CallRule& rule, const char* name, uint64_t count) {
  return rule.name == name && (rule.for_ever ? count >= rule.nth : count == rule.nth);
}

}  // namespace

Board& board() {
  static Board& joined = *[] {
    Board::instance().join();
    return &Board::instance();
  }();
  return joined;
}

const Settings& config() { return board().settings(); }

const Faults& faults() { return loaded().faults; }

CUresult injected_fault(const char* name) {
  Loaded& now = loaded();
  if (now.faults.fail.empty() && now.faults.abort_at.empty()) return CUDA_SUCCESS;
  uint64_t count;
  {
    std::lock_guard guard(now.lock);
    count = ++now.calls[name];
  }
  for (const CallRule& rule : now.faults.abort_at) {
    if (!hits(rule, name, count)) continue;
    fprintf(stderr, "softgpu: aborting in call %llu of %s, as the knob 'abort' says\n",
            static_cast<unsigned long long>(count), name);
    abort();
  }
  for (const CallRule& rule : now.faults.fail)
    if (hits(rule, name, count)) return static_cast<CUresult>(rule.code);
  return CUDA_SUCCESS;
}

bool StepBound::again() {
  constexpr uint64_t kTurnSteps =
      100;  // of a loop that looks, sleeps or launches; only the order of magnitude matters
  used_ += kTurnSteps;
  const uint64_t budget = faults().step_budget;
  return budget == 0 || used_ <= budget;
}

bool flips_this_copy() {
  Loaded& now = loaded();
  return now.faults.flip_copy != 0 && now.copies.fetch_add(1) + 1 == now.faults.flip_copy;
}

}  // namespace tendril::softgpu

// SPDX-License-Identifier: Apache-2.0
// One clock for code that sleeps, spins and reads the time as on a machine. The code runs in
// fibers, one at a time. For them the clock, nanosleep, sched_yield and futexes are this class's:
// the linker puts it in their place (see CMakeLists.txt). What takes no time on a real machine
// takes none here. Exception: a look at the clock, so that a spinning fiber makes progress. Every
// run is the same.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <vector>

namespace tendril::simulation {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;

class SimulatedTime {
 public:
  static constexpr uint64_t kLookNs = 30;  // at the clock
  static constexpr uint64_t kYieldNs = 500;
  static constexpr uint64_t kOversleptNs = 8'000;  // of a nap
  static constexpr uint64_t kWakeNs = 30'000;      // from a futex's wake-up until the sleeper runs

  SimulatedTime();
  ~SimulatedTime();
  uint64_t now_ns() const { return now_ns_; }
  void at(uint64_t time_ns, std::function<void()> action);
  void start(std::function<void()> body);
  void run(uint64_t until_ns);

  // Of the fiber that runs. Outside all fibers it belongs to the maker of this object; fibers run
  // meanwhile.
  void spend(uint64_t ns);
  bool sleep(const void* word, uint64_t most_ns);  // true: woken
  void wake(const void* word);

  // The object behind the linker's stand-ins. Null: the caller does not live on simulated time.
  static SimulatedTime* active();

 private:
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    std::function<void()> body;
    const void* word = nullptr;
    uint64_t sleeps = 0;
    bool sleeping = false, woken = false;
  };
  struct Event {
    uint64_t time_ns, order;
    std::function<void()> action;
    bool operator>(const Event& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : order > other.order;
    }
  };
  static void enter();
  void resume(Fiber* fiber);
  void leave();

  uint64_t now_ns_ = kSecond, until_ns_ = 0, order_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  Fiber* running_ = nullptr;
  bool runs_ = false;
  const void* outside_word_ = nullptr;  // the maker of this object sleeps on it
  bool outside_woken_ = false;
  ucontext_t main_;
};

}  // namespace tendril::simulation

// SPDX-License-Identifier: Apache-2.0
// Simulated time and chance: events in the order of their times, and one source of random numbers.
// Equal seeds give equal runs. Everything in pool/simulation takes time and chance from here.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <utility>
#include <vector>

namespace tendril::pool::simulation {

inline constexpr int64_t kMillisecond = 1'000'000, kSecond = 1'000'000'000;
inline constexpr int64_t kMinute = 60 * kSecond, kHour = 60 * kMinute, kDay = 24 * kHour;

class Clockwork {
 public:
  explicit Clockwork(uint64_t seed) : random_(seed) {}

  int64_t now_ns() const { return now_ns_; }
  uint64_t events() const { return events_; }

  void at(int64_t time_ns, std::function<void()> action) {
    queue_.push(Event{time_ns < now_ns_ ? now_ns_ : time_ns, ++number_, std::move(action)});
  }
  void in(int64_t span_ns, std::function<void()> action) {
    at(now_ns_ + span_ns, std::move(action));
  }

  // Performs the next event if it is due by then.
  bool step(int64_t until_ns) {
    if (queue_.empty() || queue_.top().time_ns > until_ns) return false;
    // The queue gives no way to move its top out; nobody else sees it before it is popped.
    Event event = std::move(const_cast<Event&>(queue_.top()));
    queue_.pop();
    now_ns_ = event.time_ns;
    ++events_;
    event.action();
    return true;
  }

  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : random_() % bound; }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low + 1)));
  }
  bool chance(double part) { return static_cast<double>(random_() >> 11) * 0x1p-53 < part; }
  // A time until the next of events that come by chance, with that mean.
  int64_t wait(double mean_ns) {
    const double even = (static_cast<double>(random_() >> 11) + 1) * 0x1p-53;
    return static_cast<int64_t>(-std::log(even) * mean_ns);
  }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  struct Event {
    int64_t time_ns = 0;
    uint64_t number = 0;  // events of one time happen in the order of their making
    std::function<void()> action;
    bool operator<(const Event& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : number > other.number;
    }
  };

  std::mt19937_64 random_;
  std::priority_queue<Event> queue_;
  int64_t now_ns_ = 0;
  uint64_t number_ = 0, events_ = 0;
};

}  // namespace tendril::pool::simulation

// SPDX-License-Identifier: Apache-2.0
// The gate and an arbiter as two threads. They use the real page, the kernel's futex and a bell.
// This test checks only the order of events. tests/simulation/gate_test.cc simulates time, and
// checks durations and everything else that the gate does.
#include "worker/core/gate.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <functional>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"

namespace tendril::worker {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

// A host whose work is over as soon as the gate asks.
class IdleGpu final : public GateHost {
 public:
  ContextHandle owner(ContextHandle current, StreamHandle) override { return current; }
  EventHandle mark(ContextHandle, StreamHandle) override {
    return reinterpret_cast<EventHandle>(1);
  }
  bool reached(EventHandle) override { return true; }
  void give_back(ContextHandle, EventHandle) override {}
  bool serve() override { return base::now_ns() < patience_until_ns_; }
  bool busy() override { return false; }
  void set_hardware_slice(uint32_t, uint32_t) override {}

 private:
  const uint64_t patience_until_ns_ = base::now_ns() + 120 * kSecond;
};

TEST(GateAndArbiter, TurnsGoToAndFro) {
  constexpr uint32_t kTurns = 50;
  const auto page = std::make_unique<wire::TurnPage>();
  wire::TurnPart& part = page->slices[0];
  part.regime = wire::TurnRegime::kTurns;
  part.window_ns = kSecond;
  part.linger_ns = 1000 * kSecond;
  const base::Fd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  IdleGpu gpu;
  Gate gate(&gpu, {page.get(), bell.get()}, 1, nullptr);
  std::atomic<bool> over{false};
  uint32_t granted = 0,
           used = 0;  // each is written by one thread, and handed to the other with the turn
  std::thread arbiter([&] {
    const auto wake = [&] {
      syscall(SYS_futex, &part.turn, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    };
    const auto hear = [&](const std::function<bool()>& condition) {
      while (!over && !condition()) {
        pollfd rings = {bell.get(), POLLIN, 0};
        uint64_t count;
        if (poll(&rings, 1, 1) > 0) {
          EXPECT_EQ(read(bell.get(), &count, sizeof count), ssize_t{sizeof count});
        }
      }
    };
    while (granted < kTurns) {
      hear([&] { return part.wants.load() == wire::kWantsTurn; });
      part.until_ns = wire::kTurnWithoutEnd;
      ++granted;
      part.turn.fetch_add(1);
      wake();
      hear([&] { return part.units.load() >= granted; });
      part.until_ns = 0;
      wake();
      hear([&] { return part.drained.load() == granted; });
      if (over) return;
      EXPECT_EQ(used, granted);
    }
  });
  for (uint32_t turn = 1; turn <= kTurns && !testing::Test::HasFailure(); ++turn) {
    EXPECT_TRUE(gate.pass(0, nullptr, nullptr, work_kind(1, 1)));
    EXPECT_EQ(granted, turn);
    used = turn;
    while (part.drained.load() != turn && gpu.serve()) {
      gate.look(false);
      gate.rest();
    }
  }
  over = testing::Test::HasFailure();
  arbiter.join();
  EXPECT_EQ(used, kTurns);
}

}  // namespace
}  // namespace tendril::worker

// SPDX-License-Identifier: Apache-2.0
// The gate alone, on simulated time. Around it: a page, a stand-in for tendrild that gives turns on
// it, and a GPU that consists of the times at which work ends. The test is the executor. Its
// "arbiter" is a fiber.
#include "worker/core/gate.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include "base/fd.h"
#include "tests/simulation/simulated_time.h"

namespace tendril::simulation {
namespace {

using worker::ContextHandle;
using worker::EventHandle;
using worker::Gate;
using worker::StreamHandle;
using worker::work_kind;

constexpr uint64_t kLegacy = 1;  // as in CUDA

StreamHandle stream_of(uint64_t number) { return reinterpret_cast<StreamHandle>(number); }
ContextHandle const kContext = reinterpret_cast<ContextHandle>(7);

// Streams run their work in order. An event is the time at which its stream will have finished what
// it has then.
class FakeGpu final : public worker::GateHost {
 public:
  explicit FakeGpu(SimulatedTime* time) : time_(*time) {}
  void run(StreamHandle stream, uint64_t ns) {
    uint64_t& free_ns = streams_[stream];
    free_ns = std::max(free_ns, time_.now_ns()) + ns;
  }
  uint64_t unfinished_ns(StreamHandle stream) {
    const uint64_t now_ns = time_.now_ns();
    return streams_[stream] > now_ns ? streams_[stream] - now_ns : 0;
  }

  ContextHandle owner(ContextHandle current, StreamHandle) override { return current; }
  EventHandle mark(ContextHandle, StreamHandle stream) override {
    if (refuses_marks) return nullptr;
    ++marks;
    events_[++events_made_] = streams_[stream];
    return reinterpret_cast<EventHandle>(events_made_);
  }
  bool reached(EventHandle event) override {
    return broken || time_.now_ns() >= events_.at(reinterpret_cast<uint64_t>(event));
  }
  void give_back(ContextHandle, EventHandle event) override {
    events_.erase(reinterpret_cast<uint64_t>(event));
  }
  bool serve() override {
    ++serves;
    if (on_serve) on_serve();
    return !over && time_.now_ns() < patience_until_ns_;
  }
  bool busy() override { return false; }
  void set_hardware_slice(uint32_t slot, uint32_t us) override { slices[slot] = us; }

  size_t events() const { return events_.size(); }
  uint64_t marks = 0, serves = 0;
  bool refuses_marks = false, broken = false, over = false;
  std::function<void()> on_serve;
  std::map<uint32_t, uint32_t> slices;

 private:
  SimulatedTime& time_;
  std::map<StreamHandle, uint64_t> streams_;
  std::map<uint64_t, uint64_t> events_;
  uint64_t events_made_ = 0;
  // A test whose turn ends unexpectedly fails and does not hang.
  const uint64_t patience_until_ns_ = time_.now_ns() + 20 * kSecond;
};

class GateTest : public testing::Test {
 protected:
  static constexpr uint64_t kLaunchNs = 2 * kUs;  // in the driver
  // How late the end of running work may be seen: where nothing is known of it, and where its
  // length is known.
  static constexpr uint64_t kNapNs = 100 * kUs + 2 * SimulatedTime::kOversleptNs,
                            kPromptlyNs = 20 * kUs;

  GateTest()
      : bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        gate_(&gpu_, {page_.get(), bell_.get()}, 2, stream_of(kLegacy)) {
    for (wire::TurnPart& part : page_->slices) {
      part.window_ns = 2 * kMs;
      part.linger_ns = kMs / 2;
    }
    part().regime = wire::TurnRegime::kTurns;
  }
  uint64_t now_ns() const { return time_.now_ns(); }
  void sleep_until(uint64_t then_ns) {
    if (then_ns > now_ns()) time_.spend(then_ns - now_ns());
  }
  // Of an arbiter.
  void wait_for(const std::function<bool()>& condition) {
    while (!condition()) time_.spend(kUs);
  }
  wire::TurnPart& part(uint32_t slot = 0) { return page_->slices[slot]; }
  void grant(uint64_t until_ns, uint32_t slot = 0) {
    part(slot).until_ns = until_ns;
    part(slot).turn.fetch_add(1);
    time_.wake(&part(slot).turn);
  }
  void move_end(uint64_t until_ns) {
    part().until_ns = until_ns;
    time_.wake(&part().turn);
  }
  bool pass(uint64_t stream, uint64_t ns, uint64_t kind = 0) {
    if (!gate_.pass(0, kContext, stream_of(stream), work_kind(kind != 0 ? kind : ns, 1)))
      return false;
    time_.spend(kLaunchNs);
    gpu_.run(stream_of(stream), ns);
    return true;
  }
  uint64_t done_ns(uint64_t stream = 1) { return now_ns() + gpu_.unfinished_ns(stream_of(stream)); }
  uint64_t rings() {
    uint64_t count = 0;
    return read(bell_.get(), &count, sizeof count) == sizeof count ? count : 0;
  }
  bool drained(uint32_t slot = 0) { return part(slot).drained.load() == part(slot).turn.load(); }
  // As the executor's loop does when no call comes.
  void idle_until(const std::function<bool()>& condition) {
    const uint64_t begun_ns = now_ns();
    while (!condition()) {
      ASSERT_LT(now_ns() - begun_ns, 5 * kSecond);
      gate_.look(false);
      gate_.rest();
    }
  }
  // So that the kind of work is known.
  void learn(uint64_t ns) {
    for (int i = 0; i < 3; ++i) {
      grant(wire::kTurnWithoutEnd);
      pass(1, ns);
      move_end(0);
      idle_until([&] { return drained(); });
    }
  }

  SimulatedTime time_;
  std::unique_ptr<wire::TurnPage> page_ = std::make_unique<wire::TurnPage>();
  base::Fd bell_;
  FakeGpu gpu_{&time_};
  Gate gate_;
};

TEST_F(GateTest, WhereTheGpuIsWholeThereIsNoGate) {
  EXPECT_FALSE(gate_.open(0));
  EXPECT_TRUE(gate_.open(1));
  EXPECT_TRUE(Gate(&gpu_, {}, 2, nullptr).open(0));
}

TEST_F(GateTest, AsksOnceAndSleepsUntilItsTurn) {
  uint64_t granted_ns = 0;
  time_.start([&] {
    wait_for([&] { return part().wants.load() == wire::kWantsTurn; });
    time_.spend(20 * kMs);
    granted_ns = now_ns();
    grant(wire::kTurnWithoutEnd);
  });
  EXPECT_TRUE(pass(1, 100 * kUs));
  ASSERT_NE(granted_ns, 0u);
  EXPECT_GE(now_ns(), granted_ns);
  EXPECT_LE(now_ns(), granted_ns + SimulatedTime::kWakeNs + kLaunchNs + kUs);
  EXPECT_EQ(rings(), 1u);
  EXPECT_GE(gpu_.serves, 19u) << "what cannot wait is served meanwhile";
  EXPECT_TRUE(pass(1, 100 * kUs));
  EXPECT_EQ(rings(), 0u);
}

TEST_F(GateTest, GivesUpWhenTheTurnIsOverAndItsWorkIsDone) {
  const uint64_t begun_ns = now_ns();
  const uint64_t until_ns = begun_ns + 10 * kMs;
  grant(until_ns);
  pass(1, 3 * kMs);
  pass(2, 30 * kMs);
  const uint64_t work_done_ns = done_ns(2);
  time_.start([&] {
    wait_for([&] { return drained(); });
    EXPECT_GE(now_ns(), work_done_ns) << "not before the work is done";
    EXPECT_LE(now_ns(), work_done_ns + kNapNs);
    EXPECT_EQ(part().wants.load(), wire::kWantsTurn);
    EXPECT_GE(part().busy_ns.load(), 30 * kMs);
    EXPECT_LE(part().busy_ns.load(), now_ns() - begun_ns);
    EXPECT_EQ(part().units.load(), 2u);
    time_.spend(3 * kMs);
    grant(wire::kTurnWithoutEnd);
  });
  sleep_until(until_ns);
  EXPECT_TRUE(pass(1, kMs));
  EXPECT_EQ(part().turn.load(), 2u);
  gate_.look(true);
  EXPECT_NEAR(static_cast<double>(part().queued_ns.load()), 3 * kMs, 50 * kUs);
}

// A part of a gang leaves nothing behind that would wait for the others. One piece always passes,
// or a long one never would.
TEST_F(GateTest, ATurnThatEndsExactlyTakesNothingThatWouldRunBeyondIt) {
  learn(3 * kMs);
  part().ends_exactly = 1;
  const uint64_t until_ns = now_ns() + 8 * kMs;
  grant(until_ns);
  pass(1, 3 * kMs);
  pass(1, 3 * kMs);
  EXPECT_LE(done_ns(), until_ns);
  bool again = false;
  time_.start([&] {
    wait_for([&] { return drained(); });
    again = true;
    grant(now_ns() + kMs);
  });
  pass(1, 3 * kMs);
  EXPECT_TRUE(again) << "it had to wait for the next turn, and passed as its first";
}

TEST_F(GateTest, TheExecutorsLoopSeesTheEndPromptly) {
  learn(2 * kMs);
  for (int i = 0; i < 30; ++i) {
    grant(now_ns() + kMs);
    pass(1, 2 * kMs);
    const uint64_t work_done_ns = done_ns();
    idle_until([&] { return drained(); });
    EXPECT_GE(now_ns(), work_done_ns);
    EXPECT_LE(now_ns(), work_done_ns + kPromptlyNs);
    EXPECT_EQ(part().wants.load(), wire::kWantsNothing);
  }
}

TEST_F(GateTest, AnIdleHolderGivesUpAfterAWhile) {
  grant(wire::kTurnWithoutEnd);
  const uint64_t begun_ns = now_ns();
  pass(1, 2 * kMs);
  EXPECT_EQ(gate_.pace(), Gate::Pace::kSometimes);
  idle_until([&] { return drained(); });
  EXPECT_GE(now_ns(), begun_ns + 2 * kMs + kMs / 2);
  EXPECT_LE(now_ns(), begun_ns + 2 * kMs + kMs / 2 + 2 * kNapNs);
  EXPECT_EQ(part().wants.load(), wire::kWantsNothing);
  EXPECT_GE(rings(), 1u);
  EXPECT_EQ(gate_.pace(), Gate::Pace::kNever);
  EXPECT_EQ(gpu_.events(), 0u);
}

// The driver loads what is launched first. Meanwhile the GPU has nothing to do.
TEST_F(GateTest, ALaunchThatTakesTheDriverLongIsNotWork) {
  grant(now_ns() + 60 * kSecond);
  ASSERT_TRUE(gate_.pass(0, kContext, stream_of(1), work_kind(1, 1)));
  time_.spend(20 * kMs);  // in the driver
  gpu_.run(stream_of(1), 5 * kSecond);
  gate_.look_between_calls();
  const uint64_t stalled_ns = part().stalled_ns.load();
  EXPECT_GE(stalled_ns, 20 * kMs);
  EXPECT_LE(stalled_ns, 20 * kMs + kUs);
  // With work before it the GPU is busy, however long the next launch takes.
  ASSERT_TRUE(gate_.pass(0, kContext, stream_of(2), work_kind(2, 1)));
  time_.spend(5 * kMs);
  gpu_.run(stream_of(2), kMs);
  gate_.look_between_calls();
  EXPECT_EQ(part().stalled_ns.load(), stalled_ns);
}

TEST_F(GateTest, ATurnInWhichNothingRunsIsGivenUpBeforeALongCall) {
  part().linger_ns = 10 * kSecond;
  grant(wire::kTurnWithoutEnd);
  ASSERT_TRUE(pass(1, 200 * kMs));
  gate_.before_a_long_call();
  EXPECT_FALSE(drained()) << "its work runs";
  idle_until([&] { return gpu_.unfinished_ns(stream_of(1)) == 0; });
  EXPECT_FALSE(drained());
  gate_.before_a_long_call();
  EXPECT_TRUE(drained());
  EXPECT_EQ(part().wants.load(), 0u);
  EXPECT_EQ(gate_.pace(), Gate::Pace::kNever);
  gate_.before_a_long_call();
}

// While the driver is in another call, the turn cannot be given up.
TEST_F(GateTest, TimeWithoutWorkInAnotherCallIsNotWork) {
  grant(now_ns() + 60 * kSecond);
  ASSERT_TRUE(pass(1, kMs));
  idle_until([&] { return gpu_.unfinished_ns(stream_of(1)) == 0; });
  gate_.look(true);
  time_.spend(20 * kMs);  // loads a module
  gate_.look(false);
  EXPECT_TRUE(drained());
  EXPECT_GE(part().stalled_ns.load(), 20 * kMs - part().linger_ns.load());
  EXPECT_LE(part().stalled_ns.load(), 20 * kMs);
}

// A tenant of a higher class may come. Then it waits for what is unfinished.
TEST_F(GateTest, InASmallWindowTheSecondPieceWaitsUntilTheFirstIsNearlyOver) {
  part().window_ns = 300 * kUs;
  learn(kMs);
  grant(now_ns() + 60 * kSecond);
  pass(1, kMs);
  const uint64_t first_done_ns = done_ns();
  ASSERT_TRUE(gate_.pass(0, kContext, stream_of(1), work_kind(kMs, 1)));
  EXPECT_GE(now_ns() + 150 * kUs, first_done_ns);
  EXPECT_LT(now_ns(), first_done_ns);
}

TEST_F(GateTest, WhoseNextPieceUsuallyComesLateDoesNotLinger) {
  part().linger_ns = 20 * kMs;
  for (int i = 0; i < 5; ++i) {
    grant(now_ns() + 60 * kSecond);
    pass(1, kMs);
    const uint64_t work_done_ns = done_ns();
    idle_until([&] { return drained(); });
    const uint64_t kept_ns = now_ns() - work_done_ns;
    if (i == 0) {
      EXPECT_GE(kept_ns, 20 * kMs) << "nothing is known of it";
    } else {
      EXPECT_LE(kept_ns, 50 * kUs + 2 * kNapNs);
    }
    sleep_until(work_done_ns + 50 * kMs);
  }
}

TEST_F(GateTest, WhoseNextPieceUsuallyComesSoonKeepsItsTurn) {
  part().linger_ns = 500 * kMs;
  grant(now_ns() + 60 * kSecond);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(pass(1, kMs / 2));
    const uint64_t next_ns = done_ns() + 2 * kMs;
    idle_until([&] { return now_ns() >= next_ns; });
    EXPECT_FALSE(drained());
  }
  EXPECT_EQ(part().turn.load(), 1u);
  const uint64_t last_done_ns = done_ns() - 2 * kMs;
  idle_until([&] { return drained(); });
  EXPECT_LT(now_ns() - last_done_ns, 10 * kMs);
}

TEST_F(GateTest, WaitingForATurnIsNoGap) {
  part().linger_ns = 30 * kMs;
  bool ended = false;
  time_.start([&] {
    while (!ended) {
      wait_for([&] { return ended || part().wants.load() == wire::kWantsTurn; });
      if (ended) return;
      time_.spend(100 * kMs);  // longer than a turn would be kept
      grant(now_ns() + 5 * kMs);
      wait_for([&] { return ended || drained(); });
    }
  });
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(pass(1, 4 * kMs));
  EXPECT_GE(part().turn.load(), 3u);
  ended = true;
  idle_until([&] { return drained(); });
  grant(now_ns() + 60 * kSecond);
  pass(1, kMs);
  const uint64_t work_done_ns = done_ns();
  idle_until([&] { return drained(); });
  EXPECT_GE(now_ns(), work_done_ns + 30 * kMs);
}

TEST_F(GateTest, NoMoreThanTheWindowIsUnfinished) {
  grant(wire::kTurnWithoutEnd);
  const uint64_t until_ns = now_ns() + 60 * kMs;
  uint64_t pieces = 0, too_much = 0;
  for (; now_ns() < until_ns; ++pieces) {
    pass(1, 50 * kUs);
    too_much += pieces > 20 && gpu_.unfinished_ns(stream_of(1)) > 2 * kMs + 50 * kUs;
  }
  EXPECT_GE(pieces, 60 * kMs / (50 * kUs)) << "the GPU is not idle";
  EXPECT_EQ(too_much, 0u);
  EXPECT_LT(gpu_.marks, pieces / 4) << "a marker is for many small pieces";
}

TEST_F(GateTest, PiecesLongerThanTheWindowGoTwoAtATime) {
  grant(wire::kTurnWithoutEnd);
  const uint64_t begun_ns = now_ns();
  for (int i = 0; i < 10; ++i) {
    pass(1, 5 * kMs);
    EXPECT_LE(gpu_.unfinished_ns(stream_of(1)), 10 * kMs);
  }
  EXPECT_LE(done_ns() - begun_ns, 10 * 5 * kMs + kLaunchNs + kUs)
      << "the next one waits in the queue while one runs";
}

TEST_F(GateTest, VeryLongPiecesGoOneAtATime) {
  grant(wire::kTurnWithoutEnd);
  pass(1, 20 * kMs);  // nobody knew
  for (int i = 0; i < 4; ++i) {
    pass(1, 20 * kMs);
    if (i > 1) {
      EXPECT_LE(gpu_.unfinished_ns(stream_of(1)), 20 * kMs);
    }
  }
}

TEST_F(GateTest, NothingLongIsAddedThatWouldBeginAfterTheTurn) {
  grant(wire::kTurnWithoutEnd);
  for (int i = 0; i < 3; ++i) pass(1, 15 * kMs);
  move_end(0);
  idle_until([&] { return drained(); });
  grant(now_ns() + 10 * kMs);
  pass(1, 15 * kMs);
  time_.start([&] {
    wait_for([&] { return drained(); });
    EXPECT_EQ(gpu_.unfinished_ns(stream_of(1)), 0u);
    grant(wire::kTurnWithoutEnd);
  });
  EXPECT_TRUE(pass(1, 15 * kMs));
  EXPECT_EQ(part().turn.load(), 3u);
}

TEST_F(GateTest, APieceThatGrowsIsNoticed) {
  grant(wire::kTurnWithoutEnd);
  for (int i = 0; i < 400; ++i) pass(1, 20 * kUs, 5);
  // Of the same kind, twenty-five times as long. Pieces that fit the window by the old estimate
  // pass before any has ended.
  for (int i = 0; i < 250; ++i) pass(1, kMs / 2, 5);
  int too_much = 0;
  for (int i = 0; i < 50; ++i) {
    pass(1, kMs / 2, 5);
    too_much += gpu_.unfinished_ns(stream_of(1)) > 2 * kMs + kMs / 2;
  }
  EXPECT_EQ(too_much, 0);
}

TEST_F(GateTest, OneStreamThatRunsLongDoesNotStopAnother) {
  grant(wire::kTurnWithoutEnd);
  pass(1, 300 * kMs);
  const uint64_t begun_ns = now_ns();
  for (int i = 0; i < 50; ++i) pass(2, 20 * kUs);
  EXPECT_LE(now_ns() - begun_ns, 2 * kMs);
}

TEST_F(GateTest, WorkThatWaitsForAPieceThatWaitsHereDoesNotHang) {
  grant(wire::kTurnWithoutEnd);
  pass(1, 3600 * kSecond, 1);
  pass(1, kMs, 2);
  const uint64_t begun_ns = now_ns();
  EXPECT_TRUE(pass(1, kMs, 3)) << "perhaps the one that ends it all";
  EXPECT_LE(now_ns() - begun_ns, 30 * kMs);
}

TEST_F(GateTest, ATurnThatIsLengthenedGoesOn) {
  grant(now_ns() + 2 * kMs);
  pass(1, 200 * kMs);
  const uint64_t begun_ns = now_ns();
  time_.start([&] {
    time_.spend(10 * kMs);
    move_end(now_ns() + kSecond);
  });
  sleep_until(begun_ns + 3 * kMs);
  EXPECT_TRUE(pass(2, kMs));
  EXPECT_GE(now_ns(), begun_ns + 10 * kMs);
  EXPECT_LE(now_ns(), begun_ns + 10 * kMs + kNapNs) << "what runs long may wait for what came now";
  EXPECT_EQ(part().turn.load(), 1u);
}

TEST_F(GateTest, ErrorsEndWork) {
  grant(wire::kTurnWithoutEnd);
  pass(1, 3600 * kSecond);
  gpu_.broken = true;
  move_end(0);
  idle_until([&] { return drained(); });
  gpu_.broken = false;
  gpu_.refuses_marks = true;
  grant(now_ns() + kMs);
  pass(2, 3600 * kSecond);
  idle_until([&] { return drained(); });
}

TEST_F(GateTest, AContextThatIsGoneHoldsNothing) {
  grant(wire::kTurnWithoutEnd);
  pass(1, 3600 * kSecond);
  pass(2, 3600 * kSecond);
  move_end(0);
  gate_.mark_everything();
  gate_.forget_context(kContext);
  idle_until([&] { return drained(); });
}

TEST_F(GateTest, AStreamThatEndsIsMarkedBefore) {
  grant(now_ns() + kMs);
  pass(1, 5 * kMs);
  const uint64_t work_done_ns = done_ns();
  gate_.stream_ends(stream_of(1));
  EXPECT_EQ(gpu_.marks, 1u);
  idle_until([&] { return drained(); });
  EXPECT_GE(now_ns(), work_done_ns);
  EXPECT_EQ(gpu_.marks, 1u);
}

// An event that is recorded there later waits for what other streams have, and they wait for it.
TEST_F(GateTest, TheLegacyStreamIsMarkedBeforeOthersAreGivenSomething) {
  grant(wire::kTurnWithoutEnd);
  EXPECT_TRUE(pass(kLegacy, 50 * kUs));
  EXPECT_EQ(gpu_.marks, 0u);
  gate_.leaves_legacy_stream();
  EXPECT_EQ(gpu_.marks, 1u);
  EXPECT_TRUE(pass(kLegacy, 60 * kUs));
  EXPECT_TRUE(pass(2, 70 * kUs));
  EXPECT_EQ(gpu_.marks, 2u);
  gate_.look(true);
  EXPECT_EQ(gpu_.marks, 3u) << "of the second stream alone";
}

// The program may take its time in a host function. What was there before is over nevertheless, and
// the turn ends with it.
TEST_F(GateTest, WorkBeforeAHostFunctionEndsBeforeIt) {
  const uint64_t begun_ns = now_ns();
  grant(begun_ns + 5 * kMs);
  EXPECT_TRUE(pass(1, 100 * kUs));
  gate_.host_function(0, kContext, stream_of(1));
  gpu_.run(stream_of(1), 1000 * kMs);
  idle_until([&] { return drained(); });
  EXPECT_GE(now_ns() - begun_ns, 500 * kUs);
  EXPECT_LE(now_ns() - begun_ns, 5 * kMs + kNapNs);
}

TEST_F(GateTest, WhatWaitsForAHostFunctionTellsNothingOfItsTime) {
  part().linger_ns = 10 * kSecond;
  grant(wire::kTurnWithoutEnd);
  const auto none_is_marked = [&] {
    return gpu_.events() == 0 && gpu_.unfinished_ns(stream_of(1)) == 0;
  };
  const auto at_once = [&] {
    int pieces = 0;
    while (pieces < 3 && gate_.pass_at_once(0, kContext, stream_of(1), work_kind(9, 1))) ++pieces;
    gate_.look(true);
    idle_until(none_is_marked);
    return pieces;
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(pass(1, 50 * kUs, 9));
    gate_.look(true);
    idle_until(none_is_marked);
  }
  const int before = at_once();
  for (int i = 0; i < 3; ++i) {
    gate_.host_function(0, kContext, stream_of(1));
    gpu_.run(stream_of(1), 30 * kMs);
    EXPECT_TRUE(pass(1, 50 * kUs, 9));
    gate_.look(true);
    idle_until(none_is_marked);
  }
  EXPECT_GE(at_once(), before) << "each is thought to take longer";
}

TEST_F(GateTest, TheEndOfTheSessionEndsTheWait) {
  gpu_.on_serve = [&] { gpu_.over = true; };
  EXPECT_FALSE(pass(1, kMs));
}

TEST_F(GateTest, TheWholeGpuMayComeWhileItWaits) {
  gpu_.on_serve = [&] { part().regime = wire::TurnRegime::kFree; };
  EXPECT_TRUE(pass(1, kMs));
  EXPECT_EQ(gpu_.marks, 0u);
}

TEST_F(GateTest, AHolderThatGetsTheWholeGpuGivesItsTurnBack) {
  grant(wire::kTurnWithoutEnd);
  pass(1, kMs);
  part().regime = wire::TurnRegime::kFree;
  EXPECT_TRUE(gate_.open(0));
  idle_until([&] { return drained(); });
}

TEST_F(GateTest, WhileOneSliceWaitsAnotherGivesItsTurnBack) {
  part(1).regime = wire::TurnRegime::kTurns;
  grant(now_ns() + 2 * kMs, 1);
  EXPECT_TRUE(gate_.pass(1, kContext, stream_of(9), work_kind(1, 1)));
  gpu_.run(stream_of(9), kMs);
  time_.start([&] {
    wait_for([&] { return drained(1); });
    grant(wire::kTurnWithoutEnd, 0);
  });
  EXPECT_TRUE(pass(1, kMs));
  EXPECT_EQ(part(1).drained.load(), 1u);
}

// tendrild has said that the awaited turn comes soon. So this turn is kept, and both are wanted
// again together.
TEST_F(GateTest, WhileOneSliceWaitsAnotherIsKeptAWhileAndWantsItsTurnToo) {
  part(1).regime = wire::TurnRegime::kTurns;
  part(1).await_ns = 40 * kMs;
  grant(wire::kTurnWithoutEnd, 1);
  EXPECT_TRUE(gate_.pass(1, kContext, stream_of(9), work_kind(1, 1)));
  gpu_.run(stream_of(9), kMs);
  const uint64_t begun_ns = now_ns();
  uint64_t given_up_ns = 0;
  time_.start([&] {
    wait_for([&] { return drained(1); });
    given_up_ns = now_ns();
    EXPECT_EQ(part(1).wants.load(), wire::kWantsTurnToo);
    grant(now_ns() + 100 * kMs, 0);
  });
  EXPECT_TRUE(pass(1, kMs));
  ASSERT_NE(given_up_ns, 0u);
  EXPECT_GE(given_up_ns - begun_ns, 40 * kMs);
  EXPECT_LE(given_up_ns - begun_ns, 40 * kMs + part(1).linger_ns.load() + 2 * kNapNs);
  EXPECT_EQ(part(1).wants.load(), wire::kWantsTurnToo);
  // Once the executor sleeps, nobody would see such a turn.
  idle_until([&] { return drained(); });
  EXPECT_EQ(part(1).wants.load(), wire::kWantsNothing);
  EXPECT_EQ(gate_.pace(), Gate::Pace::kSometimes);
  idle_until([&] { return gate_.pace() == Gate::Pace::kNever; });
}

TEST_F(GateTest, ATurnForWhichNothingCameIsNotWantedToo) {
  part(1).regime = wire::TurnRegime::kTurns;
  grant(wire::kTurnWithoutEnd, 0);
  grant(now_ns() + 1000 * kMs, 1);
  pass(1, 30 * kMs);
  pass(1, 30 * kMs);  // waits, with a turn
  pass(1, 30 * kMs);
  EXPECT_EQ(part(1).drained.load(), 1u);
  EXPECT_EQ(part(1).wants.load(), wire::kWantsNothing);
}

// Neither for the length of a piece, nor for what the slice has had.
TEST_F(GateTest, TimeThatAHigherClassHadDoesNotCount) {
  learn(kMs);
  const uint64_t busy_ns = part().busy_ns.load(), begun_ns = now_ns();
  grant(wire::kTurnWithoutEnd);
  ASSERT_TRUE(pass(1, 5 * kMs, kMs));  // somebody else has 4 of them
  idle_until([&] { return now_ns() >= begun_ns + 4 * kMs; });
  part().preempted_ns = 4 * kMs;
  move_end(0);
  idle_until([&] { return drained(); });
  EXPECT_NEAR(static_cast<double>(part().busy_ns.load() - busy_ns), kMs, 0.2 * kMs);
  grant(now_ns() + 10 * kMs);
  part().window_ns = 7 * kMs / 2;
  const uint64_t before_ns = now_ns();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(pass(1, kMs));
  EXPECT_LE(now_ns(), before_ns + kPromptlyNs) << "a piece is thought to take longer";
}

TEST_F(GateTest, HardwareSlicesFollowThePage) {
  part(1).hardware_slice_us = 700;
  gate_.has_context(1);
  EXPECT_EQ(gpu_.slices[1], 700u);
  part().hardware_slice_us = 300;
  grant(wire::kTurnWithoutEnd);
  pass(1, kMs);
  gate_.look(false);
  EXPECT_EQ(gpu_.slices[0], 300u);
}

}  // namespace
}  // namespace tendril::simulation

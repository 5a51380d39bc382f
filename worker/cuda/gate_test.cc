// SPDX-License-Identifier: Apache-2.0
// The gate alone: a page, a stand-in for tendrild that gives turns on it, and a GPU that is nothing but the times at which work ends.
#include "worker/cuda/gate.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstring>
#include <functional>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/fd.h"

namespace tendril::worker::cuda {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000;
constexpr uint64_t kLegacy = 1;  // as CU_STREAM_LEGACY

CUstream stream_of(uint64_t number) { return reinterpret_cast<CUstream>(number); }
CUcontext const kContext = reinterpret_cast<CUcontext>(7);

// Streams run their work in order; an event is the time at which its stream will be done with what it has then.
class FakeGpu final : public GateHost {
 public:
  void run(CUstream stream, uint64_t ns) {
    uint64_t& free_ns = streams_[stream];
    free_ns = std::max(free_ns, base::now_ns()) + ns;
  }
  uint64_t unfinished_ns(CUstream stream) {
    const uint64_t now_ns = base::now_ns();
    return streams_[stream] > now_ns ? streams_[stream] - now_ns : 0;
  }

  CUcontext owner(CUcontext current, CUstream) override { return current; }
  CUevent mark(CUcontext, CUstream stream) override {
    if (refuses_marks) return nullptr;
    ++marks;
    events_[++events_made_] = streams_[stream];
    return reinterpret_cast<CUevent>(events_made_);
  }
  bool reached(CUevent event) override {
    ++looks;
    return broken || base::now_ns() >= events_.at(reinterpret_cast<uint64_t>(event));
  }
  void give_back(CUcontext, CUevent event) override { events_.erase(reinterpret_cast<uint64_t>(event)); }
  bool serve() override {
    ++serves;
    if (on_serve) on_serve();
    return !over && base::now_ns() < patience_until_ns_;
  }
  bool busy() override { return false; }
  void set_hardware_slice(uint32_t slot, uint32_t us) override { slices[slot] = us; }

  size_t events() const { return events_.size(); }
  uint64_t marks = 0, looks = 0, serves = 0;
  bool refuses_marks = false;
  std::atomic<bool> broken{false}, over{false};
  std::function<void()> on_serve;
  std::map<uint32_t, uint32_t> slices;

 private:
  std::map<CUstream, uint64_t> streams_;
  std::map<uint64_t, uint64_t> events_;
  uint64_t events_made_ = 0;
  // A test whose turn ends unexpectedly fails and does not hang.
  const uint64_t patience_until_ns_ = base::now_ns() + 20'000 * kMs;
};

class GateTest : public testing::Test {
 protected:
  GateTest() : bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), gate_(&gpu_, {page_.get(), bell_.get()}, 2) {
    for (wire::TurnPart& part : page_->slices) {
      part.window_ns = 2 * kMs;
      part.linger_ns = kMs / 2;
    }
    part().regime = wire::TurnRegime::kTurns;
  }
  wire::TurnPart& part(uint32_t slot = 0) { return page_->slices[slot]; }
  void wake(uint32_t slot = 0) { syscall(SYS_futex, &part(slot).turn, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }
  void grant(uint64_t until_ns, uint32_t slot = 0) {
    part(slot).until_ns = until_ns;
    part(slot).turn.fetch_add(1);
    wake(slot);
  }
  void move_end(uint64_t until_ns) {
    part().until_ns = until_ns;
    wake();
  }
  bool pass(uint64_t stream, uint64_t ns, uint64_t kind = 0) {
    if (!gate_.pass(0, kContext, stream_of(stream), work_kind(kind != 0 ? kind : ns, 1))) return false;
    gpu_.run(stream_of(stream), ns);
    return true;
  }
  uint64_t rings() {
    uint64_t count = 0;
    return read(bell_.get(), &count, sizeof count) == sizeof count ? count : 0;
  }
  bool drained() { return part().drained.load() == part().turn.load(); }
  // As the executor's loop does when no call comes.
  void idle_until(const std::function<bool()>& condition) {
    const uint64_t begun_ns = base::now_ns();
    while (!condition()) {
      ASSERT_LT(base::now_ns() - begun_ns, 5000 * kMs);
      gate_.look(false);
      gate_.rest();
    }
  }

  std::unique_ptr<wire::TurnPage> page_ = std::make_unique<wire::TurnPage>();
  base::Fd bell_;
  FakeGpu gpu_;
  Gate gate_;
};

TEST_F(GateTest, WhereTheGpuIsWholeThereIsNoGate) {
  EXPECT_FALSE(gate_.open(0));
  EXPECT_TRUE(gate_.open(1));
  EXPECT_TRUE(Gate(&gpu_, {}, 2).open(0));
}

TEST_F(GateTest, AsksOnceAndSleepsUntilItsTurn) {
  uint64_t granted_ns = 0;
  std::thread arbiter([&] {
    while (part().wants.load() == 0) usleep(100);
    usleep(20'000);
    granted_ns = base::now_ns();
    grant(wire::kTurnWithoutEnd);
  });
  EXPECT_TRUE(pass(1, 100 * kUs));
  const uint64_t passed_ns = base::now_ns();
  arbiter.join();
  EXPECT_GE(passed_ns, granted_ns);
  EXPECT_LT(passed_ns, granted_ns + 20 * kMs);
  EXPECT_EQ(rings(), 1u);
  EXPECT_GT(gpu_.serves, 5u) << "what cannot wait is served meanwhile";
  EXPECT_TRUE(pass(1, 100 * kUs));
  EXPECT_EQ(rings(), 0u);
}

TEST_F(GateTest, GivesUpWhenTheTurnIsOverAndItsWorkIsDone) {
  const uint64_t begun_ns = base::now_ns();
  const uint64_t until_ns = begun_ns + 10 * kMs;
  grant(until_ns);
  pass(1, 3 * kMs);
  pass(2, 30 * kMs);
  std::thread arbiter([&] {
    while (!drained()) usleep(100);
    EXPECT_GE(base::now_ns(), begun_ns + 30 * kMs) << "not before the work is done";
    EXPECT_EQ(part().wants.load(), 1u);
    EXPECT_GE(part().busy_ns.load(), 29 * kMs);
    EXPECT_LE(part().busy_ns.load(), base::now_ns() - begun_ns);
    EXPECT_EQ(part().units.load(), 2u);
    grant(wire::kTurnWithoutEnd);
  });
  while (base::now_ns() < until_ns) usleep(100);
  EXPECT_TRUE(pass(1, kMs));
  arbiter.join();
  EXPECT_EQ(part().turn.load(), 2u);
  EXPECT_GT(part().queued_ns.load() + 1, 0u);
}

TEST_F(GateTest, TheExecutorsLoopSeesTheEndPromptly) {
  for (int i = 0; i < 3; ++i) {  // so that the kind is known
    grant(wire::kTurnWithoutEnd);
    pass(1, 4 * kMs);
    move_end(0);
    idle_until([&] { return drained(); });
  }
  uint64_t best_ns = UINT64_MAX;  // of some, as the machine may be busy
  for (int i = 0; i < 30; ++i) {
    grant(base::now_ns() + kMs);
    pass(1, 2 * kMs);
    const uint64_t done_ns = base::now_ns() + gpu_.unfinished_ns(stream_of(1));
    idle_until([&] { return drained(); });
    best_ns = std::min(best_ns, base::now_ns() - done_ns);
    EXPECT_EQ(part().wants.load(), 0u);
  }
  EXPECT_LT(best_ns, 300 * kUs);
}

TEST_F(GateTest, AnIdleHolderGivesUpAfterAWhile) {
  grant(wire::kTurnWithoutEnd);
  const uint64_t begun_ns = base::now_ns();
  pass(1, 2 * kMs);
  EXPECT_EQ(gate_.pace(), Gate::Pace::kSometimes);
  idle_until([&] { return drained(); });
  EXPECT_GE(base::now_ns(), begun_ns + 2 * kMs + kMs / 2);
  EXPECT_EQ(part().wants.load(), 0u);
  EXPECT_GE(rings(), 1u);
  EXPECT_EQ(gate_.pace(), Gate::Pace::kNever);
  EXPECT_EQ(gpu_.events(), 0u);
}

// The GPU has nothing to do while the driver loads what is launched first.
TEST_F(GateTest, ALaunchThatTakesTheDriverLongIsNotWork) {
  grant(base::now_ns() + 60'000 * kMs);
  ASSERT_TRUE(gate_.pass(0, kContext, stream_of(1), work_kind(1, 1)));
  usleep(20'000);  // in the driver
  gpu_.run(stream_of(1), 5'000 * kMs);
  gate_.look_between_calls();
  const uint64_t stalled_ns = part().stalled_ns.load();
  EXPECT_GE(stalled_ns, 20 * kMs);
  // With work before it the GPU is not idle, however long the next launch takes.
  ASSERT_TRUE(gate_.pass(0, kContext, stream_of(2), work_kind(2, 1)));
  usleep(5'000);
  gpu_.run(stream_of(2), kMs);
  gate_.look_between_calls();
  EXPECT_EQ(part().stalled_ns.load(), stalled_ns);
}

TEST_F(GateTest, ATurnInWhichNothingRunsIsGivenUpBeforeALongCall) {
  part().linger_ns = 10'000 * kMs;
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

// As long as the driver is in another call, the turn cannot be given up.
TEST_F(GateTest, TimeWithoutWorkInAnotherCallIsNotWork) {
  grant(base::now_ns() + 60'000 * kMs);
  ASSERT_TRUE(pass(1, kMs));
  idle_until([&] { return gpu_.unfinished_ns(stream_of(1)) == 0; });
  gate_.look(true);
  usleep(20'000);  // loads a module
  gate_.look(false);
  EXPECT_TRUE(drained());
  EXPECT_GE(part().stalled_ns.load(), 19 * kMs);
}

// Somebody of a higher class may come: what is unfinished then is what it waits for.
TEST_F(GateTest, InASmallWindowTheSecondPieceWaitsUntilTheFirstIsNearlyOver) {
  part().window_ns = 300 * kUs;
  for (int i = 0; i < 3; ++i) {  // so that the kind is known
    grant(wire::kTurnWithoutEnd);
    pass(1, kMs);
    move_end(0);
    idle_until([&] { return drained(); });
  }
  grant(base::now_ns() + 60'000 * kMs);
  pass(1, kMs);
  const uint64_t done_ns = base::now_ns() + gpu_.unfinished_ns(stream_of(1));
  ASSERT_TRUE(gate_.pass(0, kContext, stream_of(1), work_kind(kMs, 1)));
  EXPECT_GE(base::now_ns() + 300 * kUs, done_ns);
}

TEST_F(GateTest, WhoseNextPieceUsuallyComesLateDoesNotLinger) {
  part().linger_ns = 20 * kMs;
  uint64_t least_ns = UINT64_MAX;
  for (int i = 0; i < 5 || (i < 30 && least_ns >= 15 * kMs); ++i) {  // this machine may be busy
    grant(base::now_ns() + 60'000 * kMs);
    pass(1, kMs);
    const uint64_t done_ns = base::now_ns() + gpu_.unfinished_ns(stream_of(1));
    idle_until([&] { return drained(); });
    const uint64_t kept_ns = base::now_ns() - done_ns;
    if (i == 0) {
      EXPECT_GE(kept_ns, 20 * kMs) << "nothing is known of it";
    }
    least_ns = std::min(least_ns, kept_ns);
    while (base::now_ns() < done_ns + 50 * kMs) usleep(100);
  }
  EXPECT_LT(least_ns, 15 * kMs);
}

TEST_F(GateTest, WhoseNextPieceUsuallyComesSoonKeepsItsTurn) {
  part().linger_ns = 500 * kMs;
  grant(base::now_ns() + 60'000 * kMs);
  uint32_t late = 0;  // on a busy machine this thread is not let run at times, and then comes late itself
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(pass(1, kMs / 2));
    const uint64_t next_ns = base::now_ns() + gpu_.unfinished_ns(stream_of(1)) + 2 * kMs;
    idle_until([&] { return base::now_ns() >= next_ns; });
    if (!drained()) continue;
    ASSERT_GT(base::now_ns(), next_ns + 2 * kMs);
    ASSERT_LT(++late, 5u);
    grant(base::now_ns() + 60'000 * kMs);
  }
  EXPECT_EQ(part().turn.load(), 1 + late);
  EXPECT_FALSE(drained());
  idle_until([&] { return drained(); });
}

TEST_F(GateTest, WaitingForATurnIsNoGap) {
  part().linger_ns = 30 * kMs;
  std::atomic<bool> ended{false};
  std::thread arbiter([&] {
    while (!ended) {
      while (!ended && part().wants.load() == 0) usleep(100);
      usleep(100'000);  // longer than a turn would be kept
      grant(base::now_ns() + 5 * kMs);
      while (!ended && !drained()) usleep(100);
    }
  });
  for (int i = 0; i < 6; ++i) pass(1, 4 * kMs);
  ended = true;
  arbiter.join();
  grant(base::now_ns() + 60'000 * kMs);
  pass(1, kMs);
  const uint64_t done_ns = base::now_ns() + gpu_.unfinished_ns(stream_of(1));
  idle_until([&] { return drained(); });
  EXPECT_GE(base::now_ns(), done_ns + 20 * kMs);
}

TEST_F(GateTest, NoMoreThanTheWindowIsUnfinished) {
  grant(wire::kTurnWithoutEnd);
  const uint64_t until_ns = base::now_ns() + 60 * kMs;
  uint64_t pieces = 0, too_much = 0;
  for (; base::now_ns() < until_ns; ++pieces) {
    pass(1, 50 * kUs);
    too_much += pieces > 20 && gpu_.unfinished_ns(stream_of(1)) > 3 * kMs;
  }
  EXPECT_GT(pieces, 300u) << "the GPU is not idle";
  EXPECT_LT(too_much, pieces / 4) << "but for when the machine is busy, and measurements are wrong";
  EXPECT_LT(gpu_.marks, pieces / 4) << "a marker is for many small pieces";
}

TEST_F(GateTest, PiecesLongerThanTheWindowGoTwoAtATime) {
  grant(wire::kTurnWithoutEnd);
  const uint64_t begun_ns = base::now_ns();
  for (int i = 0; i < 10; ++i) {
    pass(1, 5 * kMs);
    EXPECT_LE(gpu_.unfinished_ns(stream_of(1)), 11 * kMs);
  }
  EXPECT_LT(base::now_ns() - begun_ns, 10 * 5 * kMs) << "the next one waits in the queue while one runs";
}

TEST_F(GateTest, VeryLongPiecesGoOneAtATime) {
  grant(wire::kTurnWithoutEnd);
  pass(1, 20 * kMs);  // nobody knew
  for (int i = 0; i < 4; ++i) {
    pass(1, 20 * kMs);
    if (i > 1) {
      EXPECT_LE(gpu_.unfinished_ns(stream_of(1)), 21 * kMs);
    }
  }
}

TEST_F(GateTest, NothingLongIsAddedThatWouldBeginAfterTheTurn) {
  grant(wire::kTurnWithoutEnd);
  for (int i = 0; i < 3; ++i) pass(1, 15 * kMs);
  move_end(0);
  idle_until([&] { return drained(); });
  grant(base::now_ns() + 10 * kMs);
  pass(1, 15 * kMs);
  std::thread arbiter([&] {
    while (!drained()) usleep(100);
    grant(wire::kTurnWithoutEnd);
  });
  pass(1, 15 * kMs);
  arbiter.join();
  EXPECT_EQ(part().turn.load(), 3u);
}

TEST_F(GateTest, APieceThatGrowsIsNoticed) {
  grant(wire::kTurnWithoutEnd);
  for (int i = 0; i < 400; ++i) pass(1, 20 * kUs, 5);
  // Of the same kind, twenty-five times as long. Those that fit the window by the old estimate pass before any is over.
  for (int i = 0; i < 250; ++i) pass(1, kMs / 2, 5);
  int too_much = 0;
  for (int i = 0; i < 50; ++i) {
    pass(1, kMs / 2, 5);
    too_much += gpu_.unfinished_ns(stream_of(1)) > 5 * kMs;
  }
  EXPECT_LT(too_much, 25);
}

TEST_F(GateTest, OneStreamThatRunsLongDoesNotStopAnother) {
  grant(wire::kTurnWithoutEnd);
  pass(1, 300 * kMs);
  const uint64_t begun_ns = base::now_ns();
  for (int i = 0; i < 50; ++i) pass(2, 20 * kUs);
  EXPECT_LT(base::now_ns() - begun_ns, 150 * kMs);
}

TEST_F(GateTest, WorkThatWaitsForAPieceThatWaitsHereDoesNotHang) {
  grant(wire::kTurnWithoutEnd);
  pass(1, 3600'000 * kMs, 1);
  pass(1, kMs, 2);
  EXPECT_TRUE(pass(1, kMs, 3)) << "perhaps the one that ends it all";
}

TEST_F(GateTest, ATurnThatIsLengthenedGoesOn) {
  grant(base::now_ns() + 2 * kMs);
  pass(1, 200 * kMs);
  const uint64_t begun_ns = base::now_ns();
  std::thread arbiter([&] {
    usleep(10'000);
    move_end(base::now_ns() + 1000 * kMs);
  });
  while (base::now_ns() < begun_ns + 3 * kMs) usleep(100);
  EXPECT_TRUE(pass(2, kMs));
  EXPECT_GE(base::now_ns(), begun_ns + 10 * kMs);
  EXPECT_LT(base::now_ns(), begun_ns + 150 * kMs) << "what runs long may wait for what came now";
  arbiter.join();
  EXPECT_EQ(part().turn.load(), 1u);
}

TEST_F(GateTest, ErrorsEndWork) {
  grant(wire::kTurnWithoutEnd);
  pass(1, 3600'000 * kMs);
  gpu_.broken = true;
  move_end(0);
  idle_until([&] { return drained(); });
  gpu_.broken = false;
  gpu_.refuses_marks = true;
  grant(base::now_ns() + kMs);
  pass(2, 3600'000 * kMs);
  idle_until([&] { return drained(); });
}

TEST_F(GateTest, AContextThatIsGoneHoldsNothing) {
  grant(wire::kTurnWithoutEnd);
  pass(1, 3600'000 * kMs);
  pass(2, 3600'000 * kMs);
  move_end(0);
  gate_.mark_everything();
  gate_.forget_context(kContext);
  idle_until([&] { return drained(); });
}

TEST_F(GateTest, AStreamThatEndsIsMarkedBefore) {
  grant(base::now_ns() + kMs);
  pass(1, 5 * kMs);
  const uint64_t done_ns = base::now_ns() + gpu_.unfinished_ns(stream_of(1));
  gate_.stream_ends(stream_of(1));
  EXPECT_EQ(gpu_.marks, 1u);
  idle_until([&] { return drained(); });
  EXPECT_GE(base::now_ns(), done_ns);
  EXPECT_EQ(gpu_.marks, 1u);
}

// An event that is recorded there later waits for what other streams have been given, and they for it.
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

// The program may take its time in a host function: what was there before is over all the same, and the turn with it.
TEST_F(GateTest, WorkBeforeAHostFunctionEndsBeforeIt) {
  const uint64_t begun_ns = base::now_ns();
  grant(begun_ns + 5 * kMs);
  EXPECT_TRUE(pass(1, 100 * kUs));
  gate_.host_function(0, kContext, stream_of(1));
  gpu_.run(stream_of(1), 1000 * kMs);
  idle_until([&] { return drained(); });
  EXPECT_LT(base::now_ns() - begun_ns, 500 * kMs);
}

TEST_F(GateTest, WhatWaitsForAHostFunctionTellsNothingOfItsTime) {
  part().linger_ns = 10'000 * kMs;
  grant(wire::kTurnWithoutEnd);
  const auto none_is_marked = [&] { return gpu_.events() == 0 && gpu_.unfinished_ns(stream_of(1)) == 0; };
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
  grant(base::now_ns() + 2 * kMs, 1);
  EXPECT_TRUE(gate_.pass(1, kContext, stream_of(9), work_kind(1, 1)));
  gpu_.run(stream_of(9), kMs);
  std::thread arbiter([&] {
    while (part(1).drained.load() != 1) usleep(100);
    grant(wire::kTurnWithoutEnd, 0);
  });
  EXPECT_TRUE(pass(1, kMs));
  arbiter.join();
}

// tendrild has said that the turn for which the piece waits comes soon: this one is kept so long, and wanted again with that one.
TEST_F(GateTest, WhileOneSliceWaitsAnotherIsKeptAWhileAndWantsItsTurnToo) {
  part(1).regime = wire::TurnRegime::kTurns;
  part(1).await_ns = 40 * kMs;
  grant(wire::kTurnWithoutEnd, 1);
  EXPECT_TRUE(gate_.pass(1, kContext, stream_of(9), work_kind(1, 1)));
  gpu_.run(stream_of(9), kMs);
  const uint64_t begun_ns = base::now_ns();
  uint64_t given_up_ns = 0;
  std::thread arbiter([&] {
    while (part(1).drained.load() != 1) usleep(100);
    given_up_ns = base::now_ns();
    EXPECT_EQ(part(1).wants.load(), wire::kWantsTurnToo);
    grant(base::now_ns() + 100 * kMs, 0);
  });
  EXPECT_TRUE(pass(1, kMs));
  arbiter.join();
  EXPECT_GE(given_up_ns - begun_ns, 40 * kMs);
  EXPECT_EQ(part(1).wants.load(), wire::kWantsTurnToo);
  // Nobody would see such a turn once the executor sleeps.
  idle_until([&] { return drained(); });
  EXPECT_EQ(part(1).wants.load(), wire::kWantsNothing);
  EXPECT_EQ(gate_.pace(), Gate::Pace::kSometimes);
  idle_until([&] { return gate_.pace() == Gate::Pace::kNever; });
}

TEST_F(GateTest, ATurnForWhichNothingCameIsNotWantedToo) {
  part(1).regime = wire::TurnRegime::kTurns;
  grant(wire::kTurnWithoutEnd, 0);
  grant(base::now_ns() + 1000 * kMs, 1);
  pass(1, 30 * kMs);
  pass(1, 30 * kMs);  // waits, with a turn
  pass(1, 30 * kMs);
  EXPECT_EQ(part(1).drained.load(), 1u);
  EXPECT_EQ(part(1).wants.load(), wire::kWantsNothing);
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

TEST(WorkEstimates, LearnsFromBatches) {
  WorkEstimates estimates;
  const WorkKind small = work_kind(1, 1), large = work_kind(2, 1);
  EXPECT_EQ(estimates.of(small), WorkEstimates::kUnknown);
  WorkEstimates::Batch batch;
  for (int i = 0; i < 10; ++i) batch.add(small);
  estimates.learn(batch, 100'000, true);
  EXPECT_EQ(estimates.of(small), 10'000u);
  batch.add(large);
  estimates.learn(batch, 600'000, true);
  EXPECT_EQ(estimates.of(small), 10'000u) << "what is left over is the other's";
  EXPECT_EQ(estimates.of(large), 500'000u);
  for (int i = 0; i < 30; ++i) estimates.learn(batch, 300'000, true);
  EXPECT_NEAR(static_cast<double>(estimates.of(large) + 10 * estimates.of(small)), 300'000, 6'000);
  const uint64_t before = estimates.of(large);
  estimates.learn(batch, 900'000, false);
  EXPECT_EQ(estimates.of(large), before) << "an upper bound raises nothing";
}

TEST(WorkEstimates, GuessesFromTheFamily) {
  WorkEstimates estimates;
  WorkEstimates::Batch batch;
  batch.add(work_kind(1, 1000));
  estimates.learn(batch, 70'000, true);
  EXPECT_EQ(estimates.of(work_kind(1, 2000)), 70'000u);
  EXPECT_EQ(estimates.of(work_kind(2, 1000)), WorkEstimates::kUnknown);
}

TEST(WorkEstimates, RemembersAllKindsOfALargeProgram) {
  WorkEstimates estimates;
  size_t forgotten = 0;
  for (int round = 0; round < 2; ++round) {
    for (uint64_t i = 1; i <= 500; ++i) {
      const WorkKind kind = work_kind(i, i % 7 * 1024 + 1);
      if (round == 1 && estimates.of(kind) == WorkEstimates::kUnknown) ++forgotten;
      WorkEstimates::Batch batch;
      batch.add(kind);
      estimates.learn(batch, 10'000, true);
    }
  }
  EXPECT_EQ(forgotten, 0u);
}

TEST(WorkEstimates, ForgetsWhatIsTooMuchToRemember) {
  WorkEstimates estimates;
  for (uint64_t i = 1; i <= 100'000; ++i) {
    WorkEstimates::Batch batch;
    batch.add(work_kind(i, 1));
    estimates.learn(batch, 1'000'000, true);
    EXPECT_EQ(estimates.of(work_kind(i, 1)), 1'000'000u);
  }
  WorkEstimates::Batch many;
  for (uint64_t i = 1; i <= 100; ++i) many.add(work_kind(i, 2));
  EXPECT_EQ(many.pieces(), 100u);
  estimates.learn(many, 100'000'000, true);
  EXPECT_NEAR(static_cast<double>(estimates.of(work_kind(1, 2))), 1e6, 1e3);
}

}  // namespace
}  // namespace tendril::worker::cuda

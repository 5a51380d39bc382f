// SPDX-License-Identifier: Apache-2.0
// The arbiter with workers that are threads of this process: they ask, use the time they are given, and say
// that they are done, over the same pages and bells.
#include "daemon/arbiter.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <thread>

#include "base/clock.h"

namespace tendril::daemon {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1'000'000'000;

void sleep_ns(uint64_t ns) {
  const timespec time = {static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)};
  nanosleep(&time, nullptr);
}

bool eventually(const std::function<bool()>& holds, uint64_t within_ns = 5 * kSecond) {
  for (const uint64_t end_ns = base::now_ns() + within_ns; base::now_ns() < end_ns; sleep_ns(kMs / 5)) {
    if (holds()) return true;
  }
  return holds();
}

// A worker's end of a seat.
class Worker {
 public:
  Worker(Arbiter* arbiter, uint64_t session_id, uint64_t lease_id) : arbiter_(arbiter), id_(session_id) {
    const auto seat = arbiter->join(session_id, lease_id);
    EXPECT_TRUE(seat.ok());
    bell_ = dup(seat.value().bell_fd);
    void* const at = mmap(nullptr, sizeof(wire::TurnPage), PROT_READ | PROT_WRITE, MAP_SHARED, seat.value().page_fd, 0);
    EXPECT_NE(at, MAP_FAILED);
    page_ = static_cast<wire::TurnPage*>(at);
  }
  ~Worker() {
    stop();
    munmap(page_, sizeof(wire::TurnPage));
    close(bell_);
  }

  wire::TurnPart& part(uint32_t slice = 0) { return page_->slices[slice]; }
  void ring() {
    const uint64_t one = 1;
    EXPECT_EQ(write(bell_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  void want() {
    part().wants = 1;
    ring();
  }
  bool holds() { return part().turn.load() != part().drained.load(); }
  void drain(bool more) {
    part().wants = more;
    part().drained = part().turn.load();
    ring();
  }
  void leave() {
    stop();
    arbiter_->leave(id_);
  }

  // Always has more to do, until stop(). `inside`: how many are in a turn right now.
  void work(std::atomic<int>* inside, std::atomic<int>* most) {
    thread_ = std::thread([this, inside, most] {
      want();
      while (!stopping_) {
        const uint32_t turn = part().turn.load();
        if (turn == part().drained.load()) {
          const timespec most_wait = {0, 20'000'000};
          syscall(SYS_futex, reinterpret_cast<uint32_t*>(&part().turn), FUTEX_WAIT, turn, &most_wait, nullptr, 0);
          continue;
        }
        const int now_inside = ++*inside;
        if (now_inside > *most) *most = now_inside;
        const uint64_t from_ns = base::now_ns();
        while (!stopping_ && base::now_ns() < part().until_ns.load()) sleep_ns(kMs / 5);
        had_ns_ += base::now_ns() - from_ns;
        --*inside;
        drain(true);
      }
    });
  }
  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  uint64_t had_ns() const { return had_ns_; }

 private:
  Arbiter* const arbiter_;
  const uint64_t id_;
  int bell_ = -1;
  wire::TurnPage* page_ = nullptr;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> had_ns_{0};
};

std::unique_ptr<Arbiter> make(uint64_t grace_ns = 10 * kSecond, bool hardware_slices = true) {
  SharingOptions options;
  options.rules.grace_ns = grace_ns;  // this machine may be slow
  options.hardware_slices = hardware_slices;
  auto arbiter = Arbiter::start(options);
  EXPECT_TRUE(arbiter.ok());
  return arbiter.take();
}

std::vector<wire::SliceGrant> slice(uint32_t share_millionths, bool packed = false) {
  wire::SliceGrant grant;
  grant.share_millionths = share_millionths;
  grant.packed = packed;
  return {grant};
}

TEST(Arbiter, SharesArriveAndTurnsDoNotOverlap) {
  const auto arbiter = make();
  arbiter->open(1, slice(250'000), {});
  arbiter->open(2, slice(750'000), {});
  std::atomic<int> inside{0}, most{0};
  Worker one(arbiter.get(), 11, 1), two(arbiter.get(), 12, 2);
  one.work(&inside, &most);
  two.work(&inside, &most);
  sleep_ns(2 * kSecond);
  // Who slept through the end of his turn, on a machine that has much else to do, owes that time for a while.
  auto first = arbiter->use_of(1)[0], second = arbiter->use_of(2)[0];
  double used = 0;
  eventually([&] {
    first = arbiter->use_of(1)[0], second = arbiter->use_of(2)[0];
    used = static_cast<double>(first.used_ns + second.used_ns);
    return std::abs(static_cast<double>(first.used_ns) / used - 0.25) < 0.02 &&
           std::abs(static_cast<double>(first.recent_millionths) - 250'000) < 30'000;
  }, 20 * kSecond);
  one.stop();
  two.stop();
  EXPECT_EQ(most, 1);
  EXPECT_NEAR(static_cast<double>(first.used_ns) / used, 0.25, 0.02);
  EXPECT_NEAR(first.recent_millionths, 250'000, 30'000);
  EXPECT_TRUE(second.measured);
  EXPECT_GT(first.waited_ns, kSecond / 2);
  // What the workers saw is what was counted, but for the switching, which takes long where processors are wanted.
  EXPECT_NEAR(static_cast<double>(two.had_ns()), static_cast<double>(second.used_ns), 0.3 * used);
  EXPECT_GT(arbiter->turns_given(0), 50u);
  EXPECT_GE(arbiter->used_ns(0), first.used_ns + second.used_ns);
}

TEST(Arbiter, AloneATurnLastsUntilAnotherComes) {
  const auto arbiter = make();
  arbiter->open(1, slice(100'000), {});
  arbiter->open(2, slice(100'000), {});
  Worker one(arbiter.get(), 11, 1), two(arbiter.get(), 12, 2);
  one.want();
  ASSERT_TRUE(eventually([&] { return one.holds(); }));
  EXPECT_EQ(one.part().until_ns.load(), wire::kTurnWithoutEnd);
  const uint64_t wide_ns = one.part().window_ns.load();
  sleep_ns(15 * kMs);
  two.want();
  ASSERT_TRUE(eventually([&] { return one.part().until_ns.load() != wire::kTurnWithoutEnd; }));
  EXPECT_LE(one.part().until_ns.load(), base::now_ns() + 16 * kMs) << "more than a quantum of two is left";
  EXPECT_LT(one.part().window_ns.load(), wide_ns);
  EXPECT_FALSE(two.holds());
  one.drain(false);
  ASSERT_TRUE(eventually([&] { return two.holds(); }));
  EXPECT_EQ(two.part().until_ns.load(), wire::kTurnWithoutEnd);
  // The neighbour may be back soon: until it has not come for a while, little may be unfinished.
  EXPECT_LT(two.part().window_ns.load(), wide_ns);
  ASSERT_TRUE(eventually([&] { return two.part().window_ns.load() == wide_ns; }));
}

// It is about to have its turn: from here it need not sleep.
TEST(Arbiter, TheNextWorkerIsWokenWhenATurnEnds) {
  const auto arbiter = make();
  arbiter->open(1, slice(500'000), {});
  arbiter->open(2, slice(500'000), {});
  Worker one(arbiter.get(), 11, 1), two(arbiter.get(), 12, 2);
  bool woken = false;
  // On a busy machine this thread may come too late to be asleep by then; not each time.
  for (int attempt = 0; attempt < 10 && !woken; ++attempt) {
    one.want();
    ASSERT_TRUE(eventually([&] { return one.holds(); }));
    two.want();
    ASSERT_TRUE(eventually([&] { return one.part().until_ns.load() != wire::kTurnWithoutEnd; }));
    const uint32_t turn = two.part().turn;
    const timespec most = {0, 200'000'000};
    auto* const word = reinterpret_cast<uint32_t*>(&two.part().turn);
    woken = syscall(SYS_futex, word, FUTEX_WAIT, turn, &most, nullptr, 0) == 0;
    EXPECT_TRUE(one.holds());
    EXPECT_FALSE(two.holds());
    if (woken) {
      EXPECT_GE(base::now_ns(), one.part().until_ns.load());
    }
    one.drain(false);
    ASSERT_TRUE(eventually([&] { return two.holds(); }));
    two.drain(false);
  }
  EXPECT_TRUE(woken);
}

TEST(Arbiter, AWorkerThatDiesInItsTurnReleasesIt) {
  const auto arbiter = make();
  arbiter->open(1, slice(500'000), {});
  arbiter->open(2, slice(500'000), {});
  Worker one(arbiter.get(), 11, 1), two(arbiter.get(), 12, 2);
  one.want();
  ASSERT_TRUE(eventually([&] { return one.holds(); }));
  two.want();
  sleep_ns(20 * kMs);
  EXPECT_FALSE(two.holds());
  one.leave();
  EXPECT_TRUE(two.holds());
  arbiter->close(1);
  two.leave();
  arbiter->close(2);
}

TEST(Arbiter, AWorkerThatHangsInItsTurnDoesNotStopTheOthers) {
  const auto arbiter = make(30 * kMs);
  arbiter->open(1, slice(500'000), {});
  arbiter->open(2, slice(500'000), {});
  Worker one(arbiter.get(), 11, 1), two(arbiter.get(), 12, 2);
  one.want();
  ASSERT_TRUE(eventually([&] { return one.holds(); }));
  two.want();
  ASSERT_TRUE(eventually([&] { return two.holds(); }, kSecond));
  EXPECT_TRUE(one.holds());
  const uint64_t hung_ns = arbiter->use_of(1)[0].used_ns;
  sleep_ns(20 * kMs);
  EXPECT_GE(arbiter->use_of(1)[0].used_ns, hung_ns + 7 * kMs);  // it pays for its half
  // The same turn goes on now and then: what it waits for may be its own next launch.
  const uint32_t turn = one.part().turn.load();
  const uint64_t until_ns = one.part().until_ns.load();
  ASSERT_TRUE(eventually([&] { return one.part().until_ns.load() > until_ns; }));
  EXPECT_EQ(one.part().turn.load(), turn);
}

// The hardware divides then, and only what is queued: whoever has its turn may queue more than its slice lasts.
TEST(Arbiter, BesideAHungWorkerSlicesAreShortAndQueuesLong) {
  const auto arbiter = make(30 * kMs);
  arbiter->open(1, slice(500'000), {});
  arbiter->open(2, slice(250'000), {});
  Worker hung(arbiter.get(), 11, 1), other(arbiter.get(), 12, 2);
  hung.want();
  ASSERT_TRUE(eventually([&] { return hung.holds(); }));
  other.want();
  ASSERT_TRUE(eventually([&] { return other.holds(); }));
  EXPECT_EQ(hung.part().hardware_slice_us.load(), 1'500u);
  EXPECT_EQ(other.part().hardware_slice_us.load(), 3'000u);
  EXPECT_GE(other.part().window_ns.load(), 2 * other.part().hardware_slice_us.load() * 1000u);
  hung.drain(false);
  ASSERT_TRUE(eventually([&] { return hung.part().hardware_slice_us.load() == 20'000u; }));
  EXPECT_EQ(other.part().hardware_slice_us.load(), 10'000u);
  EXPECT_LT(other.part().window_ns.load(), 2 * kMs);
}

TEST(Arbiter, SessionsOfOneLeaseHaveTheirTurnsTogether) {
  const auto arbiter = make();
  arbiter->open(1, slice(500'000), {});
  arbiter->open(2, slice(500'000), {});
  Worker first(arbiter.get(), 11, 1), second(arbiter.get(), 12, 1), other(arbiter.get(), 13, 2);
  first.want();
  ASSERT_TRUE(eventually([&] { return first.holds(); }));
  EXPECT_FALSE(second.holds());
  second.want();  // joins
  ASSERT_TRUE(eventually([&] { return second.holds(); }));
  other.want();
  ASSERT_TRUE(eventually([&] { return first.part().until_ns.load() != wire::kTurnWithoutEnd; }));
  ASSERT_TRUE(eventually([&] { return second.part().until_ns.load() == first.part().until_ns.load(); }));
  ASSERT_TRUE(eventually([&] { return base::now_ns() > first.part().until_ns.load(); }));
  first.drain(true);
  sleep_ns(10 * kMs);
  EXPECT_FALSE(other.holds());  // the second is still at it
  second.drain(true);
  ASSERT_TRUE(eventually([&] { return other.holds(); }));
  EXPECT_FALSE(first.holds());
  other.drain(false);
  ASSERT_TRUE(eventually([&] { return first.holds() && second.holds(); }));
}

TEST(Arbiter, TheWholeGpuIsFreeAndMayBecomeShared) {
  const auto arbiter = make();
  arbiter->open(1, slice(1'000'000), {});
  arbiter->open(2, slice(500'000, true), {});
  Worker whole(arbiter.get(), 11, 1), packed(arbiter.get(), 12, 2);
  EXPECT_EQ(whole.part().regime.load(), wire::TurnRegime::kFree);
  EXPECT_EQ(whole.part().hardware_slice_us.load(), 0u);
  EXPECT_EQ(packed.part().regime.load(), wire::TurnRegime::kFree);
  EXPECT_FALSE(arbiter->use_of(1)[0].measured);
  arbiter->change(1, slice(500'000), {wire::SharePolicy::kCap, 3});
  EXPECT_EQ(whole.part().regime.load(), wire::TurnRegime::kTurns);
  EXPECT_EQ(whole.part().share_millionths.load(), 500'000u);
  EXPECT_EQ(whole.part().hardware_slice_us.load(), 20'000u);
  whole.want();
  ASSERT_TRUE(eventually([&] { return whole.holds(); }));
  EXPECT_NE(whole.part().until_ns.load(), wire::kTurnWithoutEnd);  // it is capped
  whole.drain(true);
  const uint32_t turn = whole.part().turn.load();
  arbiter->change(1, slice(1'000'000), {});
  EXPECT_EQ(whole.part().regime.load(), wire::TurnRegime::kFree);
  EXPECT_NE(whole.part().turn.load(), turn);  // whoever slept on it does not any more
  EXPECT_GT(arbiter->use_of(1)[0].used_ns, 0u);
}

std::vector<wire::SliceGrant> halves(std::initializer_list<uint32_t> gpus) {
  std::vector<wire::SliceGrant> grants;
  for (const uint32_t gpu : gpus) {
    grants.push_back(slice(500'000)[0]);
    grants.back().gpu_index = gpu;
  }
  return grants;
}

// Its calls go in one order: a turn on one of its GPUs is of no use for long without the other.
TEST(Arbiter, ALeaseHasItsTurnsOnSeveralGpusTogether) {
  const auto arbiter = make();
  arbiter->open(1, halves({0, 1}), {});
  arbiter->open(2, halves({0}), {});
  arbiter->open(3, halves({1}), {});
  Worker both(arbiter.get(), 11, 1), first(arbiter.get(), 12, 2), second(arbiter.get(), 13, 3);
  const auto holds = [&](uint32_t slice) { return both.part(slice).turn.load() != both.part(slice).drained.load(); };
  first.want();
  second.want();
  ASSERT_TRUE(eventually([&] { return first.holds() && second.holds(); }));
  both.part(1).wants = wire::kWantsTurnToo;
  both.ring();
  sleep_ns(20 * kMs);
  EXPECT_EQ(second.part().until_ns.load(), wire::kTurnWithoutEnd);  // without the other GPU it is not wanted
  both.part(0).wants = wire::kWantsTurn;
  both.ring();
  ASSERT_TRUE(eventually([&] { return first.part().until_ns.load() <= base::now_ns(); }));
  first.drain(true);
  ASSERT_TRUE(eventually([&] { return holds(0); }));
  EXPECT_GT(both.part(0).await_ns.load(), 0u);
  ASSERT_TRUE(eventually([&] { return second.part().until_ns.load() <= base::now_ns(); }));
  EXPECT_FALSE(holds(1));
  second.drain(true);
  ASSERT_TRUE(eventually([&] { return holds(1); }));  // unasked
  // And they end together, whichever ends first.
  ASSERT_TRUE(eventually([&] { return both.part(0).until_ns.load() <= base::now_ns(); }));
  ASSERT_TRUE(eventually([&] { return both.part(1).until_ns.load() <= both.part(0).until_ns.load() + 5 * kMs; }));
  EXPECT_TRUE(holds(0) && holds(1));
}

TEST(Arbiter, OfTwoLeasesThatHoldOneGpuEachOneGetsBoth) {
  const auto arbiter = make();
  arbiter->open(1, halves({0, 1}), {});
  arbiter->open(2, halves({0, 1}), {});
  Worker one(arbiter.get(), 11, 1), two(arbiter.get(), 12, 2);
  const auto holds = [](Worker& worker, uint32_t slice) {
    return worker.part(slice).turn.load() != worker.part(slice).drained.load();
  };
  const auto drain = [](Worker& worker, uint32_t slice, uint32_t wants) {
    worker.part(slice).wants = wants;
    worker.part(slice).drained = worker.part(slice).turn.load();
    worker.ring();
  };
  one.part(0).wants = wire::kWantsTurn;
  one.ring();
  two.part(1).wants = wire::kWantsTurn;
  two.ring();
  ASSERT_TRUE(eventually([&] { return holds(one, 0) && holds(two, 1); }));
  // Each waits for the other's now, and gives its own up.
  two.part(0).wants = wire::kWantsTurn;
  one.part(1).wants = wire::kWantsTurn;
  one.ring();
  drain(two, 1, wire::kWantsTurnToo);
  ASSERT_TRUE(eventually([&] { return holds(one, 1); }));
  EXPECT_TRUE(holds(one, 0));
  ASSERT_TRUE(eventually([&] { return one.part(0).until_ns.load() <= base::now_ns(); }));
  drain(one, 0, wire::kWantsTurn);
  drain(one, 1, wire::kWantsTurnToo);
  ASSERT_TRUE(eventually([&] { return holds(two, 0) && holds(two, 1); }));
}

TEST(Arbiter, HardwareSlicesFollowTheShares) {
  for (const bool wanted : {true, false}) {
    const auto arbiter = make(kSecond, wanted);
    const std::pair<uint32_t, uint32_t> cases[] = {
        {10'000, 1'000}, {100'000, 4'000}, {500'000, 20'000}, {900'000, 30'000}};
    uint64_t id = 1;
    for (const auto& [share, us] : cases) {
      arbiter->open(id, slice(share), {});
      Worker worker(arbiter.get(), 100 + id, id);
      EXPECT_EQ(worker.part().hardware_slice_us.load(), wanted ? us : 0u);
      worker.leave();
      arbiter->close(id++);
    }
  }
}

// A worker that rings and writes nonsense costs the others nothing but a little time.
TEST(Arbiter, AHostileWorkerTakesNobodysTurn) {
  const auto arbiter = make(20 * kMs);
  arbiter->open(1, slice(500'000), {});
  arbiter->open(2, slice(500'000), {});
  Worker hostile(arbiter.get(), 11, 1), honest(arbiter.get(), 12, 2);
  std::atomic<bool> stop{false};
  std::thread noise([&] {
    for (uint32_t i = 0; !stop; ++i) {
      wire::TurnPart& part = hostile.part();
      part.wants = i * 2654435761u;
      part.drained = i % 7;
      part.turn = i;
      part.until_ns = i;
      hostile.ring();
      if (i % 64 == 0) sleep_ns(kMs / 10);
    }
  });
  std::atomic<int> inside{0}, most{0};
  honest.work(&inside, &most);
  sleep_ns(kSecond);
  honest.stop();
  stop = true;
  noise.join();
  EXPECT_GT(honest.had_ns(), kSecond / 4);
}

TEST(Arbiter, ManyComeAndGo) {
  const auto arbiter = make();
  std::vector<std::thread> threads;
  std::atomic<uint64_t> next{1};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 30; ++round) {
        const uint64_t lease = next++;
        arbiter->open(lease, slice(200'000), {});
        std::atomic<int> inside{0}, most{0};
        Worker worker(arbiter.get(), 1000 + lease, lease);
        worker.work(&inside, &most);
        sleep_ns(2 * kMs);
        if (round % 3 == 0) arbiter->change(lease, slice(100'000), {wire::SharePolicy::kCap, round % 2});
        arbiter->use_of(lease);
        worker.leave();
        arbiter->close(lease);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(arbiter->use_of(1).empty());
}

}  // namespace
}  // namespace tendril::daemon

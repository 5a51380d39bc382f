// SPDX-License-Identifier: Apache-2.0
// The arbiter with workers that are threads of this process. They ask for turns, use the time they
// get, and report when they are done, over the same pages and bells. These tests hold on a machine
// of any speed. lease_turns_test.cc tests the rules' times.
#include "daemon/arbiter.h"

#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "base/clock.h"

namespace tendril::daemon {
namespace {

constexpr uint64_t kMs = 1'000'000, kSecond = 1'000'000'000;

void sleep_ns(uint64_t ns) {
  const timespec time = {static_cast<time_t>(ns / kSecond), static_cast<long>(ns % kSecond)};
  nanosleep(&time, nullptr);
}

bool eventually(const std::function<bool()>& holds) {
  for (const uint64_t end_ns = base::now_ns() + 40 * kSecond; base::now_ns() < end_ns;
       sleep_ns(kMs / 5)) {
    if (holds()) return true;
  }
  return holds();
}

// A worker's end of a seat.
class Worker {
 public:
  Worker(Arbiter* arbiter, uint64_t session_id, uint64_t lease_id)
      : arbiter_(arbiter), id_(session_id) {
    const auto seat = arbiter->join(session_id, lease_id);
    EXPECT_TRUE(seat.ok());
    bell_ = dup(seat.value().bell_fd);
    void* const at = mmap(nullptr, sizeof(wire::TurnPage), PROT_READ | PROT_WRITE, MAP_SHARED,
                          seat.value().page_fd, 0);
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

  // Always has more to do, until stop(). `inside`: how many workers are in a turn right now.
  void work(std::atomic<int>* inside, std::atomic<int>* most) {
    thread_ = std::thread([this, inside, most] {
      want();
      while (!stopping_) {
        const uint32_t turn = part().turn.load();
        if (turn == part().drained.load()) {
          const timespec most_wait = {0, 20'000'000};
          syscall(SYS_futex, reinterpret_cast<uint32_t*>(&part().turn), FUTEX_WAIT, turn,
                  &most_wait, nullptr, 0);
          continue;
        }
        const int now_inside = ++*inside;
        if (now_inside > *most) *most = now_inside;
        uint64_t counted_ns = base::now_ns();
        while (!stopping_ && counted_ns < part().until_ns.load()) {
          sleep_ns(kMs / 5);
          const uint64_t now_ns = base::now_ns();
          had_ns_ += now_ns - counted_ns;
          counted_ns = now_ns;
        }
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

std::unique_ptr<Arbiter> make(uint64_t grace_ns = 60 * kSecond) {
  lease::SharingOptions options;
  options.rules.grace_ns = grace_ns;
  auto arbiter = Arbiter::start(options);
  EXPECT_TRUE(arbiter.ok());
  return arbiter.take();
}

std::vector<wire::SliceGrant> slice(uint32_t share_millionths) {
  wire::SliceGrant grant;
  grant.share_millionths = share_millionths;
  return {grant};
}

TEST(Arbiter, TurnsDoNotOverlapAndAreCounted) {
  const auto arbiter = make();
  arbiter->open(1, slice(250'000), {});
  arbiter->open(2, slice(750'000), {});
  std::atomic<int> inside{0}, most{0};
  Worker one(arbiter.get(), 11, 1), two(arbiter.get(), 12, 2);
  one.work(&inside, &most);
  two.work(&inside, &most);
  EXPECT_TRUE(eventually(
      [&] { return arbiter->turns_given(0) >= 20 && one.had_ns() > 0 && two.had_ns() > 0; }));
  one.stop();
  two.stop();
  EXPECT_EQ(most, 1);
  const wire::SliceUse first = arbiter->use_of(1)[0], second = arbiter->use_of(2)[0];
  EXPECT_TRUE(first.measured && second.measured);
  EXPECT_GE(first.used_ns, one.had_ns()) << "what a worker sees of its turns is less than they are";
  EXPECT_GE(second.used_ns, two.had_ns());
  EXPECT_GT(first.waited_ns, 0u);
  EXPECT_GE(arbiter->used_ns(0), first.used_ns + second.used_ns);
}

// The worker is about to have its turn. From here on it need not sleep.
TEST(Arbiter, TheNextWorkerIsWokenWhenATurnEnds) {
  const auto arbiter = make();
  arbiter->open(1, slice(500'000), {});
  arbiter->open(2, slice(500'000), {});
  Worker one(arbiter.get(), 11, 1), two(arbiter.get(), 12, 2);
  bool woken = false;
  // Sometimes this thread comes too late to be asleep by then.
  for (const uint64_t end_ns = base::now_ns() + 40 * kSecond; !woken && base::now_ns() < end_ns;) {
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
  ASSERT_TRUE(eventually([&] { return one.part().until_ns.load() != wire::kTurnWithoutEnd; }));
  EXPECT_FALSE(two.holds());
  one.leave();
  EXPECT_TRUE(two.holds());
  arbiter->close(1);
  two.leave();
  arbiter->close(2);
}

// Nobody rings. The timer ends the turn, and lets it continue now and then.
TEST(Arbiter, AWorkerThatHangsInItsTurnDoesNotStopTheOthers) {
  const auto arbiter = make(30 * kMs);
  arbiter->open(1, slice(500'000), {});
  arbiter->open(2, slice(500'000), {});
  Worker one(arbiter.get(), 11, 1), two(arbiter.get(), 12, 2);
  one.want();
  ASSERT_TRUE(eventually([&] { return one.holds(); }));
  two.want();
  ASSERT_TRUE(eventually([&] { return two.holds(); }));
  EXPECT_TRUE(one.holds());
  const uint64_t until_ns = one.part().until_ns.load();
  ASSERT_TRUE(eventually([&] { return one.part().until_ns.load() > until_ns; }));
}

// A worker that rings and writes nonsense costs the others only a little time.
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
  EXPECT_TRUE(eventually([&] { return honest.had_ns() > kSecond / 4; }));
  honest.stop();
  stop = true;
  noise.join();
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
        if (round % 3 == 0)
          arbiter->change(lease, slice(100'000), {wire::SharePolicy::kCap, round % 2});
        arbiter->use_of(lease);
        worker.leave();
        arbiter->close(lease);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(arbiter->use_of(1).empty());
}

// Processor time of a thread of this process, by its name.
uint64_t processor_ns_of(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string comm;
    std::ifstream(task.path() / "comm") >> comm;
    uint64_t ns = 0;
    if (comm == name && std::ifstream(task.path() / "schedstat") >> ns) return ns;
  }
  return 0;
}

bool may_open(rlim_t descriptors) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, descriptors));
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= descriptors;
}

// Each launches once a second. A tenth of a processor is then 100 us for each launch.
TEST(Arbiter, AThousandTenantsTakeLittleOfAProcessor) {
  constexpr uint64_t kTenants = 1000, kLaunches = 3000;
  if (!may_open(4 * kTenants)) GTEST_SKIP() << "too few descriptors for a thousand tenants";
  const auto arbiter = make();
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint64_t lease = 1; lease <= kTenants; ++lease) {
    std::vector<wire::SliceGrant> grant = slice(4'000);
    grant[0].gpu_index = static_cast<uint32_t>(lease % 4);
    arbiter->open(lease, grant, {});
    workers.push_back(std::make_unique<Worker>(arbiter.get(), kTenants + lease, lease));
  }
  const uint64_t before_ns = processor_ns_of("arbiter");
  if (before_ns == 0) GTEST_SKIP() << "the kernel does not count this thread's time";
  std::vector<Worker*> waiting;
  uint64_t begun = 0, done = 0, next_ns = base::now_ns();
  for (const uint64_t end_ns = next_ns + 40 * kSecond;
       done < kLaunches && base::now_ns() < end_ns;) {
    for (auto at = waiting.begin(); at != waiting.end();) {
      const bool has_it = (*at)->holds();
      if (has_it) (*at)->drain(false);
      done += has_it ? 1 : 0;
      at = has_it ? waiting.erase(at) : at + 1;
    }
    if (begun < kLaunches && base::now_ns() >= next_ns) {
      waiting.push_back(workers[begun++ % kTenants].get());
      waiting.back()->want();
      next_ns += kMs;
    }
    sleep_ns(kMs / 5);
  }
  EXPECT_EQ(done, kLaunches);
  const uint64_t each_ns = (processor_ns_of("arbiter") - before_ns) / kLaunches;
  printf("a launch costs the arbiter %.1f us\n", static_cast<double>(each_ns) / 1e3);
  EXPECT_LT(each_ns, 100'000u);
  const uint64_t ending_ns = base::now_ns();
  for (uint64_t lease = 1; lease <= kTenants; ++lease) {
    workers[lease - 1]->leave();
    arbiter->close(lease);
  }
  EXPECT_LT(base::now_ns() - ending_ns, kSecond);
}

}  // namespace
}  // namespace tendril::daemon

// SPDX-License-Identifier: Apache-2.0
// Tests of base/: text, lock, event, thread, descriptors.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "base/call_names.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/result.h"
#include "base/text.h"
#include "base/thread.h"

namespace tendril::base {
namespace {

TEST(Text, FormatsShortAndLong) {
  EXPECT_EQ(format("%d %s", 7, "x"), "7 x");
  std::string big(5000, 'a');
  EXPECT_EQ(format("%s!", big.c_str()), big + "!");
}

TEST(Text, ComparesSecrets) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
  EXPECT_TRUE(equal_in_constant_time("", ""));
}

TEST(Text, RandomBytesDiffer) {
  unsigned char a[16] = {}, b[16] = {};
  ASSERT_TRUE(random_bytes(a, sizeof a));
  ASSERT_TRUE(random_bytes(b, sizeof b));
  EXPECT_NE(hex(a, 16), hex(b, 16));
}

TEST(Text, EnvironmentNumbers) {
  setenv("TENDRIL_TEST_NUMBER", "12", 1);
  EXPECT_EQ(env_u32("TENDRIL_TEST_NUMBER", 5), 12u);
  setenv("TENDRIL_TEST_NUMBER", "12x", 1);
  EXPECT_EQ(env_u32("TENDRIL_TEST_NUMBER", 5), 5u);
  unsetenv("TENDRIL_TEST_NUMBER");
  EXPECT_EQ(env_u32("TENDRIL_TEST_NUMBER", 5), 5u);
}

TEST(Fd, ClosesOnceAndMoves) {
  int raw = open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(raw, 0);
  {
    Fd a(raw);
    Fd b(std::move(a));
    EXPECT_FALSE(a.valid());
    EXPECT_EQ(b.get(), raw);
  }
  EXPECT_EQ(fcntl(raw, F_GETFD), -1);
}

struct Counter {
  Lock lock;
  long value = 0;
};

TEST(Lock, ExcludesThreads) {
  Counter counter;
  Thread threads[4];
  for (Thread& thread : threads) {
    ASSERT_TRUE(thread.start(
        "test",
        [](void* argument) {
          auto* c = static_cast<Counter*>(argument);
          for (int i = 0; i < 20000; ++i) {
            Locked locked(c->lock);
            ++c->value;
          }
        },
        &counter));
  }
  for (Thread& thread : threads) thread.join();
  EXPECT_EQ(counter.value, 80000);
}

TEST(Thread, BlocksSignals) {
  bool blocked = false;
  Thread thread;
  ASSERT_TRUE(thread.start(
      "test",
      [](void* argument) {
        sigset_t set;
        pthread_sigmask(SIG_SETMASK, nullptr, &set);
        *static_cast<bool*>(argument) =
            sigismember(&set, SIGINT) == 1 && sigismember(&set, SIGUSR1) == 1;
      },
      &blocked));
  thread.join();
  EXPECT_TRUE(blocked);
}

TEST(Event, WakesASleeper) {
  struct State {
    Event event;
    std::atomic<bool> ready{false};
  } state;
  Thread thread;
  ASSERT_TRUE(thread.start(
      "test",
      [](void* argument) {
        auto* s = static_cast<State*>(argument);
        s->ready.store(true);
        s->event.signal();
      },
      &state));
  uint64_t start = now_ns();
  while (!state.ready.load()) {
    uint32_t seen = state.event.read();
    if (!state.ready.load()) state.event.wait(seen, 10'000'000);
  }
  EXPECT_LT(now_ns() - start, 5'000'000'000u);
}

TEST(Spin, EndsWhenItsTimeIsOver) {
  EXPECT_FALSE(Spin(0).again());
  Spin spin(2000);
  const uint64_t begun_ns = now_ns();
  while (spin.again()) {
  }
  // On few processors it ends early if others want this one.
  EXPECT_TRUE(now_ns() - begun_ns >= 2'000'000u || !has_many_cpus());
  spin.reset();
  EXPECT_TRUE(spin.again());
}

TEST(Spin, GivesWayOnFewProcessors) {
  if (has_many_cpus()) GTEST_SKIP() << "this machine has many processors";
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
    if (CPU_ISSET(i, &before)) CPU_SET(i, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> over{false};
  Thread other;  // it inherits the one processor
  ASSERT_TRUE(other.start(
      "busy",
      [](void* flag) {
        while (!static_cast<std::atomic<bool>*>(flag)->load()) cpu_pause();
      },
      &over));
  const uint64_t begun_ns = now_ns();
  Spin spin(20'000'000);
  while (spin.again()) {
  }
  EXPECT_LT(now_ns() - begun_ns, 5'000'000'000u);
  over.store(true);
  other.join();
  sched_setaffinity(0, sizeof before, &before);
}

TEST(LearntSpin, DoesNotSpinAfterALongWait) {
  LearntSpin spin;
  EXPECT_EQ(spin.spin_us(1000), 1000u);
  spin.took(10'000'000);
  EXPECT_EQ(spin.spin_us(1000), has_many_cpus() ? 1000u : 0u);
  spin.took(20'000);
  EXPECT_EQ(spin.spin_us(1000), 1000u);
}

TEST(Deadline, Counts) {
  EXPECT_EQ(Deadline(-1).left_ms(), -1);
  EXPECT_FALSE(Deadline(-1).passed());
  EXPECT_TRUE(Deadline(0).passed());
  int left = Deadline(1000).left_ms();
  EXPECT_GT(left, 900);
  EXPECT_LE(left, 1001);
}

TEST(Printable, LeavesNothingThatATerminalObeys) {
  EXPECT_EQ(printable("a\tb\x1b[31m\x7f"), "a?b?[31m?");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m \x9b"
                      "31m"),
            "??31m ?31m")
      << "C1 controls";
  EXPECT_EQ(printable("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"),
            "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(printable("\xc0\xaf \xed\xa0\x80 \xf4\x90\x80\x80 \xff"), "?? ??? ???? ?");
  EXPECT_EQ(printable("ab\xc3\xa9", 3), "ab?") << "cut inside a character";
}

TEST(CallNames, AreWordsWithoutComments) {
  std::vector<std::string> names;
  std::string wrong;
  EXPECT_TRUE(read_call_names("read write # Memory: mmap\n\tpread64\r\n# all", &names, &wrong));
  EXPECT_EQ(names, (std::vector<std::string>{"read", "write", "pread64"}));
  EXPECT_FALSE(read_call_names("read\nWrite;\x1b[2J", &names, &wrong));
  EXPECT_EQ(wrong, "'Write;?[2J' is no name of a system call");
  EXPECT_FALSE(read_call_names(std::string(41, 'a'), &names, &wrong));
  std::string many;
  for (size_t i = 0; i <= kCallNamesMax; ++i) many += "a ";
  names.clear();
  EXPECT_FALSE(read_call_names(many, &names, &wrong));
  EXPECT_EQ(names.size(), kCallNamesMax);
}

TEST(Text, SplitsAtCommasAndKeepsWhatIsEmpty) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(split_at_commas("rdma,tcp"), (Parts{"rdma", "tcp"}));
  EXPECT_EQ(split_at_commas(""), Parts{""});
  EXPECT_EQ(split_at_commas(",a,"), (Parts{"", "a", ""}));
}

TEST(Text, Base64) {
  std::string bytes;
  for (const auto& [plain, coded] : {std::pair<std::string, std::string>{"", ""},
                                     {"f", "Zg=="},
                                     {"fo", "Zm8="},
                                     {"foo", "Zm9v"},
                                     {"foob", "Zm9vYg=="},
                                     {std::string("\xff\x00\xfe", 3), "/wD+"}}) {
    EXPECT_EQ(base64(plain), coded);
    EXPECT_TRUE(read_base64(coded, &bytes));
    EXPECT_EQ(bytes, plain);
  }
  for (const char* bad : {"Z", "Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zm9v\n", "Zm-_"})
    EXPECT_FALSE(read_base64(bad, &bytes)) << bad;
}

}  // namespace
}  // namespace tendril::base

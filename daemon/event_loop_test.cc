// SPDX-License-Identifier: Apache-2.0
// The loop: order of tasks, timers, watching and unwatching.
#include "daemon/event_loop.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <future>

#include "base/clock.h"

namespace tendril::daemon {
namespace {

TEST(EventLoop, RunsWhatIsPostedInOrder) {
  auto loop = EventLoop::create();
  ASSERT_TRUE(loop.ok());
  (*loop)->start();
  std::string order;
  std::promise<void> done;
  (*loop)->post([&] { order += 'a'; });
  (*loop)->post([&] {
    order += 'b';
    (*loop)->post([&] {
      order += 'c';
      done.set_value();
    });
  });
  done.get_future().wait();
  EXPECT_EQ(order, "abc");
}

TEST(EventLoop, TimersComeInTheirOrderAndNotEarly) {
  auto loop = EventLoop::create();
  (*loop)->start();
  const uint64_t begin_ns = base::now_ns();
  std::string order;
  std::promise<void> done;
  (*loop)->after(60, [&] {
    order += 'b';
    done.set_value();
  });
  (*loop)->after(20, [&] { order += 'a'; });
  done.get_future().wait();
  EXPECT_EQ(order, "ab");
  EXPECT_GE(base::now_ns() - begin_ns, 60'000'000u);
}

TEST(EventLoop, WatchesUntilUnwatchedAlsoFromWithin) {
  auto loop = EventLoop::create();
  (*loop)->start();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::promise<void> seen;
  (*loop)->post([&] {
    const auto status = (*loop)->watch(ends[0], EPOLLIN, [&](uint32_t) {
      // nothing is read, so without this the callback would run for ever
      (*loop)->unwatch(ends[0]);
      seen.set_value();  // throws if called twice
    });
    EXPECT_TRUE(status.ok());
  });
  ASSERT_EQ(write(ends[1], "x", 1), 1);
  seen.get_future().wait();
  (*loop)->stop();
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace tendril::daemon

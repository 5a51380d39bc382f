// SPDX-License-Identifier: Apache-2.0
// Order, bounds and the end of a pool of requests.
#include "reception/request_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

namespace tendril::reception {
namespace {

class Gate {
 public:
  void open() {
    std::lock_guard<std::mutex> hold(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock<std::mutex> hold(mutex_);
    changed_.wait(hold, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

TEST(RequestPool, RunsInOrder) {
  std::vector<int> order, wanted;
  std::atomic<int> ended{0};
  RequestPool pool("test", 1);
  for (int i = 0; i < 50; ++i) {
    wanted.push_back(i);
    pool.submit(0, [&, i] {
      order.push_back(i);
      ++ended;
    });
  }
  while (ended < 50) std::this_thread::yield();
  EXPECT_EQ(order, wanted);
}

TEST(RequestPool, RunsSoManyAtOnce) {
  Gate gate;
  std::atomic<int> running{0}, most{0}, ended{0};
  RequestPool pool("test", 3);
  for (int i = 0; i < 50; ++i) {
    pool.submit(uint64_t(i) + 1, [&] {
      most = std::max(most.load(), ++running);
      gate.pass();
      --running;
      ++ended;
    });
  }
  while (pool.waiting().size() > 47) std::this_thread::yield();
  EXPECT_EQ(pool.waiting().size(), 47u);
  EXPECT_EQ(pool.waiting().front(), 4u);
  EXPECT_FALSE(pool.withdraw(1));  // it has begun
  EXPECT_TRUE(pool.withdraw(50));
  EXPECT_FALSE(pool.withdraw(0));
  gate.open();
  while (ended < 49) std::this_thread::yield();
  EXPECT_LE(most, 3);
}

TEST(RequestPool, StopDropsWhatHasNotBegun) {
  Gate gate;
  std::atomic<int> began{0};
  RequestPool pool("test", 1);
  for (int i = 0; i < 5; ++i) {
    pool.submit(0, [&] {
      ++began;
      gate.pass();
    });
  }
  while (began == 0) std::this_thread::yield();
  EXPECT_FALSE(pool.stop(10));
  gate.open();
  EXPECT_TRUE(pool.stop(10'000));
  pool.submit(0, [&] { ++began; });
  EXPECT_EQ(began, 1);
}

TEST(RequestPool, ATaskMayHoldWhatAsksThePoolAtItsEnd) {
  RequestPool pool("test", 1);
  std::atomic<bool> ended{false};
  auto held = std::shared_ptr<int>(new int(0), [&](const int* value) {
    delete value;
    (void)pool.waiting();
    ended = true;
  });
  pool.submit(0, [held = std::move(held)] {});
  while (!ended) std::this_thread::yield();
}

}  // namespace
}  // namespace tendril::reception

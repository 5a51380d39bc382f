// SPDX-License-Identifier: Apache-2.0
// Queues: order within one, waiting between them, no threads for idle ones.

#include "softgpu/driver/stream/scheduler.h"

#include <gtest/gtest.h>

#include <thread>

namespace tendril::softgpu {
namespace {

QueuedOp op(std::function<void()> run, std::vector<TokenPtr> after = {}) {
  QueuedOp made;
  made.run = std::move(run);
  made.after = std::move(after);
  return made;
}

TEST(Queue, KeepsOrder) {
  auto queue = std::make_shared<Queue>();
  std::vector<int> seen;
  TokenPtr last;
  for (int i = 0; i < 1000; ++i) last = queue->push(op([&seen, i] { seen.push_back(i); }));
  last->wait();
  ASSERT_EQ(1000u, seen.size());
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(i, seen[i]);
  EXPECT_TRUE(queue->idle());
}

TEST(Queue, IndependentQueuesDoNotBlockEachOther) {
  auto slow = std::make_shared<Queue>(), fast = std::make_shared<Queue>();
  std::atomic<bool> go{false};
  TokenPtr blocked = slow->push(op([&] {
    while (!go) std::this_thread::yield();
  }));
  fast->push(op([&] { go = true; }))->wait();
  blocked->wait();
}

TEST(Queue, WaitsForTokensOfOthersWithoutAThread) {
  auto first = std::make_shared<Queue>();
  std::atomic<bool> go{false};
  std::atomic<int> ran{0};
  TokenPtr gate = first->push(op([&] {
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }));
  std::vector<std::shared_ptr<Queue>> waiting;
  std::vector<TokenPtr> tokens;
  for (int i = 0; i < 64; ++i) {
    waiting.push_back(std::make_shared<Queue>());
    tokens.push_back(waiting.back()->push(op([&] { ++ran; }, {gate})));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(0, ran.load());
  EXPECT_FALSE(waiting[0]->idle());
  EXPECT_LT(pool_threads(), 64u);
  go = true;
  for (auto& token : tokens) token->wait();
  EXPECT_EQ(64, ran.load());
}

TEST(Queue, InlineRunsOnTheCallerOnlyWhenAlone) {
  auto queue = std::make_shared<Queue>();
  std::mutex order;
  std::unique_lock<std::mutex> lock(order);
  std::thread::id where;
  EXPECT_TRUE(queue->push_inline(op([&] { where = std::this_thread::get_id(); }), lock)->done());
  EXPECT_EQ(std::this_thread::get_id(), where);
  std::atomic<bool> go{false};
  queue->push(op([&] {
    while (!go) std::this_thread::yield();
  }));
  std::unique_lock<std::mutex> again(order);
  TokenPtr later = queue->push_inline(op([&] { where = std::this_thread::get_id(); }), again);
  EXPECT_FALSE(later->done());
  go = true;
  later->wait();
  EXPECT_NE(std::this_thread::get_id(), where);
}

TEST(Queue, ManyThreadsPush) {
  auto queue = std::make_shared<Queue>();
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) queue->push(op([&] { ++ran; }));
    });
  for (auto& thread : threads) thread.join();
  if (TokenPtr last = queue->last()) last->wait();
  EXPECT_EQ(2000, ran.load());
}

TEST(Token, TimesOut) {
  Token token;
  EXPECT_FALSE(token.wait_ms(5));
  int called = 0;
  token.then([&] { ++called; });
  token.complete();
  token.then([&] { ++called; });
  EXPECT_TRUE(token.wait_ms(5));
  EXPECT_EQ(2, called);
}

}  // namespace
}  // namespace tendril::softgpu

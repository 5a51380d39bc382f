// SPDX-License-Identifier: Apache-2.0
// The limit on repeats, errno, and use from many threads at once.
#include "client/common/log.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"

namespace tendril::client {
namespace {

class LogTest : public testing::Test {
 protected:
  void SetUp() override { shown_at(LogLevel::kInfo); }
  void TearDown() override { shown_at(LogLevel::kWarning); }

  void shown_at(LogLevel level) {
    base::set_log_level(static_cast<base::LogLevel>(level));
    forget_logged();
  }

  std::string printed(void (*what)()) {
    testing::internal::CaptureStderr();
    what();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, LineAndErrno) {
  EXPECT_EQ(printed([] {
              errno = EBADF;
              log(LogLevel::kWarning, "server %s: %d", "a", 7);
              EXPECT_EQ(errno, EBADF);
            }),
            "tendril: server a: 7\n");
}

TEST_F(LogTest, WhatIsNotShownIsNotCounted) {
  auto message = [] { log_once(LogLevel::kDebug, "d"); };
  EXPECT_EQ(printed(message), "");
  base::set_log_level(base::LogLevel::kDebug);
  EXPECT_EQ(printed(message), "tendril: d\n");
  EXPECT_EQ(printed(message), "");
}

TEST_F(LogTest, RepeatsAreLimited) {
  EXPECT_EQ(printed([] {
              for (int i = 0; i < 10; ++i) log(LogLevel::kWarning, "same");
              for (int i = 0; i < 2; ++i) log_once(LogLevel::kWarning, "once");
            }),
            "tendril: same\ntendril: same\ntendril: same (further repeats are not shown)\ntendril: "
            "once\n");
}

TEST_F(LogTest, LongLinesAreCut) {
  std::string text = printed([] { log(LogLevel::kWarning, "%s", std::string(5000, 'x').c_str()); });
  EXPECT_LT(text.size(), 1050u);
  EXPECT_EQ(text.back(), '\n');
}

TEST_F(LogTest, ManyThreads) {
  std::string text = printed([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([] {
        for (int i = 0; i < 1000; ++i) log(LogLevel::kWarning, "message %d", i % 20);
      });
    for (auto& thread : threads) thread.join();
  });
  size_t lines = 0;
  for (char c : text) lines += c == '\n';
  EXPECT_EQ(lines, 20u * kRepeatsMax);
}

}  // namespace
}  // namespace tendril::client

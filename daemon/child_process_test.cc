// SPDX-License-Identifier: Apache-2.0
// Starting children: output, status, time limits, nothing inherited.
#include "daemon/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

namespace tendril::daemon {
namespace {

TEST(ChildProcess, CollectsOutputAndStatus) {
  auto output = run_child("/bin/sh", {"-c", "echo out; echo err >&2; exit 3"}, 5000);
  ASSERT_TRUE(output.ok()) << output.status().message();
  EXPECT_EQ(output->text, "out\nerr\n");
  EXPECT_EQ(describe_exit(output->wait_status), "exited with status 3");
}

TEST(ChildProcess, SaysWhichSignal) {
  auto output = run_child("/bin/sh", {"-c", "kill -KILL $$"}, 5000);
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(describe_exit(output->wait_status), "was killed by signal 9 (Killed)");
}

TEST(ChildProcess, NamesWhatCannotBeStarted) {
  const auto output = run_child("/nonexistent/program", {}, 5000);
  ASSERT_FALSE(output.ok());
  EXPECT_NE(output.status().message().find("/nonexistent/program"), std::string::npos);
}

TEST(ChildProcess, KillsWhatIsLate) {
  const uint64_t begin_ns = base::now_ns();
  for (const char* script : {"sleep 60", "exec >&- 2>&-; sleep 60"}) {
    const auto output = run_child("/bin/sh", {"-c", script}, 300);
    EXPECT_EQ(output.status().code(), base::Code::kTimeout) << script;
  }
  EXPECT_LT(base::now_ns() - begin_ns, 10'000'000'000u);
}

TEST(ChildProcess, InheritsNothingElse) {
  // Without close-on-exec on purpose. The child must not inherit it anyway.
  const int leak = fcntl(0, F_DUPFD, 50);
  auto output = run_child("/bin/sh", {"-c", "ls /proc/self/fd | tr '\\n' ' '"}, 5000);
  close(leak);
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(output->text, "0 1 2 3 ") << "(3 is the folder being listed)";
}

}  // namespace
}  // namespace tendril::daemon

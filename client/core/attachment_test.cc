// SPDX-License-Identifier: Apache-2.0
// A process attaches once and tries again after a failure. A forked child starts without an
// attachment.
#include "client/core/attachment.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/core/part.h"

namespace tendril::client::core {
namespace {

struct Process {
  int number = 0;
};

constexpr int kSuccess = 0, kFailure = 7;

TEST(Attachment, RemembersSuccessAndTriesAgainAfterFailure) {
  static constinit Attachment<Process> attachment;
  static Process process;
  int tries = 0;
  const auto in_child = [] { (void)attachment.dropped_in_child(); };
  const auto attach = [&](int result) {
    return attachment.once(kSuccess, in_child, [&] {
      ++tries;
      if (result == kSuccess) attachment.set(&process);
      return result;
    });
  };
  EXPECT_EQ(attach(kFailure), kFailure);
  EXPECT_EQ(attachment.process(), nullptr);
  EXPECT_EQ(attach(kSuccess), kSuccess);
  EXPECT_EQ(attach(kFailure), kSuccess);
  EXPECT_EQ(tries, 2);
  EXPECT_EQ(attachment.process(), &process);

  const pid_t child = fork();
  if (child == 0) _exit(attachment.process() == nullptr && attachment.forked() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(attachment.forked());
}

TEST(Attachment, AChildOfAnUnattachedProcessMayAttach) {
  Attachment<Process> attachment;
  EXPECT_EQ(attachment.dropped_in_child(), nullptr);
  EXPECT_FALSE(attachment.forked());
}

TEST(Part, IsMadeOnceAtFirstUse) {
  static int made = 0;
  struct Counted {
    Counted() { ++made; }
    int value = 5;
  };
  static Part<Counted>* const part = new Part<Counted>;
  EXPECT_EQ(made, 0);
  (*part)->value = 6;
  EXPECT_EQ(part->get().value, 6);
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace tendril::client::core

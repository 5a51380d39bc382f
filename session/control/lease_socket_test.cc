// SPDX-License-Identifier: Apache-2.0
// A process finds the holder of its own lease, and of the leases of the processes that started it.
// It finds no other holder.
#include "session/control/lease_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tendril::session {
namespace {

TEST(LeaseSocket, AProcessFindsItsOwnAndItsParents) {
  EXPECT_TRUE(lease_holders().empty());
  const base::Fd mine = listen_for_lease(getpid());
  ASSERT_TRUE(mine.valid());
  EXPECT_EQ(lease_holders().size(), 1u);
  const pid_t child = fork();
  if (child == 0) {
    const base::Fd childs = listen_for_lease(getpid());
    const pid_t grandchild = fork();
    if (grandchild == 0) _exit(static_cast<int>(lease_holders().size()));
    int status = 0;
    waitpid(grandchild, &status, 0);
    _exit(childs.valid() ? WEXITSTATUS(status) : 100);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 2);
}

TEST(LeaseSocket, OneHolderForAProcess) {
  base::Fd first = listen_for_lease(getpid());
  ASSERT_TRUE(first.valid());
  EXPECT_FALSE(listen_for_lease(getpid()).valid());
  first.reset();
  EXPECT_TRUE(lease_holders().empty());
  EXPECT_TRUE(listen_for_lease(getpid()).valid());
}

TEST(LeaseSocket, NobodyHoldsForAProcessThatIsNot) {
  EXPECT_EQ(lease_socket_name(-1), "");
  EXPECT_FALSE(listen_for_lease(-1).valid());
}

}  // namespace
}  // namespace tendril::session

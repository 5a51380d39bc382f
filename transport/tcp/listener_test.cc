// SPDX-License-Identifier: Apache-2.0
// Addresses to listen on: loopback or not, taken ports, stale sockets.
#include "transport/tcp/listener.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace tendril::transport {
namespace {

TEST(Listener, KnowsLoopback) {
  auto local = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(local.ok()) << local.status().message();
  EXPECT_TRUE((*local)[0].loopback);
  EXPECT_NE((*local)[0].port, 0);
  auto any = listen_tcp("0.0.0.0:0", 7433);
  ASSERT_TRUE(any.ok()) << any.status().message();
  EXPECT_FALSE((*any)[0].loopback);
  EXPECT_NE((*any)[0].port, 7433);
}

TEST(Listener, RefusesNonsenseAndTakenPorts) {
  EXPECT_FALSE(listen_tcp("127.0.0.1:x", 0).ok());
  EXPECT_FALSE(listen_tcp("127.0.0.1:70000", 0).ok());
  EXPECT_FALSE(listen_tcp("no-such-host.invalid", 0).ok());
  auto first = listen_tcp("127.0.0.1:0", 0);
  ASSERT_TRUE(first.ok());
  const auto second = listen_tcp("127.0.0.1:" + std::to_string((*first)[0].port), 0);
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("another program listens there"), std::string::npos)
      << second.status().message();
}

TEST(Listener, ReplacesAStaleUnixSocketButNotALiveOne) {
  const std::string path = "/tmp/tendril-listener-test-" + std::to_string(getpid());
  {
    auto first = listen_unix(path);
    ASSERT_TRUE(first.ok()) << first.status().message();
    EXPECT_FALSE(listen_unix(path).ok());
  }
  auto again = listen_unix(path);
  EXPECT_TRUE(again.ok()) << again.status().message();
  unlink(path.c_str());
  EXPECT_FALSE(listen_unix(std::string(300, 'x')).ok());
}

}  // namespace
}  // namespace tendril::transport

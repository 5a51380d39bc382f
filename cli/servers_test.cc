// SPDX-License-Identifier: Apache-2.0
// From named servers to endpoints. config/servers_test.cc tests which servers are named.
#include "cli/servers.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

namespace tendril::cli {
namespace {

TEST(ResolveServers, ReadsEndpoints) {
  const auto found = resolve_servers({"a", "b:7000,[::1]:7001", "unix:/run/t.sock"});
  ASSERT_TRUE(found.ok()) << found.status().message();
  ASSERT_EQ(found.value().endpoints.size(), 4u);
  EXPECT_EQ(found.value().source, "--server");
  EXPECT_EQ(found.value().endpoints[0].port, wire::kDefaultPort);
  EXPECT_EQ(found.value().endpoints[1].port, 7000);
  EXPECT_EQ(found.value().endpoints[2].host, "::1");
  EXPECT_EQ(found.value().endpoints[3].unix_path, "/run/t.sock");
}

TEST(ResolveServers, SaysWhatIsWrongAndWhere) {
  EXPECT_FALSE(resolve_servers({"gpu:notaport"}).ok());
  char path[] = "/tmp/tendril-servers-XXXXXX";
  close(mkstemp(path));
  std::ofstream(path) << "gpu1\ngpu2:port\n";
  unsetenv("TENDRIL_SERVERS");
  setenv("TENDRIL_SERVERS_CONF", path, 1);
  const auto found = resolve_servers({});
  unsetenv("TENDRIL_SERVERS_CONF");
  unlink(path);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.status().message().find(std::string(path) + ", line 2: "), 0u)
      << found.status().message();
}

}  // namespace
}  // namespace tendril::cli

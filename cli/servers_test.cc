// SPDX-License-Identifier: Apache-2.0
// Which servers are meant: the file's syntax and the order of the sources.
#include "cli/servers.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

namespace tendril::cli {
namespace {

TEST(ServersConf, ReadsEndpointsAndComments) {
  auto endpoints = parse_servers_conf(
      "# the pool\n\n gpu1\ngpu2:7000   # big\n\t[::1]:7001\nunix:/run/t.sock\r\n", "f");
  ASSERT_TRUE(endpoints.ok()) << endpoints.status().message();
  ASSERT_EQ(endpoints->size(), 4u);
  EXPECT_EQ((*endpoints)[0].host, "gpu1");
  EXPECT_EQ((*endpoints)[0].port, wire::kDefaultPort);
  EXPECT_EQ((*endpoints)[1].port, 7000);
  EXPECT_EQ((*endpoints)[2].host, "::1");
  EXPECT_EQ((*endpoints)[3].unix_path, "/run/t.sock");
}

TEST(ServersConf, NamesTheLineThatIsWrong) {
  const auto endpoints = parse_servers_conf("gpu1\ngpu2:port\n", "/etc/tendril/servers.conf");
  ASSERT_FALSE(endpoints.ok());
  EXPECT_NE(endpoints.status().message().find("/etc/tendril/servers.conf, line 2"),
            std::string::npos);
}

class Resolve : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"TENDRIL_SERVERS", "TENDRIL_SERVERS_CONF", "XDG_CONFIG_HOME"})
      unsetenv(name);
    char name[] = "/tmp/tendril-servers-XXXXXX";
    close(mkstemp(name));
    path_ = name;
  }
  void TearDown() override { unlink(path_.c_str()); }
  std::string path_;
};

TEST_F(Resolve, CommandLineThenEnvironmentThenFileThenThisMachine) {
  setenv("HOME", "/nonexistent", 1);
  auto found = resolve_servers({});
  ASSERT_TRUE(found.ok());
  if (found->source == "default") {
    EXPECT_EQ(found->endpoints[0].host, "127.0.0.1");
  }
  std::ofstream(path_) << "from-file\n";
  setenv("TENDRIL_SERVERS_CONF", path_.c_str(), 1);
  found = resolve_servers({});
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->endpoints[0].host, "from-file");
  EXPECT_EQ(found->source, path_);
  setenv("TENDRIL_SERVERS", "from-environment, second:1", 1);
  found = resolve_servers({});
  ASSERT_EQ(found->endpoints.size(), 2u);
  EXPECT_EQ(found->endpoints[0].host, "from-environment");
  found = resolve_servers({"a", "b,c"});
  ASSERT_EQ(found->endpoints.size(), 3u);
  EXPECT_EQ(found->source, "--server");
}

TEST_F(Resolve, SaysWhatIsWrong) {
  setenv("TENDRIL_SERVERS_CONF", "/nonexistent/servers.conf", 1);
  EXPECT_FALSE(resolve_servers({}).ok());
  EXPECT_FALSE(resolve_servers({"gpu:notaport"}).ok());
}

}  // namespace
}  // namespace tendril::cli

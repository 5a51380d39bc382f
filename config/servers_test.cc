// SPDX-License-Identifier: Apache-2.0
// Which servers are meant: the file's syntax and the order of the sources.
#include "config/servers.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace tendril::config {
namespace {

TEST(ServersFile, ReadsEndpointsAndComments) {
  const auto servers = servers_in_file(
      "# the pool\n\n gpu1\ngpu2:7000   # big\n\t[::1]:7001\nunix:/run/t.sock\r\n", "f");
  ASSERT_EQ(servers.size(), 4u);
  EXPECT_EQ(servers[0].endpoint, "gpu1");
  EXPECT_EQ(servers[0].where, "f, line 3");
  EXPECT_EQ(servers[1].endpoint, "gpu2:7000");
  EXPECT_EQ(servers[2].endpoint, "[::1]:7001");
  EXPECT_EQ(servers[3].endpoint, "unix:/run/t.sock");
  EXPECT_EQ(servers[3].where, "f, line 6");
  EXPECT_TRUE(servers_in_file("", "f").empty());
  EXPECT_TRUE(servers_in_file("#\n\n  \n", "f").empty());
}

class FindServers : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"TENDRIL_SERVERS", "TENDRIL_SERVERS_CONF", "XDG_CONFIG_HOME"})
      unsetenv(name);
    char name[] = "/tmp/tendril-servers-XXXXXX";
    folder_ = mkdtemp(name);
    setenv("HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("TENDRIL_SERVERS_CONF");
    unsetenv("TENDRIL_SERVERS");
  }
  // A file below the test's folder, and the folders above it.
  std::string write(const std::string& path, const std::string& text) {
    for (size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1))
      mkdir((folder_ + "/" + path.substr(0, at)).c_str(), 0700);
    std::ofstream(folder_ + "/" + path) << text;
    return folder_ + "/" + path;
  }
  std::string first(const std::vector<std::string>& asked = {}) {
    const auto found = find_servers(asked);
    return found.ok() ? found.value().servers[0].endpoint + " from " + found.value().source
                      : found.status().message();
  }
  std::string folder_;
};

TEST_F(FindServers, NobodyNamedOneSoThisMachineIsMeant) {
  if (access("/etc/tendril/servers.conf", F_OK) == 0) GTEST_SKIP() << "this machine has a file";
  const auto found = find_servers();
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found.value().servers[0].endpoint, "127.0.0.1");
  EXPECT_TRUE(found.value().is_default());
  const base::Status why = with_hint(found.value(), {base::Code::kUnavailable, "nobody listens"});
  EXPECT_EQ(why.code(), base::Code::kUnavailable);
  EXPECT_EQ(why.message().find("nobody listens. No GPU server is named"), 0u) << why.message();
  EXPECT_NE(why.message().find("TENDRIL_SERVERS"), std::string::npos);
  EXPECT_NE(why.message().find("tendril run"), std::string::npos);
  setenv("HOME", "", 1);
  EXPECT_EQ(first(), "127.0.0.1 from default");
}

TEST_F(FindServers, CallerThenEnvironmentThenNamedFileThenUsualFiles) {
  const std::string usual = write(".config/tendril/servers.conf", "from-home\n");
  EXPECT_EQ(first(), "from-home from " + usual);
  const std::string xdg = write("xdg/tendril/servers.conf", "# ours\n  from-xdg:1  # first\n");
  setenv("XDG_CONFIG_HOME", (folder_ + "/xdg").c_str(), 1);
  EXPECT_EQ(first(), "from-xdg:1 from " + xdg);
  const std::string named = write("named", "from-file\n");
  setenv("TENDRIL_SERVERS_CONF", named.c_str(), 1);
  EXPECT_EQ(first(), "from-file from " + named);
  setenv("TENDRIL_SERVERS", "from-environment, second:1", 1);
  EXPECT_EQ(first(), "from-environment from TENDRIL_SERVERS");
  EXPECT_EQ(first({"a", "b,c"}), "a from --server");
  EXPECT_EQ(find_servers({"a", "b,c"}).value().servers.size(), 3u);
  EXPECT_EQ(with_hint(find_servers({"a"}).value(), {base::Code::kTimeout, "late"}).message(),
            "late");
}

TEST_F(FindServers, ANamedFileMustNameAServerAndTheUsualOnesNeedNot) {
  setenv("TENDRIL_SERVERS_CONF", (folder_ + "/none.conf").c_str(), 1);
  EXPECT_NE(first().find("TENDRIL_SERVERS_CONF: cannot read " + folder_ + "/none.conf"),
            std::string::npos)
      << first();
  setenv("TENDRIL_SERVERS_CONF", write("empty.conf", "# nobody\n").c_str(), 1);
  EXPECT_NE(first().find("names no server"), std::string::npos);
  setenv("TENDRIL_SERVERS_CONF", write("large.conf", std::string(2 << 20, '#')).c_str(), 1);
  EXPECT_NE(first().find("larger than 1 MiB"), std::string::npos);
  unsetenv("TENDRIL_SERVERS_CONF");
  write(".config/tendril/servers.conf", "# nobody yet\n");
  EXPECT_TRUE(find_servers().ok());
}

}  // namespace
}  // namespace tendril::config

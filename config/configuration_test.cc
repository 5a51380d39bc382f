// SPDX-License-Identifier: Apache-2.0
// The environment contract, variable by variable. Runs in one process per test binary: each test
// starts from a clean environment.
#include "config/configuration.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace tendril::config {
namespace {

class ConfigurationTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"TENDRIL_SERVERS", "TENDRIL_LEASES", "TENDRIL_GPUS", "TENDRIL_SLICE", "TENDRIL_MEMORY",
          "TENDRIL_CAP", "TENDRIL_PRIORITY", "TENDRIL_TOKEN", "TENDRIL_TOKEN_FILE",
          "TENDRIL_TRANSPORT", "TENDRIL_SERVERS_CONF", "XDG_CONFIG_HOME", "TENDRIL_FILTER",
          "TENDRIL_CLASS", "TENDRIL_ACCOUNT", "TENDRIL_LAYOUT", "TENDRIL_MAX", "TENDRIL_WAIT"}) {
      unsetenv(name);
    }
    home_ = testing::TempDir() + "home" + std::to_string(getpid());
    mkdir(home_.c_str(), 0700);
    mkdir((home_ + "/.config").c_str(), 0700);
    mkdir((home_ + "/.config/tendril").c_str(), 0700);
    unlink((home_ + "/.config/tendril/servers.conf").c_str());
    setenv("HOME", home_.c_str(), 1);
  }

  std::string write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
    return path;
  }

  base::Status failure() {
    auto result = load_configuration();
    return result.ok() ? base::Status() : result.status();
  }

  std::string home_;
};

TEST_F(ConfigurationTest, NothingNamedMeansThisMachine) {
  if (access("/etc/tendril/servers.conf", F_OK) == 0) GTEST_SKIP() << "this machine has a file";
  auto result = load_configuration();
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->servers.size(), 1u);
  EXPECT_EQ(result->servers[0].endpoint, "127.0.0.1");
  EXPECT_TRUE(result->is_default());
  EXPECT_FALSE(result->leased());
}

TEST_F(ConfigurationTest, ServersInOrderWithDefaults) {
  setenv("TENDRIL_SERVERS", " a:1 ,,[::1]:2, unix:/run/t.sock", 1);
  auto result = load_configuration();
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->servers.size(), 3u);
  EXPECT_EQ(result->servers[0].endpoint, "a:1");
  EXPECT_EQ(result->servers[1].endpoint, "[::1]:2");
  EXPECT_EQ(result->servers[2].endpoint, "unix:/run/t.sock");
  EXPECT_EQ(result->source, "TENDRIL_SERVERS");
  EXPECT_EQ(result->slice_count, 1u);
  EXPECT_EQ(result->slice.share_millionths, 1'000'000u);
  EXPECT_EQ(result->slice.memory_bytes, 0u);
  EXPECT_EQ(result->transport, "");
  EXPECT_FALSE(result->leased());
}

TEST_F(ConfigurationTest, LeasesWinAndKeepOrder) {
  setenv("TENDRIL_SERVERS", "other", 1);
  setenv("TENDRIL_LEASES", "b:7433=18446744073709551615:00fFa1,unix:/x=y/s=2:ab", 1);
  auto result = load_configuration();
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->servers.size(), 2u);
  EXPECT_TRUE(result->leased());
  EXPECT_EQ(result->servers[0].endpoint, "b:7433");
  EXPECT_EQ(result->servers[0].lease_id, UINT64_MAX);
  EXPECT_EQ(result->servers[0].lease_secret, std::string("\x00\xff\xa1", 3));
  EXPECT_EQ(result->servers[1].endpoint, "unix:/x=y/s");
  EXPECT_EQ(result->servers[1].lease_id, 2u);
}

TEST_F(ConfigurationTest, BadLeasesAreRefusedWithoutTellingTheSecret) {
  for (const char* text : {"a", "a=1", "a=:beef", "a=0:beef", "=1:beef", "a=1:bee", "a=1:beeg",
                           "a=1:beef,b", "a=18446744073709551616:beef"}) {
    setenv("TENDRIL_LEASES", text, 1);
    base::Status status = failure();
    EXPECT_EQ(status.code(), base::Code::kInvalid) << text;
    EXPECT_EQ(status.message().find("bee"), std::string::npos) << status.message();
  }
}

TEST_F(ConfigurationTest, ServersOfAFile) {
  write(home_ + "/.config/tendril/servers.conf", "# ours\n  one:1  # first\n\ntwo\r\n");
  auto result = load_configuration();
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->servers.size(), 2u);
  EXPECT_EQ(result->servers[0].endpoint, "one:1");
  EXPECT_EQ(result->servers[1].endpoint, "two");
  setenv("TENDRIL_SERVERS_CONF", (home_ + "/missing.conf").c_str(), 1);
  EXPECT_EQ(failure().code(), base::Code::kNotFound);
  EXPECT_NE(failure().message().find("missing.conf"), std::string::npos);
}

TEST_F(ConfigurationTest, Slices) {
  setenv("TENDRIL_SERVERS", "a", 1);
  setenv("TENDRIL_GPUS", "64", 1);
  setenv("TENDRIL_MEMORY", "10G", 1);
  auto result = load_configuration();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->slice_count, 64u);
  EXPECT_EQ(result->slice.memory_bytes, 10ull << 30);
  EXPECT_EQ(result->slice.share_millionths, 0u) << "the server derives the share";
  setenv("TENDRIL_SLICE", "1/3", 1);
  result = load_configuration();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->slice.memory_bytes, 10ull << 30);
  EXPECT_EQ(result->slice.share_millionths, 333'333u);
  for (const char* bad : {"0", "65", "-1", "two", "1.5"}) {
    setenv("TENDRIL_GPUS", bad, 1);
    EXPECT_EQ(failure().code(), base::Code::kInvalid) << bad;
  }
  unsetenv("TENDRIL_GPUS");
  setenv("TENDRIL_SLICE", "2", 1);
  EXPECT_EQ(failure().message().find("TENDRIL_SLICE: '2' is not"), 0u) << failure().message();
  unsetenv("TENDRIL_SLICE");
  setenv("TENDRIL_MEMORY", "much", 1);
  EXPECT_EQ(failure().message().find("TENDRIL_MEMORY: 'much' is not"), 0u) << failure().message();
}

// The command line's texts are read by read_slice, too.
TEST_F(ConfigurationTest, ABareNumberOfMemoryMeansTheSameEverywhere) {
  setenv("TENDRIL_SERVERS", "a", 1);
  setenv("TENDRIL_MEMORY", "512", 1);
  EXPECT_EQ(load_configuration()->slice.memory_bytes, 512ull << 20);
  EXPECT_EQ(read_slice({"-p", ""}, {"-m", "512"})->memory_bytes, 512ull << 20);
}

TEST_F(ConfigurationTest, Terms) {
  setenv("TENDRIL_SERVERS", "a", 1);
  auto result = load_configuration();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->terms.policy, wire::SharePolicy::kLend);
  EXPECT_EQ(result->terms.priority, 0);
  setenv("TENDRIL_CAP", "1", 1);
  setenv("TENDRIL_PRIORITY", "-7", 1);
  result = load_configuration();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->terms.policy, wire::SharePolicy::kCap);
  EXPECT_EQ(result->terms.priority, -7);
  for (const char* bad : {"101", "-", "--1", "high", "1.5", "-101", "99999999999999999999"}) {
    setenv("TENDRIL_PRIORITY", bad, 1);
    EXPECT_EQ(failure().code(), base::Code::kInvalid) << bad;
  }
  setenv("TENDRIL_PRIORITY", "100", 1);
  setenv("TENDRIL_CAP", "yes", 1);
  EXPECT_NE(failure().message().find("TENDRIL_CAP=yes"), std::string::npos);
}

TEST_F(ConfigurationTest, TokenAndTransport) {
  setenv("TENDRIL_SERVERS", "a", 1);
  setenv("TENDRIL_TOKEN_FILE", write(home_ + "/token", "from file\n").c_str(), 1);
  setenv("TENDRIL_TRANSPORT", "tcp", 1);
  auto result = load_configuration();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->token, "from file");
  EXPECT_EQ(result->transport, "tcp");
  setenv("TENDRIL_TOKEN", "directly", 1);
  EXPECT_EQ(load_configuration()->token, "directly");
  unsetenv("TENDRIL_TOKEN");
  setenv("TENDRIL_TOKEN_FILE", (home_ + "/none").c_str(), 1);
  EXPECT_NE(failure().message().find("TENDRIL_TOKEN_FILE"), std::string::npos);
  unsetenv("TENDRIL_TOKEN_FILE");
  setenv("TENDRIL_TRANSPORT", " auto ", 1);
  EXPECT_EQ(load_configuration()->transport, "");
}

TEST_F(ConfigurationTest, PassagesAndWindows) {
  setenv("TENDRIL_SERVERS", "a", 1);
  for (const auto& [name, uses] : {std::pair{"TENDRIL_PASSAGES", &Configuration::uses_passages},
                                   {"TENDRIL_WINDOWS", &Configuration::uses_windows}}) {
    EXPECT_TRUE((*load_configuration()).*uses);
    setenv(name, "off", 1);
    EXPECT_FALSE((*load_configuration()).*uses);
    setenv(name, "no", 1);
    EXPECT_EQ(failure().code(), base::Code::kInvalid);
    unsetenv(name);
  }
}

TEST_F(ConfigurationTest, Link) {
  setenv("TENDRIL_SERVERS", "a", 1);
  EXPECT_EQ(load_configuration()->link_delay_us, 0u);
  setenv("TENDRIL_LINK", "200:1250", 1);
  auto result = load_configuration();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->link_delay_us, 200u);
  EXPECT_EQ(result->link_megabytes_per_s, 1250u);
  for (const char* bad : {"200", ":", "1:", ":1", "-1:5", "1:2:3", "10000001:0"}) {
    setenv("TENDRIL_LINK", bad, 1);
    EXPECT_EQ(failure().code(), base::Code::kInvalid) << bad;
  }
  unsetenv("TENDRIL_LINK");
}

TEST_F(ConfigurationTest, Outage) {
  setenv("TENDRIL_SERVERS", "a", 1);
  EXPECT_EQ(load_configuration()->outage_ms, 30'000u);
  for (const auto& [text, ms] : {std::pair{"90s", 90'000u},
                                 {"2m", 120'000u},
                                 {"off", 0u},
                                 {"0", 0u},
                                 {"24h", 86'400'000u}}) {
    setenv("TENDRIL_OUTAGE", text, 1);
    ASSERT_TRUE(load_configuration().ok()) << text;
    EXPECT_EQ(load_configuration()->outage_ms, ms) << text;
  }
  for (const char* bad : {"on", "-1", "25h", "1y"}) {
    setenv("TENDRIL_OUTAGE", bad, 1);
    EXPECT_EQ(failure().code(), base::Code::kInvalid) << bad;
  }
  unsetenv("TENDRIL_OUTAGE");
}

TEST_F(ConfigurationTest, WhatIsAskedOfAPool) {
  auto result = load_configuration();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->pool.wait_s, kWaitsForEver);
  EXPECT_FALSE(result->pool.wish.refuses_wait);
  EXPECT_EQ(result->pool.wish.layout, wire::Layout::kAny);
  setenv("TENDRIL_FILTER", " model ~ \"H200\" and memory >= 40G ", 1);
  setenv("TENDRIL_CLASS", "batch", 1);
  setenv("TENDRIL_ACCOUNT", "vision", 1);
  setenv("TENDRIL_LAYOUT", "one-server", 1);
  setenv("TENDRIL_MAX", "8h", 1);
  setenv("TENDRIL_WAIT", "10m", 1);
  result = load_configuration();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->pool.wish.filter, "model ~ \"H200\" and memory >= 40G");
  EXPECT_EQ(result->pool.wish.user_class, "batch");
  EXPECT_EQ(result->pool.wish.account, "vision");
  EXPECT_EQ(result->pool.wish.layout, wire::Layout::kOneServer);
  EXPECT_EQ(result->pool.wish.longest_s, 28'800u);
  EXPECT_EQ(result->pool.wait_s, 600u);
  setenv("TENDRIL_WAIT", "0", 1);
  EXPECT_TRUE(load_configuration()->pool.wish.refuses_wait);
}

TEST_F(ConfigurationTest, WhatAPoolCannotBeAsked) {
  const std::pair<const char*, std::string> wrong[] = {{"TENDRIL_WAIT", "soon"},
                                                       {"TENDRIL_MAX", "0"},
                                                       {"TENDRIL_LAYOUT", "wide"},
                                                       {"TENDRIL_FILTER", std::string(1025, 'x')},
                                                       {"TENDRIL_CLASS", std::string(65, 'x')}};
  for (const auto& [name, value] : wrong) {
    setenv(name, value.c_str(), 1);
    EXPECT_EQ(failure().code(), base::Code::kInvalid) << name;
    EXPECT_EQ(failure().message().rfind(name, 0), 0u) << failure().message();
    unsetenv(name);
  }
}

}  // namespace
}  // namespace tendril::config

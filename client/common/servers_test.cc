// SPDX-License-Identifier: Apache-2.0
// The environment contract, variable by variable. Runs in one process per test binary: each test
// starts from a clean environment.
#include "client/common/servers.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace tendril::client {
namespace {

class ServersTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"TENDRIL_SERVERS", "TENDRIL_LEASES", "TENDRIL_GPUS", "TENDRIL_SLICE",
                             "TENDRIL_MEMORY", "TENDRIL_CAP", "TENDRIL_PRIORITY", "TENDRIL_TOKEN",
                             "TENDRIL_TOKEN_FILE", "TENDRIL_TRANSPORT", "TENDRIL_SERVERS_CONF"}) {
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

TEST_F(ServersTest, NothingNamedSaysWhatToDo) {
  base::Status status = failure();
  EXPECT_EQ(status.code(), base::Code::kNotFound);
  EXPECT_NE(status.message().find("TENDRIL_SERVERS"), std::string::npos);
  EXPECT_NE(status.message().find("tendril run"), std::string::npos);
}

TEST_F(ServersTest, ServersInOrderWithDefaults) {
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
  EXPECT_EQ(result->transport, Transport::kAuto);
  EXPECT_FALSE(result->leased());
}

TEST_F(ServersTest, LeasesWinAndKeepOrder) {
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

TEST_F(ServersTest, BadLeasesAreRefusedWithoutTellingTheSecret) {
  for (const char* text : {"a", "a=1", "a=:beef", "a=0:beef", "=1:beef", "a=1:bee", "a=1:beeg",
                           "a=1:beef,b", "a=18446744073709551616:beef"}) {
    setenv("TENDRIL_LEASES", text, 1);
    base::Status status = failure();
    EXPECT_EQ(status.code(), base::Code::kInvalid) << text;
    EXPECT_EQ(status.message().find("bee"), std::string::npos) << status.message();
  }
}

TEST_F(ServersTest, FilesAreReadInOrder) {
  write(home_ + "/.config/tendril/servers.conf", "# ours\n  one:1  # first\n\ntwo\r\n");
  auto result = load_configuration();
  ASSERT_TRUE(result.ok()) << result.status().message();
  ASSERT_EQ(result->servers.size(), 2u);
  EXPECT_EQ(result->servers[0].endpoint, "one:1");
  EXPECT_EQ(result->servers[1].endpoint, "two");

  std::string named = write(home_ + "/named.conf", "three");
  setenv("TENDRIL_SERVERS_CONF", named.c_str(), 1);
  result = load_configuration();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->servers[0].endpoint, "three");
  EXPECT_EQ(result->source, named);

  setenv("TENDRIL_SERVERS_CONF", (home_ + "/missing.conf").c_str(), 1);
  EXPECT_NE(failure().message().find("missing.conf"), std::string::npos);
  setenv("TENDRIL_SERVERS_CONF", write(home_ + "/empty.conf", "# nobody\n").c_str(), 1);
  EXPECT_NE(failure().message().find("names no server"), std::string::npos);
}

TEST_F(ServersTest, Slices) {
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
}

TEST_F(ServersTest, Terms) {
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

TEST_F(ServersTest, TokenAndTransport) {
  setenv("TENDRIL_SERVERS", "a", 1);
  setenv("TENDRIL_TOKEN_FILE", write(home_ + "/token", "from file\n").c_str(), 1);
  setenv("TENDRIL_TRANSPORT", "tcp", 1);
  auto result = load_configuration();
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->token, "from file");
  EXPECT_EQ(result->transport, Transport::kTcp);
  setenv("TENDRIL_TOKEN", "direct", 1);
  EXPECT_EQ(load_configuration()->token, "direct");
  unsetenv("TENDRIL_TOKEN");
  setenv("TENDRIL_TOKEN_FILE", write(home_ + "/token", "\n").c_str(), 1);
  EXPECT_NE(failure().message().find("is empty"), std::string::npos);
  setenv("TENDRIL_TOKEN_FILE", (home_ + "/none").c_str(), 1);
  EXPECT_NE(failure().message().find("TENDRIL_TOKEN_FILE"), std::string::npos);
  unsetenv("TENDRIL_TOKEN_FILE");
  setenv("TENDRIL_TRANSPORT", "pigeon", 1);
  EXPECT_NE(failure().message().find("pigeon"), std::string::npos);
}

TEST_F(ServersTest, Link) {
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

TEST(Share, Notations) {
  struct {
    const char* text;
    uint32_t millionths;
  } good[] = {
      {"1", 1'000'000},   {"1.0", 1'000'000},  {"0.5", 500'000},   {".25", 250'000},
      {"1/3", 333'333},   {"5/20", 250'000},   {"1 / 7", 142'857}, {"35%", 350'000},
      {"12.5%", 125'000}, {"100%", 1'000'000}, {"0.0000019", 1},   {"0.05", 50'000},
  };
  for (auto& c : good) {
    auto result = parse_share_millionths("X", c.text);
    ASSERT_TRUE(result.ok()) << c.text;
    EXPECT_EQ(*result, c.millionths) << c.text;
  }
  for (const char* bad :
       {"", "0", "0.0", "1.1", "50", "101%", "-0.5", "1/0", "3/2", "0/4", "half", "0.5x", ".", "%",
        "/", "1e-1", "0,5", "0.5555555555555555x", "99999999999999999999"}) {
    EXPECT_FALSE(parse_share_millionths("X", bad).ok()) << bad;
  }
}

TEST(Bytes, Notations) {
  struct {
    const char* text;
    uint64_t bytes;
  } good[] = {
      {"1", 1},
      {"1024", 1024},
      {"4096B", 4096},
      {"512M", 512ull << 20},
      {"10G", 10ull << 30},
      {"10g", 10ull << 30},
      {"2GiB", 2ull << 30},
      {"1.5G", 3ull << 29},
      {"1 TB", 1ull << 40},
      {"16K", 16384},
  };
  for (auto& c : good) {
    auto result = parse_bytes("X", c.text);
    ASSERT_TRUE(result.ok()) << c.text;
    EXPECT_EQ(*result, c.bytes) << c.text;
  }
  for (const char* bad : {"", "0", "G", "10X", "-1", "1.5", "1..5G", "10GG", "10iB", "99999999999T",
                          "18446744073709551616"}) {
    EXPECT_FALSE(parse_bytes("X", bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace tendril::client

// SPDX-License-Identifier: Apache-2.0
// A running daemon's settings: read, read again, and kept when what is read is wrong.
#include "access/guard.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace tendril::access {
namespace {

class Guarded : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("TENDRIL_TOKEN");
    unsetenv("TENDRIL_TOKEN_FILE");
    char name[] = "/tmp/tendril-guard-XXXXXX";
    folder_ = mkdtemp(name);
    options_.token_file = folder_ + "/token";
    options_.policy_file = folder_ + "/policy.toml";
    options_.audit_file = folder_ + "/audit.log";
    options_.server = "gpu1";
    write(options_.token_file, "a-token-of-some-length");
    write(options_.policy_file, "[limits]\nleases = 1\n");
  }
  void TearDown() override {
    for (const char* name : {"/token", "/policy.toml", "/audit.log"})
      unlink((folder_ + name).c_str());
    rmdir(folder_.c_str());
  }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
    chmod(path.c_str(), 0600);
  }
  std::string audit(Guard* guard) const {
    EXPECT_TRUE(guard->audit().flush(5000));
    std::stringstream text;
    text << std::ifstream(options_.audit_file).rdbuf();
    return text.str();
  }
  Principal bearer(const Guard& guard) const {
    Evidence evidence;
    evidence.knows_token = true;
    return guard.recognize(evidence);
  }

  std::string folder_;
  GuardOptions options_;
};

TEST_F(Guarded, ReloadsTokenAndPolicy) {
  auto guard = Guard::create(options_);
  ASSERT_TRUE(guard.ok()) << guard.status().message();
  EXPECT_EQ((*guard)->settings()->mode, Mode::kSecret);
  EXPECT_TRUE((*guard)->token_is_right("a-token-of-some-length"));
  EXPECT_EQ(bearer(**guard).id, "token 1");
  EXPECT_EQ((*guard)->limits_of(bearer(**guard)).leases, 1u);
  const auto before = (*guard)->settings();
  write(options_.token_file, "another-token-of-some-length");
  write(options_.policy_file, "[limits]\nleases = 2\n");
  ASSERT_TRUE((*guard)->reload().ok());
  EXPECT_FALSE((*guard)->token_is_right("a-token-of-some-length"));
  EXPECT_TRUE((*guard)->token_is_right("another-token-of-some-length"));
  EXPECT_EQ(bearer(**guard).id, "token 2");
  EXPECT_EQ((*guard)->limits_of(bearer(**guard)).leases, 2u);
  EXPECT_EQ(before->token, "a-token-of-some-length") << "who took the settings keeps them";
}

TEST_F(Guarded, KeepsEverythingAfterAnError) {
  auto guard = Guard::create(options_);
  ASSERT_TRUE(guard.ok());
  write(options_.token_file, "another-token-of-some-length");
  write(options_.policy_file, "[limits]\nleases = many\n");
  const base::Status failed = (*guard)->reload();
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.message().find("line 2"), std::string::npos);
  EXPECT_TRUE((*guard)->token_is_right("a-token-of-some-length"));
  EXPECT_EQ((*guard)->limits_of(bearer(**guard)).leases, 1u);
  EXPECT_NE(audit(guard->get()).find("\"what\":\"reload\",\"allowed\":false"), std::string::npos);
  write(options_.policy_file, "");
  write(options_.token_file, "short");
  EXPECT_FALSE((*guard)->reload().ok());
}

TEST_F(Guarded, KeepsItsMode) {
  options_.token_file.clear();
  auto guard = Guard::create(options_);
  ASSERT_TRUE(guard.ok());
  EXPECT_EQ((*guard)->settings()->mode, Mode::kOpen);
  EXPECT_FALSE((*guard)->token_is_right(""));
  setenv("TENDRIL_TOKEN", "a-token-of-some-length", 1);
  const base::Status failed = (*guard)->reload();
  unsetenv("TENDRIL_TOKEN");
  ASSERT_FALSE(failed.ok());
  EXPECT_NE(failed.message().find("start it again"), std::string::npos);
}

TEST_F(Guarded, KnowsCertificatesWhenItHasACertificateAuthority) {
  options_.token_file.clear();
  auto guard = Guard::create(options_);
  ASSERT_TRUE(guard.ok());
  Evidence loopback;
  loopback.local = true;
  EXPECT_EQ((*guard)->recognize(loopback).role, Role::kUser);
  (*guard)->serve_identities();
  EXPECT_EQ((*guard)->recognize(loopback).role, Role::kNone);
  loopback.certificate = "spiffe://lab/operator/alice";
  EXPECT_EQ((*guard)->recognize(loopback).role, Role::kOperator);
  ASSERT_TRUE((*guard)->reload().ok());
  EXPECT_EQ((*guard)->settings()->mode, Mode::kIdentity);
}

TEST_F(Guarded, RefusesWhatItMustRecordAndCannot) {
  options_.audit_file = "/dev/full";
  write(options_.policy_file, "audit_required = true");
  auto guard = Guard::create(options_);
  ASSERT_TRUE(guard.ok()) << guard.status().message();
  const Decision allowed{true, "owner", ""};
  EXPECT_EQ((*guard)->record(bearer(**guard), "release", "lease 1", allowed).rule, "audit");
  write(options_.policy_file, "");
  ASSERT_TRUE((*guard)->reload().ok());
  EXPECT_TRUE((*guard)->record(bearer(**guard), "release", "lease 1", allowed).allowed);
}

TEST_F(Guarded, WritesAFewOfManyStrangers) {
  auto guard = Guard::create(options_);
  ASSERT_TRUE(guard.ok());
  const Decision refused{false, "token", "the token is wrong"};
  for (int i = 0; i < 1000; ++i) (*guard)->record_stranger({}, refused, 5);
  (*guard)->record_stranger({}, refused, 2'000'000'000u);
  const std::string text = audit(guard->get());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11);
  EXPECT_NE(text.find("\"not_written_before\":\"990\""), std::string::npos);
}

}  // namespace
}  // namespace tendril::access

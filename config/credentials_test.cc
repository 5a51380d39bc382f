// SPDX-License-Identifier: Apache-2.0
// Where a token comes from, and which files and texts are refused.
#include "config/credentials.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace tendril::config {
namespace {

class Token : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("TENDRIL_TOKEN");
    unsetenv("TENDRIL_TOKEN_FILE");
    char name[] = "/tmp/tendril-token-XXXXXX";
    close(mkstemp(name));
    path_ = name;
  }
  void TearDown() override {
    unlink(path_.c_str());
    unsetenv("TENDRIL_TOKEN");
    unsetenv("TENDRIL_TOKEN_FILE");
  }
  void write(const std::string& text) { std::ofstream(path_) << text; }
  std::string path_;
};

TEST_F(Token, ComesFromFileThenEnvironmentThenNowhere) {
  EXPECT_EQ(load_token("", TokenUse::kServer).value(), "");
  write("  the-secret-in-the-file\n");
  setenv("TENDRIL_TOKEN_FILE", path_.c_str(), 1);
  EXPECT_EQ(load_token("", TokenUse::kServer).value(), "the-secret-in-the-file");
  setenv("TENDRIL_TOKEN", "secret-in-environment", 1);
  EXPECT_EQ(load_token("", TokenUse::kServer).value(), "secret-in-environment");
  EXPECT_EQ(load_token(path_, TokenUse::kServer).value(), "the-secret-in-the-file");
}

TEST_F(Token, RefusesWhatIsNoSecret) {
  write("short");
  EXPECT_FALSE(load_token(path_, TokenUse::kServer).ok());
  write("fifteen-letters");
  EXPECT_FALSE(load_token(path_, TokenUse::kServer).ok());
  EXPECT_TRUE(load_token(path_, TokenUse::kClient).ok()) << "the server may be older";
  write("");
  EXPECT_FALSE(load_token(path_, TokenUse::kServer).ok());
  write(std::string(5000, 'x'));
  EXPECT_FALSE(load_token(path_, TokenUse::kServer).ok());
  EXPECT_FALSE(load_token("/nonexistent/token", TokenUse::kServer).ok());
}

TEST_F(Token, ErrorsNameTheVariable) {
  setenv("TENDRIL_TOKEN_FILE", "/nonexistent/token", 1);
  const auto token = load_token("", TokenUse::kClient);
  ASSERT_FALSE(token.ok());
  EXPECT_EQ(token.status().message().find("TENDRIL_TOKEN_FILE: cannot read"), 0u);
}

TEST_F(Token, AServersFileMustBePrivate) {
  write("the-secret-in-the-file");
  chmod(path_.c_str(), 0644);
  EXPECT_FALSE(load_token(path_, TokenUse::kServer).ok());
  EXPECT_TRUE(load_token(path_, TokenUse::kClient).ok());
}

TEST_F(Token, ErrorsNeverShowTheToken) {
  write("s3cr3t!");
  const auto token = load_token(path_, TokenUse::kServer);
  ASSERT_FALSE(token.ok());
  EXPECT_EQ(token.status().message().find("s3cr3t!"), std::string::npos);
}

}  // namespace
}  // namespace tendril::config

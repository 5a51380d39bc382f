// SPDX-License-Identifier: Apache-2.0
// Files say what the command line can say; what they cannot say is named with its line.
#include "cli/words/settings_file.h"

#include <gtest/gtest.h>

namespace tendril::cli {
namespace {

using Words = std::vector<std::string>;

CommandShape sample() {
  CommandShape serve{"tendril serve", "Lend", {}, {}, {}, false};
  serve.options = {{{"-h", "--help"}, "", {}, "Help", "", false},
                   {{"--audit-log"}, "FILE", {}, "Who did what", "auto", false},
                   {{"--listen"}, "ADDR", {}, "Where", "", true},
                   {{"--port"}, "NUMBER", {}, "Port", "7433", false},
                   {{"-v", "--verbose"}, "", {}, "Log more", "", false}};
  return serve;
}

base::Result<Words> read(const std::string& text, const Words& given = {}) {
  return settings_words(text, "server.toml", sample(), given);
}

std::string error_of(const std::string& text) {
  auto words = read(text);
  EXPECT_FALSE(words.ok()) << text;
  return words.ok() ? "" : words.status().message();
}

TEST(SettingsFile, EachKindOfValueBecomesWords) {
  auto words =
      read("audit_log = 'off'\nport = 7000\nlisten = ['::1', '127.0.0.1']\nverbose = true");
  ASSERT_TRUE(words.ok()) << words.status().message();
  std::sort(words->begin(), words->end());
  EXPECT_EQ(*words, (Words{"--audit-log=off", "--listen=127.0.0.1", "--listen=::1", "--port=7000",
                           "--verbose"}));
  EXPECT_EQ(*read("verbose = false"), Words());
}

TEST(SettingsFile, WordsOfTheCommandComeFirst) {
  EXPECT_EQ(*read("port = 1\naudit_log = 'off'", {"--port", "2"}), (Words{"--audit-log=off"}));
  EXPECT_EQ(*read("port = 1", {"--port=2"}), Words());
  EXPECT_EQ(*read("verbose = true", {"-v"}), Words());
}

TEST(SettingsFile, WhatIsWrongIsNamedWithItsLine) {
  EXPECT_EQ(error_of("\naudit_lgo = 'off'"),
            "server.toml, line 2: there is no setting 'audit_lgo'; did you mean 'audit_log'?");
  EXPECT_NE(error_of("verbose = 'yes'").find("line 1: 'verbose' is true or false"),
            std::string::npos);
  EXPECT_NE(error_of("port = [1, 2]").find("one value"), std::string::npos);
  EXPECT_NE(error_of("port = true").find("text in quotes or a number"), std::string::npos);
  EXPECT_NE(error_of("help = true").find("no setting 'help'"), std::string::npos);
  EXPECT_NE(error_of("port = ").find("this is not TOML"), std::string::npos);
}

TEST(SettingsFile, TheTemplateHasEveryOptionAndCanBeRead) {
  std::string text = settings_template(sample());
  EXPECT_EQ(*read(text), Words());
  for (const char* key : {"\n#audit_log = \"auto\"", "\n#listen = [\"ADDR\"]", "\n#port = 7433",
                          "\n#verbose = false"}) {
    const size_t at = text.find(key);
    ASSERT_NE(at, std::string::npos) << key << " in " << text;
    text.erase(at + 1, 1);
  }
  EXPECT_EQ(read(text)->size(), 3u);
}

}  // namespace
}  // namespace tendril::cli

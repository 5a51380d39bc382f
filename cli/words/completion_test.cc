// SPDX-License-Identifier: Apache-2.0
// Completion scripts are made for three shells. bash really completes with its script.
#include "cli/words/completion.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace tendril::cli {
namespace {

const std::vector<CommandShape> kCommands = {
    {"run", "Run a program: it's 'quoted'", {"-n", "--gpus", "--part"}},
    {"ls", "Leases", {"--json"}}};

TEST(Completion, KnowsThreeShells) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = completion_script(shell, kCommands);
    EXPECT_NE(script.find("run"), std::string::npos) << shell;
    EXPECT_NE(script.find("json"), std::string::npos) << shell;
  }
  EXPECT_EQ(completion_script("tcsh", kCommands), "");
}

TEST(Completion, BashReadsAndAnswers) {
  if (std::system("bash -c true > /dev/null 2>&1") != 0) GTEST_SKIP() << "no bash here";
  const std::string path = "/tmp/tendril-completion-test";
  std::ofstream(path)
      << completion_script("bash", kCommands)
      << "COMP_WORDS=(tendril run --g); COMP_CWORD=2; _tendril; echo \"${COMPREPLY[*]}\"\n"
         "COMP_WORDS=(tendril l); COMP_CWORD=1; _tendril; echo \"${COMPREPLY[*]}\"\n";
  FILE* const pipe = popen(("bash " + path).c_str(), "r");
  char text[256] = {};
  const size_t got = fread(text, 1, sizeof text - 1, pipe);
  EXPECT_EQ(pclose(pipe), 0);
  EXPECT_EQ(std::string(text, got), "--gpus\nls\n");
  std::remove(path.c_str());
}

}  // namespace
}  // namespace tendril::cli

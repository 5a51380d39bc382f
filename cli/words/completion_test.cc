// SPDX-License-Identifier: Apache-2.0
// Completion scripts are made for three shells. bash really completes with its script.
#include "cli/words/completion.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace tendril::cli {
namespace {

CommandShape sample() {
  OptionShape gpus{{"-n", "--gpus"}, "NUMBER", {}, "How many", "", false};
  OptionShape when{{"--when"}, "on|off", {"on", "off"}, "It's 'quoted'", "", false};
  OptionShape server{{"-s", "--server"}, "HOST[:PORT]", {}, "A server", "", true};
  OptionShape lease{{"lease"}, "NUMBER...", {}, "Its number", "", true};
  CommandShape run{"tendril run", "Run a program", {gpus, when, server}, {}, {}, true};
  CommandShape park{"tendril lease park", "Park", {}, {lease}, {}, false};
  CommandShape group{"tendril lease", "Change leases", {}, {}, {park}, false};
  return {"tendril", "Everything", {}, {}, {run, group}, false};
}

TEST(Completion, KnowsThreeShells) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string script = completion_script(shell, sample());
    EXPECT_NE(script.find("run"), std::string::npos) << shell;
    EXPECT_NE(script.find("gpus"), std::string::npos) << shell;
    EXPECT_NE(script.find("known servers"), std::string::npos) << shell;
    EXPECT_NE(script.find("known leases"), std::string::npos) << shell;
  }
  EXPECT_EQ(completion_script("tcsh", sample()), "");
}

// What bash offers for the last of these words. A function stands for the command.
std::string offered(const std::string& words) {
  if (std::system("bash -c true > /dev/null 2>&1") != 0) return "no bash";
  const std::string path = testing::TempDir() + "/tendril-completion-test";
  std::ofstream(path) << completion_script("bash", sample())
                      << "tendril() { [ \"$2\" = leases ] && printf '17\\tada\\n18\\tbob\\n' || "
                         "echo gpu1; }\n"
                         "COMP_WORDS=(tendril "
                      << words
                      << "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tendril; "
                         "echo \"${COMPREPLY[*]}\"\n";
  FILE* const pipe = popen(("bash " + path).c_str(), "r");
  char text[256] = {};
  const size_t got = fread(text, 1, sizeof text - 1, pipe);
  EXPECT_EQ(pclose(pipe), 0);
  std::remove(path.c_str());
  return std::string(text, got);
}

TEST(Completion, BashCompletesCommandsOptionsAndValues) {
  if (offered("l") == "no bash") GTEST_SKIP() << "no bash here";
  EXPECT_EQ(offered("l"), "lease\n");
  EXPECT_EQ(offered("run --g"), "--gpus\n");
  EXPECT_EQ(offered("run --when ''"), "on off\n");
  EXPECT_EQ(offered("run --gpus 2 -s ''"), "gpu1\n");
  EXPECT_EQ(offered("lease ''"), "park\n");
  EXPECT_EQ(offered("lease park 1"), "17 18\n");
}

}  // namespace
}  // namespace tendril::cli

// SPDX-License-Identifier: Apache-2.0
// Mistyped words get the word that was meant, and words that are like nothing get none.
#include "cli/words/usage.h"

#include <gtest/gtest.h>

namespace tendril::cli {
namespace {

const KnownCommand kRun = {"tendril run", {}, {"-n", "--gpus", "-p", "--part", "--packed"}};
const KnownCommand kAll = {"tendril", {"run", "serve", "release", "queue", "pool"}, {"--help"}};

TEST(Usage, NearWordsAreFound) {
  EXPECT_EQ(nearest("--parts", kRun.options), "--part");
  EXPECT_EQ(nearest("--pakced", kRun.options), "--packed");  // two letters changed places
  EXPECT_EQ(nearest("--gpu", kRun.options), "--gpus");
  EXPECT_EQ(nearest("relaese", kAll.commands), "release");
  EXPECT_EQ(nearest("rn", kAll.commands), "run");
  EXPECT_EQ(nearest("rel", kAll.commands), "release");  // its beginning
}

TEST(Usage, FarWordsAreNot) {
  EXPECT_EQ(nearest("python", kAll.commands), "");
  EXPECT_EQ(nearest("--memory", kRun.options), "");
  EXPECT_EQ(nearest("", kAll.commands), "");
  EXPECT_EQ(nearest(std::string(10'000, 'r'), kAll.commands), "");
}

TEST(Usage, OneLineSaysWhatIsUnknownAndWhatWasMeant) {
  EXPECT_EQ(unknown_word(kRun, "--parts=0.5"),
            "unknown option '--parts' of 'tendril run'; did you mean '--part'?");
  EXPECT_EQ(unknown_word(kRun, "--colour"),
            "unknown option '--colour' of 'tendril run'; 'tendril run --help' lists what there is");
  EXPECT_EQ(unknown_word(kAll, "serv"), "unknown command 'tendril serv'; did you mean 'serve'?");
  EXPECT_EQ(unknown_word({"tendril smi", {}, {}}, "all"),
            "'tendril smi' takes no further argument, and here is 'all'; 'tendril smi --help' "
            "lists what there is");
}

TEST(Usage, AnotherTerminalIsNotWrittenTo) {
  EXPECT_EQ(unknown_word(kAll, "\033[2J").find('\033'), std::string::npos);
}

}  // namespace
}  // namespace tendril::cli

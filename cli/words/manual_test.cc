// SPDX-License-Identifier: Apache-2.0
// Help and pages of the manual say the same of each option, and text is no request of roff.
#include "cli/words/manual.h"

#include <gtest/gtest.h>

namespace tendril::cli {
namespace {

CommandShape sample() {
  OptionShape gpus{{"-n", "--gpus"}, "NUMBER", {}, "How many slices it takes", "1", false};
  OptionShape odd{{"--odd"}, "", {}, ".so begins this, with a back\\slash", "", false};
  CommandShape run{"tendril run", "Run a program", {gpus, odd}, {}, {}, true};
  return {"tendril", "Attaches programs", {}, {}, {run}, false};
}

TEST(Help, HasTwoColumnsAndBreaksLines) {
  EXPECT_EQ(help_text(sample().commands[0], 60),
            "Run a program\n\n"
            "Usage: tendril run [OPTIONS] [--] PROGRAM [ARGUMENT...]\n\n"
            "Options:\n"
            "  -n, --gpus NUMBER         How many slices it takes\n"
            "                            (default: 1)\n"
            "  --odd                     .so begins this, with a\n"
            "                            back\\slash\n");
}

TEST(Manual, HasAPageForEachCommand) {
  const auto pages = manual_pages(sample(), "0.1.0");
  ASSERT_EQ(pages.size(), 2u);
  EXPECT_EQ(pages[0].file, "tendril.1");
  EXPECT_NE(pages[0].text.find(".BR tendril\\-run (1)"), std::string::npos);
  EXPECT_EQ(pages[1].file, "tendril-run.1");
  const std::string& run = pages[1].text;
  EXPECT_NE(run.find("tendril\\-run \\- run a program"), std::string::npos) << run;
  EXPECT_NE(run.find("\\fB\\-n\\fR, \\fB\\-\\-gpus\\fR \\fINUMBER\\fR"), std::string::npos) << run;
  EXPECT_NE(run.find("\n\\&.so begins this, with a back\\eslash\n"), std::string::npos) << run;
  EXPECT_NE(run.find("\\fB125\\fR"), std::string::npos) << "its own exit statuses";
  EXPECT_EQ(pages[0].text.find("\\fB125\\fR"), std::string::npos);
}

}  // namespace
}  // namespace tendril::cli

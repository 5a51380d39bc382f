// SPDX-License-Identifier: Apache-2.0
// How single values and tables look.
#include "view/text.h"

#include <gtest/gtest.h>

#include "view/table.h"

namespace tendril::view {
namespace {

TEST(Table, AlignsWithoutTrailingSpaces) {
  EXPECT_EQ(aligned({{"A", "LONG", "C"}, {"bbb", "x", ""}}), "A    LONG  C\nbbb  x\n");
  EXPECT_EQ(age_text(59), "59s");
  EXPECT_EQ(age_text(303), "5m03s");
  EXPECT_EQ(age_text(7800), "2h10m");
  EXPECT_EQ(age_text(3 * 86400 + 4 * 3600), "3d04h");
  EXPECT_EQ(uuid_text(std::string(16, '\xab')), "GPU-abababab-abab-abab-abab-abababababab");
  EXPECT_EQ(uuid_text(""), "");
}

TEST(Text, SlicesAndMemory) {
  EXPECT_EQ(slices_text({{0, 500'000, 1, false}, {3, 250'000, 1, true}}),
            "0: 0.50, 3: 0.25 packed");
  EXPECT_EQ(slices_text({{1, 1'000'000, 1, false}}, "GPU "), "GPU 1: 1.00");
  EXPECT_EQ(memory_text(1ull << 30, 1536ull << 20), "1.0 GiB / 1.5 GiB");
}

TEST(Text, NamesThatWereProvenAndNamesThatWereNot) {
  EXPECT_EQ(who_text({"box", "root", "", 0, "a\nb", "certificate"}), "a?b@box");
  EXPECT_EQ(who_text({"box", "root", "", 0, "ada", "uid"}), "ada@box");
  EXPECT_EQ(who_text({"box", "a\nb", "", 0, "bearer", "token"}), "a?b@box?");
  EXPECT_EQ(who_text({"box", "ada", "", 0, "", ""}), "ada@box?") << "an older server";
  EXPECT_EQ(who_text({}), "-") << "somebody else's";
  EXPECT_EQ(user_text({"box", "root", "", 0, "bearer", "token"}), "bearer");
}

std::vector<Row> wide_rows() {
  return {{"LEASE", "WHO", "MEMORY", "PROGRAM"},
          {"9", "ada@box", "1.0 GiB / 4.0 GiB", "a-program-with-a-long-name"}};
}

TEST(Table, ThatFitsStaysAsItIs) {
  for (const size_t width : {size_t{0}, size_t{80}})
    EXPECT_EQ(fitted(wide_rows(), width, {"MEMORY"}), aligned(wide_rows()));
}

TEST(Table, LosesColumnsAndSaysSo) {
  EXPECT_EQ(fitted(wide_rows(), 50, {"MEMORY", "WHO"}),
            "LEASE  WHO      PROGRAM\n"
            "9      ada@box  a-program-with-a-long-name\n"
            "(left out: MEMORY; --wide shows all)\n");
}

TEST(Table, CutsWhatIsStillTooWide) {
  EXPECT_EQ(fitted(wide_rows(), 30, {"MEMORY", "NONE"}),
            "LEASE  WHO      PROGRAM\n"
            "9      ada@box  a-program-wi..\n"
            "(left out: MEMORY; --wide\n shows all)\n");
}

TEST(Table, NoWidthIsExceeded) {
  for (size_t width = 40; width < 120; ++width) {
    const std::string text = fitted(wide_rows(), width, {"MEMORY", "WHO"});
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      EXPECT_LE(end - at, width) << text;
      at = end + 1;
    }
  }
}

TEST(Wrapped, BreaksAtBlanks) {
  EXPECT_EQ(wrapped("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(wrapped("a-very-long-word b", 5, 0), "a-very-long-word\nb");
  EXPECT_EQ(wrapped("", 5, 0), "");
}

}  // namespace
}  // namespace tendril::view

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

}  // namespace
}  // namespace tendril::view

// SPDX-License-Identifier: Apache-2.0
// The page has each figure of each side, and shows names as text.
#include "cli/bench/bench_plot.h"

#include <gtest/gtest.h>

namespace tendril::cli {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

BenchReport report() {
  BenchReport made;
  made.version = "1";
  made.server = "<script>alert(1)</script>";
  made.sides = {{"native", {{"launch_sync_us", 5}, {"copy_1g_gb_per_s", 50}}, ""},
                {"tcp", {{"launch_sync_us", 20}, {"copy_1g_gb_per_s", 2.5}, {"odd", 3}}, ""},
                {"shm", {}, "no <b>shared</b> memory"},
                {"bare tcp", {{"gb_per_s", 3}}, ""}};
  return made;
}

TEST(BenchPlot, ShowsEachFigureOfEachSide) {
  const std::string page = bench_page(report());
  EXPECT_NE(page.find("launch sync, us"), std::string::npos);
  EXPECT_NE(page.find("copy 1g, GB/s"), std::string::npos);
  EXPECT_EQ(count(page, "launch sync, us"), 1u);
  EXPECT_EQ(count(page, "class=\"bar\""), 4u + 1u);
  EXPECT_NE(page.find("20.0"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
}

TEST(BenchPlot, SetsTwoReportsBesideEachOther) {
  const std::string page = comparison_page(report(), report());
  EXPECT_EQ(count(page, ">before<"), 4u + 1u);
  EXPECT_EQ(count(page, ">after<"), 4u + 1u);
}

}  // namespace
}  // namespace tendril::cli

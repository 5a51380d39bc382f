// SPDX-License-Identifier: Apache-2.0
// Reports of a pool's history: exact in CSV, readable in tables and pages, and harmless whatever
// people are called.
#include "view/use_report.h"

#include <gtest/gtest.h>

#include "view/plot.h"

namespace tendril::view {
namespace {

const char kSums[] =
    R"({"from_at":1790000000,"to_at":1790007200,"step_s":0,"by":["account","user"],
"gaps":[[1790000100,1790000160]],"rows":[
{"at":1790000000,"account":"<script>","user":"=1+1","leases":2,"waited_ns":60000000000,
"held_ns":7200000000001,"used_ns":1800000000009,"given_gpu_ns":3600000000000,
"asked_gpu_ns":3600000000000,"memory_held_mib_ms":3600000000}]})";

TEST(UseReport, CsvIsExact) {
  auto csv = use_csv(kSums);
  ASSERT_TRUE(csv.ok());
  EXPECT_EQ(csv->substr(0, csv->find('\n')),
            "from_s,account,user,leases,asked_gpu_s,granted_gpu_s,used_gpu_s,idle_gpu_s,"
            "waited_for_turns_s,held_s,idle_s,waited_s,queued_s,queued_gpu_s,memory_held_byte_s,"
            "memory_used_byte_s,capacity_gpu_s");
  EXPECT_NE(csv->find("1790000000,\"<script>\",\"'=1+1\",2,3600.000000000,3600.000000000,"
                      "1800.000000009,0,0,7200.000000001,0,60.000000000,0,0,3774873600000,0,0\n"),
            std::string::npos)
      << *csv;
}

// A month of a large pool, and sums that are longer than 64 bits.
TEST(UseReport, LargeSumsHaveTheirUnits) {
  auto csv = use_csv(
      R"({"from_at":0,"to_at":9,"step_s":0,"by":[],"rows":[{"at":0,"leases":18446744073709551615,
"used_ns":18446744073709551615,"given_gpu_ns":20000000000000000000,"asked_gpu_ns":-5,
"memory_held_mib_ms":18446744073709551615,"memory_used_mib_ms":9007199254740993}]})");
  ASSERT_TRUE(csv.ok());
  const std::string row = csv->substr(csv->find('\n') + 1);
  EXPECT_EQ(row.substr(0, row.find(",0,")),
            "0,18446744073709551615,0.000000,20000000000.000000,18446744073.709551615")
      << row;
  EXPECT_NE(row.find(",19342813113834066794250,9444732965739291475,"), std::string::npos) << row;
}

TEST(UseReport, AMinuteIsNotNothing) {
  auto table = use_table(
      R"({"from_at":0,"to_at":9,"step_s":0,"by":[],"rows":[{"at":0,"leases":1,
"used_ns":60000000000,"given_gpu_ns":60000000000}]})");
  ASSERT_TRUE(table.ok());
  EXPECT_NE(table->find("0.0167"), std::string::npos) << *table;
}

TEST(UseReport, ManyGapsAreCounted) {
  std::string gaps;
  for (int i = 0; i < 40; ++i)
    gaps += (i == 0 ? "[" : ",[") + std::to_string(i * 60) + "," + std::to_string(i * 60 + 9) + "]";
  auto table = use_table(R"({"by":[],"rows":[],"gaps":[)" + gaps + "]}");
  ASSERT_TRUE(table.ok());
  EXPECT_NE(table->find("40 such times in all"), std::string::npos) << *table;
}

TEST(UseReport, ATableSaysHoursAndGaps) {
  auto table = use_table(kSums);
  ASSERT_TRUE(table.ok());
  EXPECT_NE(table->find("1.00     0.50  50.0 %"), std::string::npos) << *table;
  EXPECT_NE(table->find("30 s"), std::string::npos) << *table;
  EXPECT_NE(table->find("No scheduler recorded from 2026-09-21"), std::string::npos) << *table;
}

TEST(UseReport, APageHasNoMarkupOfOthers) {
  const char steps[] =
      R"({"from_at":1790000000,"to_at":1790007200,"step_s":3600,"by":[],"gaps":[],"rows":[
{"at":1790000000,"used_ns":1800000000000,"capacity_gpu_ns":28800000000000}]})";
  auto page = use_html(kSums, steps);
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page->find("<script"), std::string::npos);
  EXPECT_NE(page->find("&lt;script&gt;"), std::string::npos);
  EXPECT_NE(page->find("<polyline"), std::string::npos);
  for (size_t at = 0; (at = page->find("://", at)) != std::string::npos; ++at)
    EXPECT_EQ(page->substr(at, 13), "://www.w3.org");  // the name of SVG, and no other address
}

TEST(UseReport, WhatIsNoAnswerIsSaid) {
  for (const char* bad : {"", "[]", "{}", "{\"rows\":7}"}) {
    EXPECT_FALSE(use_table(bad).ok()) << bad;
    EXPECT_FALSE(use_csv(bad).ok()) << bad;
    EXPECT_FALSE(use_html(kSums, bad).ok()) << bad;
  }
  for (const char* odd : {R"({"rows":[7,{"at":"x","leases":[]}],"by":[3],"gaps":[[1],7]})",
                          R"({"rows":[{}],"by":["user"],"step_s":-5,"from_at":1e300})",
                          R"({"rows":[{"at":-1e300,"leases":1e-300,"waited_ns":1e300}],"by":[],
                              "step_s":1e300,"from_at":-1e300,"to_at":1e300,
                              "gaps":[[-1e300,1e300]]})"}) {
    EXPECT_TRUE(use_table(odd).ok()) << odd;
    EXPECT_TRUE(use_csv(odd).ok()) << odd;
    EXPECT_TRUE(use_html(odd, odd).ok()) << odd;
  }
}

TEST(Plot, ScalesFitTheValues) {
  LinePlot plot;
  plot.title = "GPUs & more";
  plot.step_s = 60;
  plot.lines = {{"used", {0.1, -1, 0.2}}};
  const std::string svg = line_svg(plot);
  EXPECT_NE(svg.find("GPUs &amp; more"), std::string::npos);
  size_t lines = 0;
  for (size_t at = 0; (at = svg.find("<polyline", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 2u);  // what is not known is not drawn
  EXPECT_EQ(grid_step(5), 1);
  EXPECT_EQ(grid_step(43), 10);
}

}  // namespace
}  // namespace tendril::view

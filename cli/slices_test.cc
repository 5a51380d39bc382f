// SPDX-License-Identifier: Apache-2.0
// From options to requests, variables and tables.
#include "cli/slices.h"

#include <gtest/gtest.h>

#include "cli/environment.h"
#include "cli/table.h"

namespace tendril::cli {
namespace {

TEST(Slices, PartAndMemory) {
  EXPECT_EQ(slice_spec({0, "", ""}).value().share_millionths, 1'000'000u);
  EXPECT_EQ(slice_spec({0, "1/4", ""}).value().share_millionths, 250'000u);
  EXPECT_EQ(slice_spec({0, "1/4", ""}).value().memory_bytes, 0u);
  EXPECT_EQ(slice_spec({0, "", "4096"}).value().memory_bytes, 4096ull << 20);
  EXPECT_EQ(slice_spec({0, "", "10G"}).value().share_millionths, 0u);
  EXPECT_EQ(slice_spec({0, "0.5", "10G"}).value().share_millionths, 500'000u);
  EXPECT_FALSE(slice_spec({0, "2", ""}).ok());
  EXPECT_FALSE(slice_spec({0, "", "much"}).ok());
}

TEST(Slices, Terms) {
  SliceOptions options;
  EXPECT_EQ(lease_terms(options).policy, wire::SharePolicy::kLend);
  options.capped = true;
  options.priority = -4;
  EXPECT_EQ(lease_terms(options).policy, wire::SharePolicy::kCap);
  EXPECT_EQ(lease_terms(options).priority, -4);
}

TEST(Slices, LeasesAsTheClientReadsThem) {
  std::vector<TakenLease> leases(2);
  leases[0].endpoint.text = "gpu1:7433";
  leases[0].lease.lease_id = 7;
  leases[0].lease.secret = std::string("\x00\xab", 2);
  leases[1].endpoint.text = "[::1]:7433";
  leases[1].lease.lease_id = 9;
  leases[1].lease.secret = "\x01";
  EXPECT_EQ(leases_text(leases), "gpu1:7433=7:00ab,[::1]:7433=9:01");
}

TEST(Environment, PathsAreNotPrefixedTwice) {
  EXPECT_EQ(prefixed_path("/a", ""), "/a");
  EXPECT_EQ(prefixed_path("/a", "/b:/c"), "/a:/b:/c");
  EXPECT_EQ(prefixed_path("/a", "/a:/b"), "/a:/b");
}

TEST(Environment, QuotesForTheShell) {
  EXPECT_EQ(shell_quoted("gpu1:7433,gpu2"), "gpu1:7433,gpu2");
  EXPECT_EQ(shell_quoted("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_quoted(""), "''");
  EXPECT_EQ(shell_quoted("[::1]:7"), "'[::1]:7'");
}

TEST(Table, AlignsWithoutTrailingSpaces) {
  EXPECT_EQ(aligned({{"A", "LONG", "C"}, {"bbb", "x", ""}}), "A    LONG  C\nbbb  x\n");
  EXPECT_EQ(age_text(59), "59s");
  EXPECT_EQ(age_text(303), "5m03s");
  EXPECT_EQ(age_text(7800), "2h10m");
  EXPECT_EQ(age_text(3 * 86400 + 4 * 3600), "3d04h");
  EXPECT_EQ(uuid_text(std::string(16, '\xab')), "GPU-abababab-abab-abab-abab-abababababab");
  EXPECT_EQ(uuid_text(""), "");
}

}  // namespace
}  // namespace tendril::cli

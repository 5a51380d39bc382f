// SPDX-License-Identifier: Apache-2.0
// Options turned into requests and variables.
#include "cli/slices.h"

#include <gtest/gtest.h>

#include "cli/environment.h"

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

}  // namespace
}  // namespace tendril::cli

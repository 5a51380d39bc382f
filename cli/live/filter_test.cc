// SPDX-License-Identifier: Apache-2.0
// A filter keeps what has its text, several keep what has all, and what is no filter is named.
#include "cli/live/filter.h"

#include <gtest/gtest.h>

namespace tendril::cli {
namespace {

wire::LeaseRecord lease(uint64_t id, const char* user, const char* program) {
  wire::LeaseRecord record;
  record.lease_id = id;
  record.client.user = user;
  record.client.host = "box";
  record.client.program = program;
  return record;
}

std::vector<uint64_t> kept(const std::vector<std::string>& filters) {
  std::vector<view::ServerView> views(1);
  views[0].server = "gpu1:7433";
  views[0].list.leases = {lease(1, "ada", "train.py"), lease(11, "bob", "train.py"),
                          lease(2, "bob", "serve")};
  EXPECT_TRUE(keep_filtered(filters, &views).ok());
  std::vector<uint64_t> ids;
  for (const wire::LeaseRecord& each : views[0].list.leases) ids.push_back(each.lease_id);
  return ids;
}

using Ids = std::vector<uint64_t>;

TEST(Filter, KeepsWhatHasTheText) {
  EXPECT_EQ(kept({}), (Ids{1, 11, 2}));
  EXPECT_EQ(kept({"user=bob"}), (Ids{11, 2}));
  EXPECT_EQ(kept({"user=bob", "program=train"}), (Ids{11}));
  EXPECT_EQ(kept({"lease=1"}), (Ids{1})) << "not 11";
  EXPECT_EQ(kept({"server=gpu2"}), (Ids{}));
  EXPECT_EQ(kept({"host=box"}), (Ids{1, 11, 2}));
}

TEST(Filter, WhatIsNoneIsNamed) {
  std::vector<view::ServerView> views;
  for (const char* bad : {"ada", "colour=red", "=x", ""}) {
    const base::Status status = keep_filtered({bad}, &views);
    EXPECT_EQ(status.code(), base::Code::kInvalid) << bad;
    EXPECT_NE(status.message().find("program"), std::string::npos);
  }
}

}  // namespace
}  // namespace tendril::cli

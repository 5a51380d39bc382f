// SPDX-License-Identifier: Apache-2.0
// The scheduler in a small world that the test scripts.
#include "pool/scheduler/scheduler.h"

#include <gtest/gtest.h>

namespace tendril::pool {
namespace {

TEST(Scheduler, AnswersAReportAfterAWhile) {
  Scheduler scheduler({});
  scheduler.recover({}, {});
  wire::PoolReport report;
  report.facts.emplace_back();
  report.facts[0].name = "gpu1";
  report.full = true;
  scheduler.reported(7, "gpu1", report, {});
  Effects effects = scheduler.tick({});
  if (effects.to_servers.empty()) {
    effects = scheduler.tick({uint64_t(wire::kReportEveryMs) * 1'000'000, 0});
  }
  ASSERT_EQ(effects.to_servers.size(), 1u);
  EXPECT_EQ(effects.to_servers[0].connection, 7u);
  EXPECT_TRUE(effects.to_servers[0].orders.schedules);
}

}  // namespace
}  // namespace tendril::pool

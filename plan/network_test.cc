// SPDX-License-Identifier: Apache-2.0
// Bounds for other networks, from a table as the client prints it.
#include "plan/network.h"

#include <gtest/gtest.h>

namespace tendril::plan {
namespace {

constexpr char kTable[] =
    "epoch 3: loss 0.25\n"
    "tendril: calls by function\n"
    "       calls     total us    us/call   blocked us round trips         bytes  function\n"
    "           1      27886.0  27886.049      27767.5           2         25696  cuModuleLoad\n"
    "          15 calls in all: 7 answered here, 0 sent without waiting, 8 waited\n"
    "tendril: ran for 2.500 s, 0.250 s of waiting\n"
    "tendril: server gpu1:9400 over shm: 14 calls sent, 900 round trips, 0 sends, 125000000 bytes "
    "out, 2000000 bytes in, 1200000 of them bulk, 25410 bytes of code\n"
    "tendril: server [::1]:9400 over tcp: 14 calls sent, 100 round trips, 0 sends, 0 bytes out, "
    "500000 bytes in, 0 of them bulk, 0 bytes of code\n";

TEST(PlanNetwork, ReadsWhatStatisticsPrint) {
  auto costs = read_program_costs(kTable);
  ASSERT_TRUE(costs.ok()) << costs.status().message();
  EXPECT_EQ(costs->run_s, 2.5);
  EXPECT_EQ(costs->blocked_s, 0.25);
  EXPECT_EQ(costs->round_trips, 1000u);
  EXPECT_EQ(costs->bytes_out, 125'000'000u);
  EXPECT_EQ(costs->bytes_in, 2'500'000u);
  EXPECT_EQ(costs->servers, 2u);
  EXPECT_EQ(costs->transports, "shm tcp");
}

TEST(PlanNetwork, BoundsFollowFromRoundTripsAndBytes) {
  const ProgramCosts costs = read_program_costs(kTable).value();
  const NetworkBounds slow = bounds_on(costs, {.gigabits = 0.1, .delay_us = 1000});
  EXPECT_DOUBLE_EQ(slow.waits_s, 1);
  EXPECT_DOUBLE_EQ(slow.transfer_s, 10);
  EXPECT_DOUBLE_EQ(slow.at_least_s, 10);
  EXPECT_DOUBLE_EQ(slow.at_most_s, 2.5 + 1 + 10 + 0.2);
  const NetworkBounds quick = bounds_on(costs, {.gigabits = 100, .delay_us = 10});
  EXPECT_DOUBLE_EQ(quick.at_least_s, 2.5);
  EXPECT_NEAR(quick.at_most_s, 2.52, 0.001);
}

TEST(PlanNetwork, SaysWhatIsMissing) {
  EXPECT_EQ(read_program_costs("").status().code(), base::Code::kInvalid);
  EXPECT_EQ(read_program_costs("tendril: ran for 2.5 s, 0 s of waiting\n").status().code(),
            base::Code::kInvalid);
  EXPECT_NE(
      read_program_costs(std::string(kTable) + kTable).status().message().find("several processes"),
      std::string::npos);
  EXPECT_EQ(
      read_program_costs("tendril: server x over " + std::string(100'000, 'y')).status().code(),
      base::Code::kInvalid);
}

}  // namespace
}  // namespace tendril::plan

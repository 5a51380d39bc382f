// SPDX-License-Identifier: Apache-2.0
// A pool in a world where everything fails. Without environment: small worlds with several seeds.
// TENDRIL_SIMULATION_SEED=7 replays one of them. TENDRIL_SIMULATION=long runs 24 days of 200
// servers (scripts/longtest). TENDRIL_SIMULATION_LOG=1 prints what happens.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "pool/simulation/world.h"

namespace tendril::pool::simulation {
namespace {

bool is_long() {
  const char* kind = getenv("TENDRIL_SIMULATION");
  return kind != nullptr && std::string(kind) == "long";
}

void simulate(WorldOptions options) {
  World world(options);
  const auto start = std::chrono::steady_clock::now();
  const std::string broken = world.run();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Figures& figures = world.figures();
  const double granted = static_cast<double>(std::max<uint64_t>(figures.granted, 1));
  printf(
      "seed %llu: %zu servers, %.1f days, %.1f s: %llu requests, %llu granted (%llu gangs), %llu "
      "refused, %llu left, %llu requeued, %llu by servers alone; %llu faults, %llu terms, %llu "
      "reports, %llu events; mean wait %.0f s, longest %.0f s (%s); ended by order %llu, claims "
      "failed "
      "%llu, same answers %llu, accounted %llu\n",
      static_cast<unsigned long long>(options.seed), options.servers,
      static_cast<double>(world.now_ns()) / static_cast<double>(kDay), seconds,
      static_cast<unsigned long long>(figures.came),
      static_cast<unsigned long long>(figures.granted),
      static_cast<unsigned long long>(figures.gangs),
      static_cast<unsigned long long>(figures.refused),
      static_cast<unsigned long long>(figures.left),
      static_cast<unsigned long long>(figures.requeued),
      static_cast<unsigned long long>(figures.granted_by_servers),
      static_cast<unsigned long long>(figures.faults),
      static_cast<unsigned long long>(figures.terms),
      static_cast<unsigned long long>(figures.reports),
      static_cast<unsigned long long>(world.clock().events()),
      static_cast<double>(figures.waited_ns) / 1e9 / granted,
      static_cast<double>(figures.longest_wait_ns) / 1e9, figures.longest_wait.c_str(),
      static_cast<unsigned long long>(figures.ended_by_order),
      static_cast<unsigned long long>(figures.claims_failed),
      static_cast<unsigned long long>(figures.same_answers),
      static_cast<unsigned long long>(world.checks().accounted()));
  const RuleChecks::Counts& looks = world.rules().counts();
  printf(
      "  looked at: limits %llu, lending %llu, reservations %llu and %llu, reclaims %llu, "
      "maintenance %llu, warnings %llu, graces %llu, idle %llu, overdue %llu, longest times %llu\n",
      static_cast<unsigned long long>(looks.limits), static_cast<unsigned long long>(looks.lending),
      static_cast<unsigned long long>(looks.reserved),
      static_cast<unsigned long long>(looks.reservations_free),
      static_cast<unsigned long long>(looks.reclaims),
      static_cast<unsigned long long>(looks.maintenance),
      static_cast<unsigned long long>(looks.warnings),
      static_cast<unsigned long long>(looks.graces), static_cast<unsigned long long>(looks.idle),
      static_cast<unsigned long long>(looks.overdue), static_cast<unsigned long long>(looks.walls));
  const StarvationChecks::Counts& starved = world.rules().starvation();
  printf(
      "  overdue: looked at %llu, promised %llu, promise as before %llu, later %llu; at most %llu "
      "before one, "
      "longest %lld s, without a promise %lld s\n",
      static_cast<unsigned long long>(starved.overdue),
      static_cast<unsigned long long>(starved.promised),
      static_cast<unsigned long long>(starved.kept), static_cast<unsigned long long>(starved.moved),
      static_cast<unsigned long long>(starved.most_before),
      static_cast<long long>(starved.longest_s), static_cast<long long>(starved.unpromised_s));
  if (!broken.empty()) printf("%s", world.log_text().c_str());
  EXPECT_EQ(broken, "") << "TENDRIL_SIMULATION_SEED=" << options.seed << " replays it";
  EXPECT_GT(figures.granted, figures.came / 4);
}

// Runs seeds `first` ... `last`, or only the one that the environment names.
void seeds(WorldOptions options, uint64_t first, uint64_t last) {
  const char* only = getenv("TENDRIL_SIMULATION_SEED");
  if (only != nullptr) first = last = strtoull(only, nullptr, 10);
  for (uint64_t seed = first; seed <= last && !testing::Test::HasFailure(); ++seed) {
    options.seed = seed;
    simulate(options);
  }
}

TEST(Simulation, NothingFails) {
  WorldOptions options;
  options.length_ns = 6 * kHour;
  options.servers = 12;
  seeds(options, is_long() ? 1 : 5, is_long() ? 40 : 5);
}

TEST(Simulation, OnlyAdministratorsAct) {
  WorldOptions options;
  options.length_ns = 6 * kHour;
  options.servers = 12;
  options.faults = only_commands(20 * kMinute);
  seeds(options, 50, is_long() ? 80 : 50);
}

TEST(Simulation, EverythingFails) {
  WorldOptions options;
  options.length_ns = 12 * kHour;
  options.servers = 20;
  options.faults = many_faults(options.servers, 20 * kMinute);
  seeds(options, 100, is_long() ? 300 : 101);
}

TEST(Simulation, EverythingFailsAllTheTime) {
  WorldOptions options;
  options.length_ns = 2 * kHour;
  options.servers = 8;
  options.users = 12;
  options.mean_run_ns = 10 * kMinute;
  options.faults = many_faults(options.servers, 3 * kMinute);
  seeds(options, 1'000, is_long() ? 1'300 : 1'004);
}

TEST(Simulation, TwentyFourDaysOfTwoHundredServers) {
  if (!is_long()) GTEST_SKIP() << "TENDRIL_SIMULATION=long runs it";
  WorldOptions options;
  const char* days = getenv("TENDRIL_SIMULATION_DAYS");
  options.length_ns = (days != nullptr ? atoi(days) : 24) * kDay;
  options.servers = 200;
  options.users = 300;
  options.mean_run_ns = 3 * kHour;
  options.news_ms = 30'000;
  options.faults = many_faults(options.servers, 2 * kHour);
  seeds(options, 24, 24);
}

}  // namespace
}  // namespace tendril::pool::simulation

// SPDX-License-Identifier: Apache-2.0
// Programs whose ranks on several servers meet in collectives, beside neighbours on each GPU, on
// simulated time. The servers share nothing but the time.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/simulation/shared_server.h"

namespace tendril::simulation {
namespace {

// A program with a rank on each server, which computes and meets the others, step after step.
struct Gang {
  double share = 0.5;
  uint64_t compute_ns = 500 * kUs, collective_ns = 100 * kUs;
  bool waits = false;  // for each step; else steps are queued
  uint32_t gpus = 1;   // on each server, driven by one process
};

class Program {
 public:
  Program(const Gang& gang, size_t ranks) : gang_(gang), next_(ranks), random_(1) {}

  void step(SimulatedWorker& worker, size_t rank) {
    const size_t number = next_[rank]++;
    std::shared_ptr<Meeting>& meeting = meetings_[number];
    if (meeting == nullptr) {
      meeting = std::make_shared<Meeting>();
      meeting->wanted = next_.size() * gang_.gpus;
      meeting->ns = gang_.collective_ns;
    }
    const std::shared_ptr<Meeting> here = meeting;
    while (!meetings_.empty() && meetings_.begin()->first + 1000 < number)
      meetings_.erase(meetings_.begin());
    for (uint32_t slice = 0; slice < gang_.gpus; ++slice)
      worker.launch(gang_.compute_ns, 1, slice, gang_.compute_ns * (90 + random_() % 21) / 100);
    for (uint32_t slice = 0; slice < gang_.gpus; ++slice) worker.collective(here, 1, slice);
    if (gang_.waits) worker.wait();
  }
  size_t steps() const { return *std::min_element(next_.begin(), next_.end()); }

 private:
  const Gang gang_;
  std::vector<size_t> next_;
  std::minstd_rand random_;
  std::map<size_t, std::shared_ptr<Meeting>> meetings_;
};

struct Delivered {
  double steps_per_s = 0;
  std::vector<double> neighbours;  // parts of their GPUs
  uint64_t longest_wait_ns = 0;    // of a neighbour, for a piece
};

constexpr uint64_t kSettling = kSecond, kMeasured = 2 * kSecond;

struct Windows {
  bool given = true;
  int64_t clocks_differ_ns = 0;  // of one server and the next
};

// `neighbours`: shares on each server's GPU; each always has more work.
Delivered run(const Gang& gang, const std::vector<std::vector<double>>& neighbours,
              const Windows& windows) {
  const size_t servers = neighbours.size() / gang.gpus;
  SharedServer server(gang.gpus, servers);
  const auto program = std::make_shared<Program>(gang, servers);
  for (uint32_t rank = 0; rank < servers; ++rank) {
    std::vector<uint32_t> gpus;
    for (uint32_t i = 0; i < gang.gpus; ++i) gpus.push_back(rank * gang.gpus + i);
    server.add(
        gang.share, [program, rank](SimulatedWorker& worker) { program->step(worker, rank); }, gpus,
        {}, windows.given ? 12'345'678 : 0);
    server.turns(rank).set_wall_offset(rank * windows.clocks_differ_ns);
  }
  Delivered found;
  for (uint32_t gpu = 0; gpu < neighbours.size(); ++gpu) {
    for (const double share : neighbours[gpu]) {
      const auto last_ns = std::make_shared<uint64_t>(0);
      server.add(share,
                 [&, last_ns](SimulatedWorker& worker) {
                   worker.launch(500 * kUs);
                   const uint64_t now_ns = server.time().now_ns();
                   if (*last_ns > kSettling + kSecond)
                     found.longest_wait_ns = std::max(found.longest_wait_ns, now_ns - *last_ns);
                   *last_ns = now_ns;
                 },
                 {gpu});
    }
  }
  server.run(kSettling);
  const size_t before = program->steps();
  std::vector<uint64_t> had;
  size_t number = 0;
  const auto had_ns = [&](size_t tenant, uint32_t gpu) { return server.gpu(gpu).had_ns(tenant); };
  std::vector<std::pair<size_t, uint32_t>> tenants;
  for (uint32_t rank = 0; rank < servers; ++rank) tenants.emplace_back(number++, rank * gang.gpus);
  for (uint32_t gpu = 0; gpu < neighbours.size(); ++gpu)
    for (size_t i = 0; i < neighbours[gpu].size(); ++i) tenants.emplace_back(number++, gpu);
  for (const auto& [tenant, gpu] : tenants) had.push_back(had_ns(tenant, gpu));
  server.run(kMeasured);
  for (const auto& [tenant, gpu] : tenants) {
    const double part = static_cast<double>(had_ns(tenant, gpu) - had[tenant]) / kMeasured;
    if (tenant >= servers) found.neighbours.push_back(part);
  }
  found.steps_per_s = static_cast<double>(program->steps() - before) * 1e9 / kMeasured;
  return found;
}

struct Case {
  std::string name;
  Gang gang;
  std::vector<std::vector<double>> neighbours;
  double least;                   // steps, as a part of what it has alone
  double most_by_chance;          // without windows
  uint64_t clocks_differ_ns = 0;  // of one server and the next
};

class Gangs : public testing::TestWithParam<Case> {};

// Its neighbours have their shares, to a point. It has nearly its own, although each step waits for
// all of its servers.
TEST_P(Gangs, HaveTheirTurnsTogether) {
  const Case& param = GetParam();
  const double alone =
      run(param.gang, std::vector<std::vector<double>>(param.neighbours.size()), {false})
          .steps_per_s;
  const Delivered found =
      run(param.gang, param.neighbours, {true, static_cast<int64_t>(param.clocks_differ_ns)});
  const Delivered by_chance = run(param.gang, param.neighbours, {false});
  printf("%s: %.0f steps/s alone; windows %.1f %%, by chance %.1f %%; neighbours",
         param.name.c_str(), alone, 100 * found.steps_per_s / alone,
         100 * by_chance.steps_per_s / alone);
  for (const double part : found.neighbours) printf(" %.3f", part);
  printf(", wait %.1f ms (%.1f)\n", static_cast<double>(found.longest_wait_ns) / 1e6,
         static_cast<double>(by_chance.longest_wait_ns) / 1e6);
  EXPECT_GE(found.steps_per_s / alone, param.least);
  EXPECT_LE(by_chance.steps_per_s / alone, param.most_by_chance);
  size_t number = 0;
  for (const std::vector<double>& of_server : param.neighbours)
    for (const double share : of_server) EXPECT_GE(found.neighbours[number++], share - 0.01);
}

const std::vector<double> kFive(5, 0.1);

Gang of_two_gpus() {
  Gang gang;
  gang.gpus = 2;
  return gang;
}

INSTANTIATE_TEST_SUITE_P(
    Beside, Gangs,
    testing::Values(
        Case{"halves", {}, {{0.5}, {0.5}}, 0.46, 0.02},
        Case{"halves_clocks_differ", {}, {{0.5}, {0.5}}, 0.43, 0.02, 300 * kUs},
        Case{"halves_beside_many", {}, {{0.5}, kFive}, 0.45, 0.02},
        Case{"halves_of_three_servers", {}, {{0.5}, kFive, {0.5}}, 0.43, 0.02},
        Case{"halves_of_long_pieces", {0.5, 5 * kMs}, {{0.5}, {0.5}}, 0.36, 0.1},
        Case{"fifths", {0.2}, {{0.8}, {0.4, 0.4}}, 0.15, 0.02},
        Case{"fifths_clocks_differ", {0.2}, {{0.8}, {0.4, 0.4}}, 0.14, 0.02, 300 * kUs},
        Case{"halves_of_two_gpus_each", of_two_gpus(), {{0.5}, {0.5}, {0.5}, kFive}, 0.4, 0.1},
        Case{"one_of_two_gpus_contended", of_two_gpus(), {{0.5}, {}, {0.5}, {}}, 0.4, 0.51},
        Case{"one_contended", {}, {{0.5}, {}}, 0.45, 0.51}),
    [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace tendril::simulation

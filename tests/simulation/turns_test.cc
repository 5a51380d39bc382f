// SPDX-License-Identifier: Apache-2.0
// What tenants of shared GPUs get, on simulated time. tendrild's rules and the workers' gates are
// the product's own. shared_server.h has the GPUs, executors and programs between them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tests/simulation/shared_server.h"

namespace tendril::simulation {
namespace {

struct Tenant {
  double share;
  SharedServer::Program program;
};

// Always has more work queued.
SharedServer::Program backlog(uint64_t piece_ns) {
  return [piece_ns](SimulatedWorker& worker) { worker.launch(piece_ns); };
}

// Waits for each piece and submits the next one so much later. After a long wait it is asleep, so
// the time to wake it is added.
SharedServer::Program waits(uint64_t piece_ns, uint64_t gap_ns, uint64_t waking_ns = 0) {
  return [=](SimulatedWorker& worker) {
    const uint64_t begun_ns = base::now_ns();
    worker.launch(piece_ns);
    worker.wait();
    const bool asleep = base::now_ns() - begun_ns > kMs + piece_ns;
    worker.compute(gap_ns + (asleep ? waking_ns : 0));
  };
}

constexpr uint64_t kSettling = kSecond;

double pieces_per_second(SharedServer* server, const SimulatedWorker& worker, uint64_t ns) {
  const uint64_t before = worker.pieces();
  server->run(ns);
  return static_cast<double>(worker.pieces() - before) * 1e9 / static_cast<double>(ns);
}

double alone(const SharedServer::Program& program) {
  SharedServer server;
  const SimulatedWorker& worker = server.add(0.5, program);
  server.run(kSettling);
  return pieces_per_second(&server, worker, 2 * kSecond);
}

// As a part of what each does alone.
std::vector<double> delivered(const std::vector<Tenant>& tenants, uint64_t ns = 5 * kSecond) {
  SharedServer server;
  std::vector<SimulatedWorker*> workers;
  for (const Tenant& tenant : tenants) workers.push_back(&server.add(tenant.share, tenant.program));
  server.run(kSettling);
  std::vector<uint64_t> before;
  for (const SimulatedWorker* worker : workers) before.push_back(worker->pieces());
  server.run(ns);
  std::vector<double> parts;
  for (size_t i = 0; i < workers.size(); ++i) {
    const double pieces = static_cast<double>(workers[i]->pieces() - before[i]);
    parts.push_back(pieces * 1e9 / static_cast<double>(ns) / alone(tenants[i].program));
  }
  return parts;
}

void expect_shares(const std::vector<Tenant>& tenants, double least_below = 0.01) {
  const std::vector<double> parts = delivered(tenants);
  for (size_t i = 0; i < tenants.size(); ++i)
    EXPECT_GE(parts[i], tenants[i].share - least_below) << "tenant " << i;
}

TEST(Turns, TenantsWithABacklogGetTheirShares) {
  for (const uint64_t piece_ns : {5 * kUs, 500 * kUs, 5 * kMs}) {
    SCOPED_TRACE(piece_ns);
    expect_shares({{0.5, backlog(piece_ns)}, {0.5, backlog(piece_ns)}});
    expect_shares({{0.1, backlog(piece_ns)}, {0.9, backlog(piece_ns)}});
    expect_shares({{0.25, backlog(piece_ns)}, {0.25, backlog(500 * kUs)}, {0.5, backlog(kMs)}});
  }
}

TEST(Turns, AProgramThatWaitsForEachPieceGetsItsShare) {
  for (const uint64_t gap_ns : {20 * kUs, 50 * kUs, 100 * kUs, 300 * kUs}) {
    SCOPED_TRACE(gap_ns);
    const SharedServer::Program program = waits(300 * kUs, gap_ns);
    expect_shares({{0.5, program}, {0.5, backlog(500 * kUs)}});
    expect_shares({{1. / 3, program}, {1. / 3, backlog(500 * kUs)}, {1. / 3, backlog(5 * kMs)}});
    expect_shares({{0.1, program}, {0.9, backlog(500 * kUs)}});
    expect_shares({{0.5, program}, {0.5, program}});
  }
}

// It has waited for its turn for longer than anybody spins. So the first answer of a turn must wake
// it, and the GPU waits for that. Only this time is lost, once in a turn, and not the turn.
TEST(Turns, AProgramThatFallsAsleepBetweenItsTurnsKeepsThem) {
  for (const uint64_t waking_ns : {100 * kUs, 200 * kUs, 400 * kUs}) {
    SCOPED_TRACE(waking_ns);
    const SharedServer::Program program = waits(300 * kUs, 50 * kUs, waking_ns);
    const double lost = static_cast<double>(waking_ns) / 24e6;  // a turn has 12 ms or more
    expect_shares({{0.5, program}, {0.5, backlog(500 * kUs)}}, 0.005 + lost);
    expect_shares({{1. / 3, program}, {1. / 3, backlog(500 * kUs)}, {1. / 3, backlog(500 * kUs)}},
                  0.005 + lost);
  }
}

// ---- Priority: the hardware takes the GPU from a lower class ----

struct BesidePriority {
  double alone_us, p50_us, p99_us;  // from a piece's launch to its answer
  double part, neighbours;          // of the GPU
};

BesidePriority beside_priority(uint64_t neighbours_piece_ns, uint64_t gap_ns, size_t neighbours) {
  BesidePriority found = {};
  std::vector<uint64_t> took_ns;
  const SharedServer::Program asks = [&](SimulatedWorker& worker) {
    const uint64_t begun_ns = base::now_ns();
    worker.launch(300 * kUs);
    worker.wait();
    took_ns.push_back(base::now_ns() - begun_ns);
    worker.compute(gap_ns);
  };
  const auto percentile = [&](size_t percent) {
    std::sort(took_ns.begin(), took_ns.end());
    return static_cast<double>(took_ns[took_ns.size() * percent / 100]) / 1e3;
  };
  {
    SharedServer server;
    server.add(0.25, asks, {0}, {.priority = 1});
    server.run(kSecond);
    found.alone_us = percentile(50);
  }
  SharedServer server;
  server.add(0.25, asks, {0}, {.priority = 1});
  for (size_t i = 0; i < neighbours; ++i)
    server.add(0.75 / static_cast<double>(neighbours), backlog(neighbours_piece_ns));
  server.run(kSettling);
  constexpr uint64_t kMeasured = 4 * kSecond;
  SimulatedGpu& gpu = server.gpu(0);
  std::vector<uint64_t> before_ns;
  for (size_t i = 0; i <= neighbours; ++i) before_ns.push_back(gpu.had_ns(i));
  took_ns.clear();
  server.run(kMeasured);
  found.p50_us = percentile(50);
  found.p99_us = percentile(99);
  found.part = static_cast<double>(gpu.had_ns(0) - before_ns[0]) / kMeasured;
  for (size_t i = 1; i <= neighbours; ++i)
    found.neighbours += static_cast<double>(gpu.had_ns(i) - before_ns[i]) / kMeasured;
  return found;
}

// If the hardware did not interrupt, it would wait for 49 ms beside kernels of 50 ms. The GPU
// belongs to the others meanwhile, except for the switches.
TEST(Turns, AHigherClassNeedNotWaitForWhatRuns) {
  for (const uint64_t piece_ns : {5 * kUs, 500 * kUs, 5 * kMs, 50 * kMs}) {
    for (const uint64_t gap_ns : {2 * kMs, 20 * kMs}) {
      SCOPED_TRACE(std::to_string(piece_ns / kUs) + " us, " + std::to_string(gap_ns / kMs) +
                   " ms apart");
      const BesidePriority found = beside_priority(piece_ns, gap_ns, 1);
      constexpr double kSwitchUs = SimulatedGpu::kSwitchNs / 1e3;
      EXPECT_LE(found.p99_us, found.alone_us + kSwitchUs + 20);
      EXPECT_GE(found.part, 0.3 * 4 / static_cast<double>(4 * gap_ns / kMs + 2) - 0.01);
      const double switches = 2 * kSwitchUs / (static_cast<double>(gap_ns) / 1e3 + found.p50_us);
      EXPECT_GE(found.part + found.neighbours, 0.985 - switches);
    }
  }
}

// A tenant that asks for more than its share (29 %, with a switch and the looking for more) is held
// back by little each time, and never for a whole turn of the others.
TEST(Turns, AHigherClassThatIsAheadIsPaced) {
  const BesidePriority found = beside_priority(500 * kUs, 1200 * kUs, 1);
  EXPECT_LE(found.p99_us, 1000);
}

// Nearly every kernel of 50 ms is interrupted. Their length must be learned all the same. Otherwise
// too many are let in, and some are overdue.
TEST(Turns, AHigherClassAmongSeveral) {
  for (const uint64_t piece_ns : {500 * kUs, 5 * kMs, 50 * kMs}) {
    for (const uint64_t gap_ns : {2 * kMs, 20 * kMs}) {
      SCOPED_TRACE(std::to_string(piece_ns / kUs) + " us, " + std::to_string(gap_ns / kMs) +
                   " ms apart");
      EXPECT_LE(beside_priority(piece_ns, gap_ns, 3).p99_us, 650);
    }
  }
}

// ---- Host functions: what is behind one on its stream cannot run before the program has finished
// it ----

struct BesideABacklog {
  double alone, part, neighbour;  // of the GPU
  uint64_t longest_ns;            // in which the neighbour had nothing
};

BesideABacklog beside_a_backlog(const SharedServer::Program& program) {
  BesideABacklog found = {};
  constexpr uint64_t kMeasured = 4 * kSecond;
  const auto part_of = [](uint64_t ns) { return static_cast<double>(ns) / kMeasured; };
  {
    SharedServer server;
    server.add(0.5, program);
    server.run(kSettling);
    const uint64_t before_ns = server.gpu(0).had_ns(0);
    server.run(kMeasured);
    found.alone = part_of(server.gpu(0).had_ns(0) - before_ns);
  }
  SharedServer server;
  server.add(0.5, program);
  server.add(0.5, backlog(500 * kUs));
  server.run(kSettling);
  const uint64_t before_ns = server.gpu(0).had_ns(0), neighbours_ns = server.gpu(0).had_ns(1);
  uint64_t had_ns = neighbours_ns, without_ns = 0;
  for (uint64_t ns = 0; ns < kMeasured; ns += 200 * kUs) {
    server.run(200 * kUs);
    without_ns = server.gpu(0).had_ns(1) == had_ns ? without_ns + 200 * kUs : 0;
    had_ns = server.gpu(0).had_ns(1);
    found.longest_ns = std::max(found.longest_ns, without_ns);
  }
  found.part = part_of(server.gpu(0).had_ns(0) - before_ns);
  found.neighbour = part_of(had_ns - neighbours_ns);
  return found;
}

// While it is in a host function, the others have its turn. It gets what it can use of its share
// all the same.
TEST(Turns, AProgramInAHostFunctionKeepsNobodyFromTheGpu) {
  for (const uint64_t host_ns : {5 * kMs, 20 * kMs, 50 * kMs, 200 * kMs}) {
    SCOPED_TRACE(host_ns);
    const BesideABacklog found = beside_a_backlog([host_ns](SimulatedWorker& worker) {
      for (int i = 0; i < 20; ++i) worker.launch(500 * kUs);
      worker.call_back(host_ns);
    });
    EXPECT_GE(found.part, 0.84 * std::min(found.alone, 0.5));
    EXPECT_GE(found.neighbour, 0.49);
    EXPECT_GE(found.part + found.neighbour, 0.92);
    EXPECT_LE(found.longest_ns, 20 * kMs);
  }
}

// What ran after its turn, when its host functions were over, is charged to it and not to the
// neighbour.
TEST(Turns, WhatRunsBehindHostFunctionsIsPaidFor) {
  for (const uint64_t host_ns : {kMs, 2 * kMs, 10 * kMs}) {
    SCOPED_TRACE(host_ns);
    const auto few = [host_ns](SimulatedWorker& worker) {
      for (int i = 0; i < 2; ++i) worker.launch(500 * kUs);
      worker.call_back(host_ns);
    };
    const BesideABacklog one = beside_a_backlog(few);
    EXPECT_GE(one.neighbour, 0.49);
    EXPECT_GE(one.part, 0.45 * one.alone);
    const auto next = std::make_shared<uint64_t>(0);
    const BesideABacklog many = beside_a_backlog([=](SimulatedWorker& worker) {
      const uint64_t stream = 1 + (*next)++ % 16;
      worker.launch(500 * kUs, stream);
      worker.call_back(host_ns, stream);
    });
    EXPECT_GE(many.neighbour, 0.49);
    EXPECT_GE(many.part, 0.39);
  }
}

// A host function may wait for what the program has yet to submit. One piece at a time passes and
// costs the neighbour little.
TEST(Turns, BehindAHostFunctionWithoutEndPiecesPass) {
  SharedServer server;
  const SimulatedWorker& worker = server.add(0.5, [](SimulatedWorker& program) {
    program.call_back(1000 * kSecond);
    for (int i = 0; i < 100'000; ++i) program.launch(kMs);
  });
  server.add(0.5, backlog(500 * kUs));
  server.run(kSettling);
  const uint64_t before_ns = server.gpu(0).had_ns(1);
  EXPECT_GE(pieces_per_second(&server, worker, 4 * kSecond), 30);
  EXPECT_GE(static_cast<double>(server.gpu(0).had_ns(1) - before_ns), 0.98 * 4 * kSecond);
}

// ---- Leases with several GPUs: a program whose calls go in one order works on one GPU only while
// it is not stopped at another ----

class SeveralGpus : public testing::TestWithParam<uint64_t> {
 protected:
  // Always has more pieces, for its slices in turn.
  void add(double share, uint64_t piece_ns, const std::vector<uint32_t>& gpus,
           const wire::LeaseTerms& terms = {}) {
    const auto random = std::make_shared<std::mt19937>(1);
    const auto next = std::make_shared<size_t>(0);
    server_.add(
        share,
        [=, slices = gpus.size()](SimulatedWorker& worker) {
          worker.launch(piece_ns, 1, static_cast<uint32_t>((*next)++ % slices),
                        piece_ns * (80 + (*random)() % 41) / 100);
        },
        gpus, terms);
    before_.push_back({});
  }
  void request(double share, uint32_t gpu) {
    server_.add(share, waits(300 * kUs, 2 * kMs), {gpu}, {.priority = 1});
    before_.push_back({});
  }
  void run() {
    server_.run(kSettling);
    for (size_t tenant = 0; tenant < before_.size(); ++tenant) {
      for (const uint32_t gpu : {0, 1}) before_[tenant][gpu] = server_.gpu(gpu).had_ns(tenant);
    }
    server_.run(kMeasured);
  }
  double delivered(size_t tenant, uint32_t gpu) {
    return static_cast<double>(server_.gpu(gpu).had_ns(tenant) - before_[tenant][gpu]) / kMeasured;
  }
  double unused(uint32_t gpu) {
    double sum = 0;
    for (size_t tenant = 0; tenant < before_.size(); ++tenant) sum += delivered(tenant, gpu);
    return 1 - sum;
  }

 private:
  static constexpr uint64_t kMeasured = 5 * kSecond;
  SharedServer server_{2};
  std::vector<std::array<uint64_t, 2>> before_;
};

TEST_P(SeveralGpus, TwoLeasesOfTwo) {
  add(0.5, GetParam(), {0, 1});
  add(0.5, GetParam(), {1, 0});
  run();
  for (const uint32_t gpu : {0, 1}) {
    for (const size_t tenant : {0, 1}) EXPECT_NEAR(delivered(tenant, gpu), 0.5, 0.035);
  }
}

TEST_P(SeveralGpus, TwoUnequalLeasesOfTwo) {
  add(0.25, GetParam(), {0, 1});
  add(0.75, GetParam(), {0, 1});
  run();
  for (const uint32_t gpu : {0, 1}) {
    EXPECT_NEAR(delivered(0, gpu), 0.25, 0.025);
    EXPECT_NEAR(delivered(1, gpu), 0.75, 0.05);
  }
}

TEST_P(SeveralGpus, ThreeLeasesOfTwo) {
  for (const std::vector<uint32_t>& gpus : {std::vector<uint32_t>{0, 1}, {1, 0}, {0, 1}})
    add(1. / 3, GetParam(), gpus);
  run();
  for (const size_t tenant : {0, 1, 2}) EXPECT_NEAR(delivered(tenant, 0), 1. / 3, 0.025);
  EXPECT_LE(unused(0), 0.04);
}

// Beside tenants that are always ready it has all its GPUs at the same time. By chance it would get
// 0.35 to 0.44.
TEST_P(SeveralGpus, ALeaseOfTwoBesideTenantsOfOne) {
  add(0.5, GetParam(), {0, 1});
  add(0.5, 500 * kUs, {0});
  add(0.5, 500 * kUs, {1});
  run();
  // So long that the gate lets one at a time pass. Each GPU waits for the other's.
  const bool goes_singly = GetParam() == 5 * kMs;
  for (const uint32_t gpu : {0, 1}) {
    EXPECT_GE(delivered(0, gpu), goes_singly ? 0.44 : 0.475);
    EXPECT_NEAR(delivered(1 + gpu, gpu), 0.5, 0.04);
    EXPECT_LE(unused(gpu), 0.04);
  }
}

TEST_P(SeveralGpus, ASmallLeaseOfTwoAmongManyOfOne) {
  add(0.1, GetParam(), {0, 1});
  for (uint32_t i = 0; i < 6; ++i) add(0.3, 500 * kUs, {i % 2});
  run();
  EXPECT_GE(delivered(0, 0), 0.07);  // by chance: 0.05
  for (uint32_t i = 0; i < 6; ++i) EXPECT_NEAR(delivered(1 + i, i % 2), 0.3, 0.025);
}

// If nobody else wants the other GPU, nothing is lost on either.
TEST_P(SeveralGpus, ALeaseOfTwoOfWhichOneIsContended) {
  add(0.5, GetParam(), {0, 1});
  add(0.5, 500 * kUs, {1});
  run();
  EXPECT_NEAR(delivered(0, 1), 0.5, 0.025);
  EXPECT_NEAR(delivered(1, 1), 0.5, 0.025);
}

TEST_P(SeveralGpus, ARequestOfAHigherClassOnOneOfThem) {
  add(0.75, GetParam(), {0, 1});
  request(0.25, 0);
  add(0.25, 500 * kUs, {1});
  run();
  EXPECT_GE(delivered(1, 0), 0.12);  // as much as it asks for
  // Each request stops it on both GPUs, for longer than the request lasts.
  EXPECT_GE(delivered(0, 0), GetParam() == 100 * kUs ? 0.5 : 0.6);
  EXPECT_GE(delivered(2, 1), 0.24);
}

TEST_P(SeveralGpus, ALeaseOfTwoOfAHigherClass) {
  add(0.5, GetParam(), {0, 1}, {.priority = 1});
  add(0.5, 500 * kUs, {0});
  add(0.5, 500 * kUs, {1});
  run();
  for (const uint32_t gpu : {0, 1}) {
    EXPECT_NEAR(delivered(0, gpu), 0.5, 0.04);
    EXPECT_NEAR(delivered(1 + gpu, gpu), 0.5, 0.02);
  }
}

INSTANTIATE_TEST_SUITE_P(Pieces, SeveralGpus, testing::Values(100 * kUs, kMs, 5 * kMs),
                         [](const auto& param) {
                           return std::to_string(param.param / kUs) + "us";
                         });

}  // namespace
}  // namespace tendril::simulation

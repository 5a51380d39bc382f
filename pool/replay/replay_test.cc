// SPDX-License-Identifier: Apache-2.0
// The replay on a made-up trace. tools/pool_replay.py replays the public ones.
#include "pool/replay/replay.h"

#include <gtest/gtest.h>

#include "pool/replay/queue_replay.h"

namespace tendril::pool {
namespace {

constexpr char kServers[] =
    "sn,cpu_milli,memory_mib,gpu,model\n"
    "a,64000,262144,2,P100\n"
    "b,96000,393216,8,G2\r\n";
constexpr char kRequests[] =
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    "p0,12000,16384,1,1000,\n"
    "p1,6000,12288,1,460,G2|P100\n"
    "p2,8000,1024,0,0,\n"
    "p3,16000,1024,2,1000,P100\n"
    "\n";

Trace trace() { return Trace{read_servers(kServers).take(), read_requests(kRequests).take()}; }

TEST(Trace, ReadsTheColumns) {
  const Trace read = trace();
  ASSERT_EQ(read.servers.size(), 2U);
  EXPECT_EQ(read.servers[1].name, "b");
  EXPECT_EQ(read.servers[1].gpus, 8U);
  EXPECT_EQ(read.servers[1].model, "G2");
  EXPECT_EQ(read.servers[0].host_memory_bytes, uint64_t{256} << 30);
  ASSERT_EQ(read.requests.size(), 4U);
  EXPECT_EQ(read.requests[1].request.share_millionths, 460'000U);
  EXPECT_EQ(read.requests[1].models, (std::vector<std::string>{"G2", "P100"}));
  EXPECT_EQ(read.requests[2].request.slices, 0U);
  EXPECT_EQ(read.requests[3].request.slices, 2U);
}

TEST(Trace, NamesTheBadLine) {
  for (const char* bad : {"x", "", "-1", "65", "1.5", "99999999999999999999999"}) {
    const std::string text = "cpu_milli,memory_mib,gpu,model\n1,1,1,A\n1,1," + std::string(bad);
    const auto read = read_servers(text);
    ASSERT_FALSE(read) << bad;
    EXPECT_NE(read.status().message().find("line 3 of the trace: column gpu"), std::string::npos)
        << read.status().message();
  }
  EXPECT_FALSE(read_requests("cpu_milli\n1\n")) << "columns are missing";
}

TEST(Replay, GivesTheSameForTheSameSeed) {
  for (const char* strategy : {"random", "bestfit", "fgd", "snug"}) {
    ReplayOptions options;
    options.strategy = strategy;
    auto first = replay(trace(), options);
    auto second = replay(trace(), options);
    ASSERT_TRUE(first);
    EXPECT_EQ(first->share_given, second->share_given);
    EXPECT_EQ(first->share_total, 10U * kWholeGpu);
    EXPECT_GT(first->share_asked, 11 * uint64_t{kWholeGpu});
    EXPECT_LE(first->share_asked, 14 * uint64_t{kWholeGpu});
    EXPECT_GT(first->requests, first->refused);
    EXPECT_GT(first->refused, 0U);
  }
}

TEST(Replay, AsksTheWorkersProcessorsOnly) {
  ReplayOptions options;
  options.strategy = "snug";
  options.host = HostSide::kWorker;
  options.arrivals = 0.1;  // fewer than the trace has
  auto result = replay(trace(), options);
  ASSERT_TRUE(result);
  EXPECT_LE(result->share_asked, uint64_t{kWholeGpu});
  EXPECT_EQ(result->refused, 0U);
}

TEST(Replay, LearnsFromArrivals) {
  ReplayOptions options;
  options.strategy = "snug";
  options.learning = Learning::kArrivals;
  EXPECT_TRUE(replay(trace(), options));
}

TEST(Replay, SaysWhichStrategiesThereAre) {
  ReplayOptions options;
  options.strategy = "lucky";
  auto result = replay(trace(), options);
  ASSERT_FALSE(result);
  EXPECT_NE(result.status().message().find("bestfit"), std::string::npos);
}

TEST(Churn, HoldsThatManyLeases) {
  ReplayOptions options;
  options.strategy = "snug";
  uint64_t now = 0;
  options.now_ns = [&now] { return ++now; };
  auto result = churn(trace(), options, 5, 50);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->leases, 5U);
  EXPECT_EQ(result->decision_ns.size(), 50U);
}

std::string job(int64_t arrival_s, uint32_t gpus, int steps) {
  return "LM\tpython3 main.py\t-n\t1\t" + std::to_string(steps) + "\t" + std::to_string(arrival_s) +
         ".000000\t" + std::to_string(gpus) + "\n";
}

TEST(QueueReplay, ReadsJobsAndNamesTheBadLine) {
  auto jobs = read_jobs(job(0, 8, 100) + job(7, 1, 300));
  ASSERT_TRUE(jobs);
  ASSERT_EQ(jobs->size(), 2U);
  EXPECT_EQ((*jobs)[1].arrival_s, 7);
  EXPECT_EQ((*jobs)[0].gpus, 8U);
  for (const std::string& bad : {job(0, 0, 1), job(0, 65, 1), job(0, 1, 0), std::string("x\n")}) {
    const auto read = read_jobs(job(0, 1, 1) + bad);
    ASSERT_FALSE(read);
    EXPECT_NE(read.status().message().find("line 2"), std::string::npos);
  }
  EXPECT_FALSE(read_jobs(""));
}

TEST(QueueReplay, StartsAllAndKeepsWhatItTold) {
  std::vector<std::vector<QueueJob>> traces;
  for (int account = 0; account < 3; ++account) {
    std::string text;
    for (int i = 0; i < 200; ++i)
      text += job(i * 10 + account, i % 9 == 0 ? 16 : 1 + i % 4, 100 + (i * 37 + account) % 900);
    traces.push_back(read_jobs(text).take());
  }
  QueueReplayOptions options;
  options.servers = 4;
  options.load = 1.2;
  const QueueReplayResult result = replay_queue(traces, options);
  EXPECT_EQ(result.jobs, 600U);
  EXPECT_GT(result.promised, 10U);
  EXPECT_EQ(result.late, 0U);
  EXPECT_GE(result.inside, result.told * 9 / 10);
}

TEST(EngineDecisions, AreTimed) {
  uint64_t now = 0;
  auto times = engine_decisions(trace(), 5, 20, [&now] { return ++now; });
  ASSERT_TRUE(times);
  EXPECT_EQ(times->size(), 20U);
}

}  // namespace
}  // namespace tendril::pool

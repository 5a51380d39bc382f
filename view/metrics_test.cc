// SPDX-License-Identifier: Apache-2.0
// What the text of the metrics says.
#include "view/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "view/ended_leases.h"
#include "view/pool_metrics.h"

namespace tendril::view {
namespace {

wire::ListReply sample() {
  wire::ListReply list;
  list.server = "rack7";
  wire::GpuRecord gpu;
  gpu.index = 0;
  gpu.name = "H200";
  gpu.uuid = std::string(16, '\x11');
  gpu.memory_total_bytes = 1000;
  gpu.share_used_millionths = 750'000;
  gpu.temperature_c = 41;
  list.gpus = {gpu};
  wire::LeaseRecord lease;
  lease.lease_id = 9;
  lease.client = {"box", "ada", "a \"quoted\\\n\xff program", 1};
  lease.slices.resize(2);
  lease.slices[0].share_millionths = 250'000;
  lease.memory_used_bytes = {5, 6};
  lease.uses = {{true, 240'000, 1'500'000'000, 250'000'000, 6'000'000'000}, {}};
  lease.processes = 2;
  lease.standing = wire::Standing::kParked;
  lease.standing_s = 90;
  lease.parks = 2;
  lease.passages = {{"10.0.0.3", true, ""}, {"10.0.0.4", false, "rdma (3.4x)"}};
  list.leases = {lease};
  wire::SessionRecord session;
  session.session_id = 12;
  session.lease_id = 9;
  session.client = {"box", "ada", "train", 77};
  session.calls = 50;
  session.launches = 40;
  session.bytes_in = 3000;
  session.awaited_ns = 1'500'000'000;
  session.processor_ns = 250'000'000;
  list.sessions = {session};
  return list;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(Metrics, WhatIsKnownIsThere) {
  Counters counters;
  counters.leases_refused = 3;
  counters.parks = 5;
  counters.parked_bytes = 7000;
  counters.wake_waited_ns = 1'500'000'000;
  counters.gpus = {{900, 250, 2'000'000'000, 12}};
  const std::string text = metrics_text(sample(), counters);
  const std::string gpu =
      R"({gpu="0",uuid="GPU-11111111-1111-1111-1111-111111111111",model="H200"} )";
  EXPECT_TRUE(has_line(text, "tendril_gpu_memory_total_bytes" + gpu + "1000")) << text;
  EXPECT_TRUE(has_line(text, "tendril_gpu_share_lent_ratio" + gpu + "0.75"));
  EXPECT_TRUE(has_line(text, "tendril_parks_total 5")) << text;
  EXPECT_TRUE(has_line(text, "tendril_parked_bytes 7000"));
  EXPECT_TRUE(has_line(text, "tendril_wake_wait_seconds_total 1.5"));
  EXPECT_TRUE(has_line(text, "tendril_gpu_turn_seconds_total" + gpu + "2"));
  EXPECT_TRUE(has_line(text, "tendril_gpu_temperature_celsius" + gpu + "41"));
  EXPECT_EQ(text.find("tendril_gpu_power_watts"), std::string::npos) << "not known, not said";
  EXPECT_TRUE(has_line(text, "tendril_lease_refusals_total 3"));
  EXPECT_TRUE(has_line(text, "# TYPE tendril_lease_refusals_total counter"));
  EXPECT_TRUE(has_line(text, "tendril_sessions 2"));
  EXPECT_TRUE(has_line(text, "tendril_passages{way=\"rdma\"} 1")) << text;
  EXPECT_TRUE(has_line(text, "tendril_passages{way=\"tcp\"} 1"));
  const std::string lease =
      R"({lease="9",gpu="0",user="ada",client="box",program="a \"quoted\\?? program"} )";
  EXPECT_TRUE(has_line(text, "tendril_lease_gpu_seconds_total" + lease + "1.5")) << text;
  EXPECT_TRUE(has_line(text, "tendril_lease_parked_seconds" + lease + "90"));
  EXPECT_TRUE(has_line(text, "tendril_lease_parks_total" + lease + "2"));
  EXPECT_TRUE(has_line(text, "tendril_lease_queued_seconds_total" + lease + "0.25"));
  EXPECT_TRUE(has_line(text, "tendril_lease_share_delivered_ratio" + lease + "0.24"));
  EXPECT_TRUE(has_line(text, "tendril_lease_memory_used_bytes" + lease + "6"));
  const std::string session =
      R"({session="12",lease="9",user="ada",client="box",program="train",pid="77"} )";
  EXPECT_TRUE(has_line(text, "tendril_session_calls_total" + session + "50")) << text;
  EXPECT_TRUE(has_line(text, "tendril_session_launches_total" + session + "40"));
  EXPECT_TRUE(has_line(text, "tendril_session_received_bytes_total" + session + "3000"));
  EXPECT_TRUE(has_line(text, "tendril_session_awaited_seconds_total" + session + "1.5"));
  EXPECT_TRUE(has_line(text, "tendril_session_processor_seconds_total" + session + "0.25"));
}

TEST(Metrics, ALeaseThatEndedIsScrapedOnce) {
  EndedLeases ended;
  LeaseMetrics last;
  last.lease = sample().leases[0];
  last.idle_s = 2.5;
  ended.add(last);
  Counters counters;
  counters.ended = ended.scraped(1'000'000'000);
  wire::ListReply list = sample();
  list.leases.clear();
  const std::string text = metrics_text(list, counters);
  EXPECT_TRUE(text.find("tendril_lease_gpu_seconds_total{lease=\"9\",gpu=\"0\"") !=
              std::string::npos)
      << text;
  EXPECT_TRUE(text.find("tendril_lease_idle_seconds{lease=\"9\"") != std::string::npos);
  EXPECT_EQ(ended.scraped(2'000'000'000).size(), 1u);  // a second Prometheus
  EXPECT_EQ(ended.scraped(17'000'000'000).size(), 0u);
  for (size_t i = 0; i < 2 * EndedLeases::kMost; ++i) ended.add(last);
  EXPECT_EQ(ended.scraped(1).size(), EndedLeases::kMost);
}

TEST(Metrics, SeriesOfOtherExportersOnlyIfAsked) {
  wire::ListReply list = sample();
  list.gpus[0].utilization_percent = 37;
  list.gpus[0].memory_total_bytes = 3ull << 20;
  list.gpus[0].memory_used_bytes = 1ull << 20;
  EXPECT_EQ(metrics_text(list, Counters()).find("DCGM"), std::string::npos);
  const std::string text = metrics_text(list, Counters(), true);
  const std::string labels =
      R"({gpu="0",UUID="GPU-11111111-1111-1111-1111-111111111111",device="nvidia0",)"
      R"(modelName="H200",Hostname="rack7"} )";
  EXPECT_TRUE(has_line(text, "DCGM_FI_DEV_GPU_UTIL" + labels + "37")) << text;
  EXPECT_TRUE(has_line(text, "DCGM_FI_DEV_FB_FREE" + labels + "2"));
  EXPECT_TRUE(has_line(text, "DCGM_FI_PROF_GR_ENGINE_ACTIVE" + labels + "0.37"));
}

TEST(Metrics, EachFamilyIsDescribedOnce) {
  const std::string text = metrics_text(sample(), Counters());
  size_t types = 0;
  std::vector<std::string> names;
  for (size_t at = text.find("# TYPE "); at != std::string::npos;
       at = text.find("# TYPE ", at + 1)) {
    const std::string name = text.substr(at + 7, text.find(' ', at + 7) - at - 7);
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 0) << name;
    names.push_back(name);
    ++types;
  }
  EXPECT_GT(types, 15u);
}

TEST(PoolMetrics, WhoStandsByTellsOfItselfOnly) {
  const PoolProcess process{"lab", "pool2", "9.9", false, 0, 4};
  const std::string text = pool_metrics_text(process, "");
  EXPECT_TRUE(has_line(text, R"(tendril_pool_info{pool="lab",scheduler="pool2",version="9.9"} 1)"));
  EXPECT_TRUE(has_line(text, "tendril_pool_scheduler_leads 0")) << text;
  EXPECT_TRUE(has_line(text, "tendril_pool_store_failures_total 4"));
  EXPECT_EQ(text.find("tendril_pool_servers"), std::string::npos);
}

TEST(PoolMetrics, WhatTheSchedulerCountsIsThere) {
  const PoolProcess process{"lab", "pool1", "9.9", true, 7, 0};
  const std::string text = pool_metrics_text(process, R"({"planning": true, "policy_revision": 3,
    "batches_unstored": 2, "servers": {"up": 5, "silent": 1},
    "gpus": [{"class": "t\"op", "state": "free", "gpus": 8}],
    "classes": [{"name": "top", "gpus": 12, "given": 2.5}],
    "accounts": [{"name": "vision", "used": {"top": 2.5}, "waiting": 4}],
    "queue": [{"queue": "top", "reason": "Quota", "requests": 4, "longest_wait_s": 75}],
    "leases": {"running": 3, "ending": 1}, "idle": 2, "paused": 0, "shrunk": 0, "reclaimed": 1,
    "totals": {"requests": 9, "refused": 1, "granted": 5, "ended": 2, "waited_ns": 1500000000,
      "waits": [{"up_to_s": 1, "grants": 3}, {"up_to_s": null, "grants": 2}],
      "uses": [{"account": "vision", "used_ns": 2500000000, "idle_ns": 500000000}]}})");
  for (const char* const line :
       {"tendril_pool_scheduler_leads 1",
        "tendril_pool_scheduler_term 7",
        "tendril_pool_planning 1",
        "tendril_pool_store_batches_unwritten 2",
        R"(tendril_pool_servers{state="silent"} 1)",
        R"(tendril_pool_gpus{class="t\"op",state="free"} 8)",
        R"(tendril_pool_class_given_gpus{class="top"} 2.5)",
        R"(tendril_pool_account_gpus{account="vision",class="top"} 2.5)",
        R"(tendril_pool_account_waiting{account="vision"} 4)",
        R"(tendril_pool_queue_requests{queue="top",reason="Quota"} 4)",
        R"(tendril_pool_queue_longest_wait_seconds{queue="top",reason="Quota"} 75)",
        R"(tendril_pool_leases{state="running"} 3)",
        "tendril_pool_leases_idle 2",
        "tendril_pool_grants_total 5",
        R"(tendril_pool_wait_seconds_bucket{le="1"} 3)",
        R"(tendril_pool_wait_seconds_bucket{le="+Inf"} 5)",
        "tendril_pool_wait_seconds_sum 1.5",
        "tendril_pool_wait_seconds_count 5",
        R"(tendril_pool_gpu_seconds_total{account="vision"} 2.5)",
        R"(tendril_pool_idle_seconds_total{account="vision"} 0.5)"})
    EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
}

TEST(PoolMetrics, FiguresOfAnotherVersionAreNoHarm) {
  for (const char* const figures : {"[]", "{", R"({"servers": 5, "gpus": {"a": [1]}, "queue": 7,
        "totals": [], "accounts": [null, 3], "leases": "x"})"})
    EXPECT_NE(pool_metrics_text({}, figures).find("tendril_pool_info"), std::string::npos);
}

}  // namespace
}  // namespace tendril::view

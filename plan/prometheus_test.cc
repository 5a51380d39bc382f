// SPDX-License-Identifier: Apache-2.0
// Answers of Prometheus over DCGM's names: what is held, by whom, and what is wrong with others.
#include "plan/prometheus.h"

#include <gtest/gtest.h>

#include "plan/test_records.h"
#include "plan/use.h"

namespace tendril::plan {
namespace {

// A series of one GPU, with these labels and values from second 600 on, one each minute.
std::string series(const std::string& name, const std::string& labels,
                   const std::vector<std::string>& values) {
  std::string text = R"({"metric":{"__name__":")" + name +
                     R"(","gpu":"0","UUID":"GPU-1","Hostname":"box")" + labels + R"(},"values":[)";
  for (size_t i = 0; i < values.size(); ++i)
    text += (i == 0 ? "[" : ",[") + std::to_string(600 + 60 * i) + R"(,")" + values[i] + R"("])";
  return text + "]}";
}

std::string answer(const std::vector<std::string>& all) {
  std::string text = R"({"status":"success","data":{"resultType":"matrix","result":[)";
  for (size_t i = 0; i < all.size(); ++i) text += (i == 0 ? "" : ",") + all[i];
  return text + "]}}";
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

constexpr char kUtil[] = "DCGM_FI_DEV_GPU_UTIL", kUsed[] = "DCGM_FI_DEV_FB_USED";

TEST(PlanPrometheus, JoinsTimeAndMemoryOfAPod) {
  const std::string pod =
      R"(,"exported_namespace":"ada","exported_pod":"train","pod":"dcgm-exporter-x")";
  const Records records =
      records_of({answer({series(kUtil, pod, {"50", "0", "100"}),
                          series(kUsed, pod, {"1024", "2048", "NaN"}), series("up", "", {"1"})})});
  ASSERT_EQ(records.holders.size(), 1u);
  const Holder& holder = records.holders[0];
  EXPECT_EQ(holder.user, "ada");
  ASSERT_EQ(holder.samples.size(), 3u);
  EXPECT_FLOAT_EQ(holder.samples[0].busy, 0.5f);
  EXPECT_EQ(holder.peak_memory_bytes(), uint64_t{2} << 30);
  EXPECT_EQ(records.step_s, 60);
  EXPECT_DOUBLE_EQ(use_of(records).all.busy_gpu_s, 90);
}

TEST(PlanPrometheus, AGpuWithoutANameIsNobodysWhereOthersHaveOne) {
  const Records records = records_of(
      {answer({series(kUtil, R"(,"pod":"dcgm-exporter-x","namespace":"monitoring")", {"70"}),
               series(kUtil, R"(,"pod":"train","namespace":"ada")", {"50"})})});
  ASSERT_EQ(records.holders.size(), 1u);
  EXPECT_EQ(records.holders[0].user, "ada");
}

TEST(PlanPrometheus, WithoutNamesAGpuIsHeldWhileItsMemoryIs) {
  const Records records = records_of(
      {answer({series(kUtil, "", {"0", "0", "30"}), series(kUsed, "", {"400", "40000", "0"})})});
  ASSERT_EQ(records.holders.size(), 1u);
  ASSERT_EQ(records.holders[0].samples.size(), 2u);
  EXPECT_EQ(records.holders[0].samples[0].at_s, 660);
  expect_part(why_not(answer({series(kUtil, "", {"0"}), series(kUsed, "", {"400"})})),
              "nobody held a GPU");
}

TEST(PlanPrometheus, SlurmSaysWhoseAJobIs) {
  const std::string jobs =
      "JobID|User|Start|End|AllocTRES\n"
      "77|ada|2026-11-01T00:00:00|2026-11-01T01:00:00|gres/gpu=1\n"
      "78|bob|2026-11-01T00:00:00|2026-11-01T01:00:00|gres/gpu=1\n";
  const Records records = records_of({jobs, answer({series(kUtil, R"(,"hpc_job":"77")", {"25"})})});
  ASSERT_EQ(records.holders.size(), 1u);
  EXPECT_EQ(records.holders[0].user, "ada");
  EXPECT_TRUE(records.measured);
}

TEST(PlanPrometheus, SaysWhereItIsWrong) {
  const std::string good = answer({series(kUtil, "", {"50", "60"})});
  expect_part(why_not(good.substr(0, 40)), "line 1, column ");
  expect_part(why_not("{\n \"status\": nonsense}"), "line 2, column 13");
  expect_part(why_not(answer({series(kUtil, "", {"50"}), series(kUtil, "", {"50", "101"})})),
              "series 2, value 2: \"101\" is no number of at most 100");
  expect_part(why_not(answer({series("rate", "", {"1"})})), "no series in it is named");
  expect_part(why_not(R"({"status":"error","errorType":"bad_data","error":"what?"})"), "what?");
  expect_part(why_not(R"({"status":"success","data":{"resultType":"vector","result":[]}})"),
              "expected the answer of /api/v1/query_range");
  expect_part(why_not(R"({"data":{"resultType":"matrix","result":[{"values":[[1,"2"]]}]}})"),
              "series 1: 'metric' must come before 'values'");
  expect_part(why_not(R"({"data":{"resultType":"matrix","result":[{"metric":{"__name__":")" +
                      std::string(kUtil) + R"("},"values":[]}]}})"),
              "a label UUID or gpu is missing");
  std::string wrong = good;
  wrong.replace(wrong.find("[600"), 4, "[\"6\"");
  expect_part(why_not(wrong), "value 1: expected seconds");
  expect_part(why_not("{\"data\":" + std::string(40, '[')), "nested too deeply");
}

}  // namespace
}  // namespace tendril::plan

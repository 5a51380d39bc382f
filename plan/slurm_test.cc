// SPDX-License-Identifier: Apache-2.0
// Tables of sacct: jobs, steps, what they used, and what is wrong with a line.
#include "plan/slurm.h"

#include <gtest/gtest.h>

#include "plan/page.h"

namespace tendril::plan {
namespace {

constexpr char kColumns[] =
    "JobID|User|Account|Partition|Submit|Start|End|State|ReqTRES|AllocTRES|NTasks|TRESUsageInAve|"
    "TRESUsageInTot\n";

// One line; times are minutes of an hour.
std::string line(const std::string& id, const std::string& user, int submit, int start, int end,
                 const std::string& alloc, const std::string& rest = "||") {
  const auto at = [](int minute) {
    return "2026-11-01T08:" + std::string(minute < 10 ? "0" : "") + std::to_string(minute) + ":00";
  };
  return id + "|" + user + "|lab|gpu|" + at(submit) + "|" + at(start) + "|" +
         (end < 0 ? "Unknown" : at(end)) + "|COMPLETED||" + alloc + "|" + rest + "\n";
}

std::vector<SlurmJob> jobs_in(const std::string& text) {
  auto jobs = read_slurm(text);
  EXPECT_TRUE(jobs.ok()) << jobs.status().message();
  return jobs.ok() ? jobs.take() : std::vector<SlurmJob>();
}

std::string why_not(const std::string& text) { return read_slurm(text).status().message(); }

TEST(PlanSlurm, ReadsJobsAndTheirSteps) {
  const auto jobs = jobs_in(
      kColumns + line("12", "ada", 0, 10, 50, "billing=8,cpu=8,gres/gpu:h100=2,gres/gpu=2,mem=1G") +
      line("12.batch", "", 10, 10, 50, "", "1||gres/gpumem=0,gres/gpuutil=0") +
      line("12.0", "", 10, 10, 30, "", "2|gres/gpuutil=1|gres/gpumem=20480M,gres/gpuutil=120") +
      line("13", "bob", 5, 6, -1, "gres/gpu:a100=1,gres/gpu:h100=1") +
      line("14", "", 5, 6, 7, "cpu=4"));
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_EQ(jobs[0].user, "ada");
  EXPECT_EQ(jobs[0].gpus, 2u);
  EXPECT_EQ(jobs[0].from_s - jobs[0].ready_s, 600);
  EXPECT_EQ(jobs[0].to_s - jobs[0].from_s, 2400);
  // Half of its time with 60 % of both.
  EXPECT_NEAR(jobs[0].mean_busy, 0.3, 1e-9);
  EXPECT_EQ(jobs[0].memory_bytes, uint64_t{10} << 30);
  EXPECT_EQ(jobs[1].gpus, 2u);
  EXPECT_LT(jobs[1].mean_busy, 0);
  EXPECT_EQ(jobs[1].to_s, jobs[0].to_s);  // the last moment that is known
  EXPECT_EQ(jobs[2].user, "lab");
  EXPECT_EQ(jobs[2].gpus, 0u);
}

// What sacct of Slurm 22.05 prints for a small cluster that a person ran: a job of two GPUs, one
// with a step, one of an array, one without GPUs that runs, one that was cancelled before it
// began, one that waits. Users are renamed, and means of disks are cut.
constexpr char kReal[] =
    "JobID|User|Account|Partition|Submit|Eligible|Start|End|State|AllocTRES|NTasks|"
    "TRESUsageInAve|TRESUsageInTot\n"
    "1|bob|lab|gpu|1795801437|1795801437|1795801438|1795801442|COMPLETED|"
    "billing=1,cpu=1,gres/gpu=2,mem=2000M,node=1|||\n"
    "1.batch||lab||1795801438|1795801438|1795801438|1795801442|COMPLETED|"
    "cpu=1,gres/gpu=2,mem=2000M,node=1|1|cpu=00:00:00,mem=3356K,pages=0|"
    "cpu=00:00:00,mem=3356K,pages=0\n"
    "2|ada|lab|gpu|1795801437|1795801437|1795801444|1795801449|COMPLETED|"
    "billing=1,cpu=1,gres/gpu=1,mem=2000M,node=1|||\n"
    "2.batch||lab||1795801444|1795801444|1795801444|1795801449|COMPLETED|"
    "cpu=1,gres/gpu=1,mem=2000M,node=1|1|cpu=00:00:00,mem=10532K,pages=0|"
    "cpu=00:00:00,mem=10532K,pages=0\n"
    "2.0||lab||1795801444|1795801444|1795801444|1795801446|COMPLETED|"
    "cpu=1,gres/gpu=1,mem=2000M,node=1|1|cpu=00:00:00,mem=3308K,pages=0|"
    "cpu=00:00:00,mem=3308K,pages=0\n"
    "4|ada|lab|gpu|1795801438|1795801438|1795801465|Unknown|RUNNING|"
    "billing=1,cpu=1,mem=2000M,node=1|||\n"
    "4.batch||lab||1795801465|1795801465|1795801465|Unknown|RUNNING|cpu=1,mem=2000M,node=1|1|"
    "|\n"
    "5|ada|lab|gpu|1795801438|1795805038|1795801441|1795801441|CANCELLED by 0||||\n"
    "6|ada|lab|gpu|1795801438|1795801438|Unknown|Unknown|PENDING||||\n"
    "3_1|ada|lab|gpu|1795801438|1795801438|1795801450|1795801454|COMPLETED|"
    "billing=1,cpu=1,gres/gpu=1,mem=2000M,node=1|||\n"
    "3_1.batch||lab||1795801450|1795801450|1795801450|1795801454|COMPLETED|"
    "cpu=1,gres/gpu=1,mem=2000M,node=1|1|cpu=00:00:00,mem=3468K,pages=0|"
    "cpu=00:00:00,mem=3468K,pages=0\n";

TEST(PlanSlurm, ReadsWhatARealSacctPrints) {
  const auto jobs = jobs_in(kReal);
  std::vector<std::string> with_gpus;
  for (const SlurmJob& job : jobs) {
    if (job.gpus == 0) continue;
    with_gpus.push_back(job.user + " " + job.id + " " + std::to_string(job.gpus) + " " +
                        std::to_string(job.from_s - job.ready_s) + " " +
                        std::to_string(job.to_s - job.from_s));
    EXPECT_LT(job.mean_busy, 0) << "no GPU was counted there";
  }
  EXPECT_EQ(with_gpus, (std::vector<std::string>{"bob 1 2 1 4", "ada 2 1 7 5", "ada 3_1 1 12 4"}));
}

TEST(PlanSlurm, AnAverageIsOverTasks) {
  const auto busy = [](const std::string& rest) {
    const auto jobs = jobs_in(kColumns + line("1", "ada", 0, 0, 50, "gres/gpu=4") +
                              line("1.0", "", 0, 0, 50, "", rest));
    return jobs.empty() ? -1 : jobs[0].mean_busy;
  };
  EXPECT_NEAR(busy("4|gres/gpuutil=50|"), 0.5, 1e-9);
  EXPECT_NEAR(busy("1|gres/gpuutil=80|"), 0.2, 1e-9);
  EXPECT_NEAR(busy("|gres/gpuutil=200|"), 0.5, 1e-9);
  EXPECT_NEAR(busy("|gres/gpuutil=50|"), 0.5, 1e-9);
}

TEST(PlanSlurm, ReadsSecondsAndRequeuedJobs) {
  const auto jobs = jobs_in(
      "JobID|Start|End|AllocTRES\n7_1|1000|1600|gres/gpu=1\n7_1|2000|2100|gres/gpu=1\n\n"
      "8|None|Unknown|\n");
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].id, "7_1");
  EXPECT_EQ(jobs[0].from_s, 1000);
  EXPECT_EQ(jobs[0].to_s, 1600);
}

TEST(PlanSlurm, NamesLineAndExpectation) {
  EXPECT_EQ(why_not("JobID|Start|End\n"),
            "line 1: the column AllocTRES is missing; expected JobID, Start, End and AllocTRES");
  const std::string columns = "JobID|Start|End|AllocTRES|TRESUsageInTot\n";
  EXPECT_EQ(
      why_not(columns + "1|yesterday|Unknown||\n"),
      "line 2: column Start is \"yesterday\"; expected a time such as 2026-11-01T08:00:00, or "
      "Unknown");
  EXPECT_EQ(why_not(columns + "1|5|9|gres/gpu=1|\n2|5|9|gres/gpu=x|\n"),
            "line 3: column AllocTRES is \"gres/gpu=x\"; expected gres/gpu=N");
  EXPECT_EQ(why_not(columns + "1|9|5|gres/gpu=1|\n"),
            "line 2: column End is \"5\"; expected a time after Start");
  EXPECT_EQ(why_not(columns + "1|5|9|gres/gpu=1|gres/gpumem=-1\n"),
            "line 2: column TRESUsageInTot is \"gres/gpumem=-1\"; expected gres/gpumem=12M");
  EXPECT_EQ(why_not(columns + "|5|9|gres/gpu=1|\n"),
            "line 2: column JobID is \"\"; expected a number such as 1234 or 1234.0");
}

// Eight jobs at once that each used a quarter of their GPU and 10 GB, and one that used nothing.
TEST(PlanSlurm, PlansJobsByTheirMeans) {
  std::string text = kColumns;
  for (int i = 0; i < 8; ++i)
    text += line(std::to_string(i), i == 0 ? "bob" : "ada", 0, 0, 50, "gres/gpu=1",
                 i == 0 ? "1||gres/gpumem=0,gres/gpuutil=0" : "1||gres/gpumem=9G,gres/gpuutil=25");
  RecordReader reader;
  ASSERT_TRUE(reader.add(text).ok());
  auto records = reader.finish();
  ASSERT_TRUE(records.ok()) << records.status().message();
  EXPECT_FALSE(records->measured);
  EXPECT_TRUE(records->accounted);
  LadderOptions options;
  options.cards_bytes = {80'000'000'000};
  options.limit_s = 0;
  const Report report = report_on(*records, options, {"sacct"});
  EXPECT_EQ(report.use.never_used, 1u);
  EXPECT_EQ(report.use.users[0].user, "bob");
  ASSERT_EQ(report.ladder.size(), 4u);
  EXPECT_EQ(report.ladder[0].outcome.gpus, 8u);
  EXPECT_EQ(report.ladder[2].step, Step::kLent);
  EXPECT_EQ(report.ladder[2].outcome.gpus, 3u);  // 7 quarters; of one no memory is known
  const std::string shown = report_text(report);
  EXPECT_NE(shown.find("1 jobs never used their GPUs"), std::string::npos) << shown;
  EXPECT_NE(shown.find("each job by its mean"), std::string::npos) << shown;
}

TEST(PlanSlurm, AJobOfManyGpusIsSeveralRequests) {
  RecordReader reader;
  ASSERT_TRUE(reader.add("JobID|Start|End|AllocTRES\n1|0|600|gres/gpu=130\n").ok());
  auto records = reader.finish();
  ASSERT_TRUE(records.ok());
  ASSERT_EQ(records->holders.size(), 3u);
  EXPECT_EQ(records->holders[2].gpus, 2u);
}

}  // namespace
}  // namespace tendril::plan

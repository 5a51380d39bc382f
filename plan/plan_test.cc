// SPDX-License-Identifier: Apache-2.0
// Records that are read, what of them was used, the ladder on small clusters whose answers are
// known, and the report. The last tests read the public traces that TENDRIL_TRACES names.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

#include "config/text.h"
#include "plan/page.h"
#include "plan/parked_replay.h"
#include "plan/shared_gpu.h"
#include "plan/test_records.h"

namespace tendril::plan {
namespace {

constexpr uint64_t kGb = 1'000'000'000;

constexpr char kRecordColumns[] =
    "time_s,server,gpu,user,job,utilisation_percent,memory_bytes,power_w\n";

// `count` programs of 30 GB for `minutes`; each works in one minute of `every`, one after another.
std::string takers(int count, int minutes, int every) {
  std::string text = kRecordColumns;
  for (int minute = 0; minute < minutes; ++minute)
    for (int i = 0; i < count; ++i)
      text += std::to_string(minute * 60) + ",box,GPU-" + std::to_string(i) + ",ada,j" +
              std::to_string(i) + "," + (minute % every == i % every ? "90" : "0") +
              ",30000000000,70\n";
  return text;
}

Rung rung_of(const std::vector<Rung>& ladder, Step step, uint64_t card_bytes) {
  for (const Rung& rung : ladder)
    if (rung.step == step && (rung.card_bytes == card_bytes || rung.card_bytes == 0)) return rung;
  ADD_FAILURE() << "no such rung";
  return {};
}

TEST(PlanRecords, ReadsOneRowPerGpuAndMinute) {
  const Records records =
      records_of({std::string(kRecordColumns) + "60,a,GPU-1,ada,42,50,1000,70\n"
                                                "120,a,GPU-1,ada,42,0,2000,70\n"
                                                "120,a,GPU-2,,,0,0,20\n"  // nobody's
                                                "120,b,GPU-1,bob,,100,3000,70\r\n"});
  ASSERT_EQ(records.holders.size(), 2u);
  EXPECT_EQ(records.step_s, 60);
  EXPECT_EQ(records.from_s, 60);
  EXPECT_EQ(records.to_s, 180);
  EXPECT_EQ(records.holders[0].user, "ada");
  EXPECT_EQ(records.holders[0].peak_memory_bytes(), 2000u);
  EXPECT_EQ(records.holders[1].samples.size(), 1u);
}

TEST(PlanRecords, JoinsUtilisationAndMemoryOfPods) {
  const Records records = records_of(
      {"value,timestamp_anon,container_ip\n50.0,100.0,x\n0.0,157.0,x\n",
       "timestamp_anon,value,container_ip\n100.0,4000000000.0,x\n157.0,5000000000.0,x\n"});
  ASSERT_EQ(records.holders.size(), 1u);
  ASSERT_EQ(records.holders[0].samples.size(), 2u);
  EXPECT_FLOAT_EQ(records.holders[0].samples[0].busy, 0.5f);
  EXPECT_EQ(records.holders[0].samples[1].memory_bytes, 5 * kGb);
  EXPECT_EQ(records.step_s, 57);
}

TEST(PlanRecords, SaysWhatIsWrong) {
  EXPECT_NE(why_not("\x1f\x8b\x08").find("unpack it first"), std::string::npos);
  EXPECT_NE(why_not("a,b\n1,2\n").find("no columns that are known"), std::string::npos);
  EXPECT_NE(why_not(std::string(kRecordColumns) + "60,a,g,u,j,101,0,0\n").find("line 2"),
            std::string::npos);
  EXPECT_NE(why_not(std::string(kRecordColumns) + "60,a,g,u,j,nan,0,0\n").find("utilisation"),
            std::string::npos);
  EXPECT_NE(why_not(kRecordColumns).find("nobody held a GPU"), std::string::npos);
  EXPECT_NE(why_not(std::string(kRecordColumns) +
                    "0,a,g,u,j,1,0,0\n1,a,g,u,j,1,0,0\n60000000000,a,g,u,j,1,0,0\n")
                .find("reach over more"),
            std::string::npos);
}

TEST(PlanUse, CountsHeldBusyAndNeverUsed) {
  const Records records =
      records_of({std::string(kRecordColumns) + "0,a,1,ada,x,50,10,0\n60,a,1,ada,x,0,10,0\n"
                                                "0,a,2,bob,y,0,10,0\n60,a,2,bob,y,0,10,0\n"});
  const Use use = use_of(records);
  EXPECT_DOUBLE_EQ(use.mean_held_gpus, 2);
  EXPECT_DOUBLE_EQ(use.mean_busy_gpus, 0.25);
  EXPECT_DOUBLE_EQ(use.most_busy_gpus, 0.5);
  EXPECT_EQ(use.never_used, 1u);
  ASSERT_EQ(use.users.size(), 2u);
  EXPECT_EQ(use.users[0].user, "bob");  // most idle
  EXPECT_DOUBLE_EQ(use.users[0].never_gpu_s, 120);
  EXPECT_DOUBLE_EQ(use.users[1].idle_gpu_s, 60);
}

TEST(PlanPacking, LargestFirstIntoTheFirstCardWithRoom) {
  EXPECT_EQ(packed_cards({4 * kGb, 6 * kGb, 5 * kGb, 5 * kGb}, 10 * kGb), 2u);
  EXPECT_EQ(packed_cards({6 * kGb, 6 * kGb, 6 * kGb}, 10 * kGb), 3u);
  EXPECT_EQ(packed_cards({60 * kGb, 1}, 10 * kGb), 2u);  // larger than a card
  EXPECT_EQ(packed_cards({}, 10 * kGb), 0u);
}

TEST(PlanSharedGpu, TwoThatWorkAtOnceAreLate) {
  std::vector<Sample> samples = {{0, 1, true, 0}, {60, 0, true, 0}};
  SharedJob job;
  job.samples = &samples;
  job.to_s = 120;
  job.share = 0.5;
  SharedGpu lending(60, true);
  lending.add(job);
  EXPECT_NEAR(lending.delays_s()[0], 0, 1e-9);  // alone it has the whole GPU
  lending.add(job);
  // Half of each one's 60 GPU seconds is undone for one step of 60 s.
  for (const double delay_s : lending.delays_s()) EXPECT_NEAR(delay_s, 30, 1e-6);
  SharedGpu capped(60, false);
  capped.add(job);
  EXPECT_NEAR(capped.delays_s()[0], 30, 1e-6);
}

TEST(PlanLadder, EachStepNeedsWhatItMust) {
  // Six programs; each works for 4 minutes in an hour, at its own time.
  std::string text = kRecordColumns;
  for (int minute = 0; minute < 60; ++minute)
    for (int i = 0; i < 6; ++i)
      text += std::to_string(minute * 60) + ",box," + std::to_string(i) + ",ada,j" +
              std::to_string(i) + "," + (minute / 10 == i && minute % 10 < 4 ? "50" : "0") +
              ",30000000000,70\n";
  LadderOptions options;
  options.cards_bytes = {80 * kGb};
  options.limit_s = 0;
  options.idle_before_move_s = 60;
  const std::vector<Rung> ladder = climb(records_of({text}), options);
  const Rung whole = rung_of(ladder, Step::kWhole, 0);
  EXPECT_EQ(whole.outcome.gpus, 6u);
  EXPECT_EQ(whole.bound_gpus, 6u);
  EXPECT_EQ(rung_of(ladder, Step::kSlices, 80 * kGb).outcome.gpus, 3u);  // two peaks a card
  const Rung lent = rung_of(ladder, Step::kLent, 80 * kGb);
  EXPECT_EQ(lent.outcome.gpus, 3u);
  EXPECT_EQ(lent.packed_gpus, 3u);
  EXPECT_NEAR(lent.outcome.p95_late_s, 0, 1e-6);
  const Rung moved = rung_of(ladder, Step::kMoved, 80 * kGb);
  EXPECT_EQ(moved.outcome.gpus, 1u);  // never more than two in memory
  EXPECT_EQ(moved.outcome.moves, 0u);
}

TEST(PlanLadder, WaitsBuyGpus) {
  // Ten requests for a GPU come at once, and each lasts 100 s.
  std::string text = "name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n";
  for (int i = 0; i < 10; ++i) text += "p" + std::to_string(i) + ",1,1000,5,105,5\n";
  LadderOptions options;
  options.cards_bytes = {80 * kGb};
  options.limit_s = 0;
  EXPECT_EQ(climb(records_of({text}), options)[0].outcome.gpus, 10u);
  options.limit_s = 100;
  const Rung rung = climb(records_of({text}), options)[0];
  EXPECT_EQ(rung.outcome.gpus, 5u);
  EXPECT_DOUBLE_EQ(rung.outcome.mean_wait_s, 50);
  EXPECT_DOUBLE_EQ(rung.outcome.most_wait_s, 100);
}

TEST(PlanLadder, UnknownUseIsSaidOrAssumed) {
  const std::string text =
      "name,num_gpu,gpu_milli,creation_time,deletion_time\np,1,500,0,90000\nq,1,500,0,90000\n";
  LadderOptions options;
  options.cards_bytes = {80 * kGb};
  std::vector<Rung> ladder = climb(records_of({text}), options);
  EXPECT_EQ(rung_of(ladder, Step::kSlices, 0).outcome.gpus, 1u);
  EXPECT_FALSE(ladder.back().known);
  options.assumed_active = 0.25;
  ladder = climb(records_of({text}), options);
  EXPECT_TRUE(ladder.back().known);
  EXPECT_TRUE(ladder.back().assumed);
  EXPECT_GT(ladder.back().outcome.moves, 4u);
}

TEST(PlanReport, HostileNamesAreText) {
  const std::string evil = "<script>alert(1)</script>\x1b[31m\xff";
  const Records records =
      records_of({std::string(kRecordColumns) + "0,a,1," + evil + ",x,50,10,0\n"});
  LadderOptions options;
  options.cards_bytes = {80 * kGb};
  const Report report = report_on(records, options, {"<b>.csv"});
  const std::string page = report_html(report);
  EXPECT_EQ(page.find("<script"), std::string::npos);
  EXPECT_EQ(page.find("<b>"), std::string::npos);
  EXPECT_NE(page.find("&lt;script&gt;alert(1)&lt;/script&gt;"), std::string::npos);
  for (const std::string& text : {page, report_text(report), report_json(report)}) {
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_EQ(text.find('\xff'), std::string::npos);
  }
  EXPECT_EQ(page.find("src="), std::string::npos);  // nothing from elsewhere
  EXPECT_EQ(report_svg(report).find("script"), std::string::npos);
}

TEST(PlanReport, IsTheSameAgain) {
  LadderOptions options;
  options.cards_bytes = {80 * kGb};
  const auto text = [&options] {
    return report_json(report_on(records_of({takers(5, 30, 7)}), options, {"x"}));
  };
  EXPECT_EQ(text(), text());
}

// The text of a public trace; empty if there is none.
std::string trace(const std::string& name) {
  const char* const folder = getenv("TENDRIL_TRACES");
  if (folder == nullptr) return "";
  const std::string command = name.find(".tar.gz") != std::string::npos ? "tar xzOf " : "gzip -dc ";
  FILE* const pipe = popen((command + "'" + folder + "/" + name + "'").c_str(), "r");
  std::string text;
  char piece[65536];
  for (size_t got = 0; (got = fread(piece, 1, sizeof piece, pipe)) > 0;) text.append(piece, got);
  EXPECT_EQ(pclose(pipe), 0) << name;
  return text;
}

TEST(PlanTraces, GenAiPodsGiveTheKnownFigures) {
  const std::string duty = trace("genai2026_pod_gpu_duty_cycle_anon.tar.gz");
  if (duty.empty()) GTEST_SKIP() << "TENDRIL_TRACES does not name the folder of the traces";
  const Records records =
      records_of({duty, trace("genai2026_pod_gpu_memory_used_bytes_anon.tar.gz")});
  const Use use = use_of(records);
  EXPECT_NEAR(use.mean_held_gpus, 109.2, 0.1);
  EXPECT_NEAR(use.mean_busy_gpus, 7.7, 0.05);
  LadderOptions options;
  options.cards_bytes = {48 * kGb, 80 * kGb, 141 * kGb};
  const std::vector<Rung> ladder = climb(records, options);
  const uint32_t packed[] = {130, 71, 40};
  for (size_t i = 0; i < 3; ++i) {
    const Rung lent = rung_of(ladder, Step::kLent, options.cards_bytes[i]);
    EXPECT_EQ(lent.packed_gpus, packed[i]);
    const Rung moved = rung_of(ladder, Step::kMoved, options.cards_bytes[i]);
    for (const Rung& rung : {lent, moved}) {
      EXPECT_TRUE(rung.reached);
      EXPECT_LE(rung.outcome.p95_wait_s, options.limit_s);
      EXPECT_GE(rung.outcome.gpus, rung.bound_gpus);
    }
    EXPECT_LE(moved.outcome.gpus, lent.outcome.gpus);
  }
  // Parked: that many cards hold all at once, and half of the wakes copy one's memory and no more.
  ParkedSettings settings;
  settings.card_bytes = 80 * kGb;
  settings.cards = packed[1];
  const ParkedOutcome parked = replay_parked(records, settings);
  EXPECT_EQ(parked.wakes, 3709u);
  EXPECT_NEAR(parked.p50_wait_s, 0.84, 0.01);
  EXPECT_NEAR(parked.p99_wait_s, 1.6, 0.01);
  EXPECT_NEAR(without_place(records, 80 * kGb, 30), 0.19, 0.01) << "whatever a policy does";
  EXPECT_GT(without_place(records, 80 * kGb, 46), 0.01);
  EXPECT_NEAR(memory_need_now(records, 80 * kGb).p99, 13, 0.5);
  settings.give_up_wait_s = 3;
  settings.cards = 60;
  EXPECT_TRUE(replay_parked(records, settings).gave_up);
  // Nothing of that takes a minute.
  settings.bursts = true;
  settings.cards = 30;
  const clock_t begun = clock();
  EXPECT_TRUE(replay_parked(records, settings).gave_up);
  EXPECT_LT(double(clock() - begun) / CLOCKS_PER_SEC, 60);
}

// Three that each fill a card by half, and work in turns of 100 s, an hour apart.
Records taking_turns() {
  Records records;
  records.measured = true;
  records.step_s = 100;
  records.to_s = 20'000;
  for (int64_t number = 0; number < 3; ++number) {
    Holder holder;
    holder.name = "pod" + std::to_string(number);
    holder.to_s = records.to_s;
    for (int64_t at_s = 0; at_s < records.to_s; at_s += 100) {
      const bool works = at_s / 100 % 36 == number * 12;
      holder.samples.push_back({at_s, works ? 0.5F : 0.0F, true, 40 * kGb});
    }
    records.holders.push_back(std::move(holder));
  }
  return records;
}

TEST(ParkedReplay, WhoWorksInTurnsNeedsNoCardOfItsOwn) {
  ParkedSettings settings;
  settings.card_bytes = 80 * kGb;
  settings.link_bytes_per_s = 10e9;
  settings.cards = 2;
  ParkedOutcome outcome = replay_parked(taking_turns(), settings);
  EXPECT_EQ(outcome.never_started, 0u);
  EXPECT_GT(outcome.wakes, 10u);
  EXPECT_NEAR(outcome.longest_wait_s, 4, 0.01) << "40 GB at 10 GB/s, and nobody in the way";
  EXPECT_NEAR(outcome.moved_bytes, 40e9 * static_cast<double>(outcome.wakes + outcome.parks), 1);
  settings.cards = 1;
  outcome = replay_parked(taking_turns(), settings);
  EXPECT_EQ(outcome.never_started, 0u) << "it starts when another one is parked";
  EXPECT_LE(outcome.longest_wait_s, 8.01) << "one out, one in";
  EXPECT_EQ(fewest_parked(taking_turns(), settings, 5).cards, 1u);
  // More than one in a hundred is too late: the rest is not looked at.
  settings.give_up_wait_s = 1;
  const ParkedOutcome some = replay_parked(taking_turns(), settings);
  EXPECT_TRUE(some.gave_up);
  EXPECT_FALSE(outcome.gave_up);
  EXPECT_LT(some.wakes, outcome.wakes);
  EXPECT_EQ(fewest_parked(taking_turns(), settings, 1).cards, 2u);
}

TEST(ParkedReplay, WhoWorksAllTheTimeIsNotParked) {
  Records records = taking_turns();
  for (Holder& holder : records.holders)
    for (Sample& sample : holder.samples) sample.busy = 1;
  ParkedSettings settings;
  settings.card_bytes = 80 * kGb;
  settings.cards = 1;
  const ParkedOutcome outcome = replay_parked(records, settings);
  EXPECT_EQ(outcome.parks, 0u);
  EXPECT_EQ(outcome.wakes, 0u);
  EXPECT_EQ(outcome.never_started, 1u) << "the third finds no room";
  EXPECT_EQ(fewest_parked(records, settings, 3).cards, 2u);
}

TEST(ParkedReplay, WhoWorksMakesRoomIfThereAreTurns) {
  Records records = taking_turns();
  for (size_t i = 0; i < records.holders.size(); ++i) {
    for (Sample& sample : records.holders[i].samples)
      sample.busy = sample.at_s < 500 && i == 0 ? 0 : 0.5F;
    if (i == 2) records.holders[i].samples.erase(records.holders[i].samples.begin());
  }
  ParkedSettings settings;
  settings.card_bytes = 80 * kGb;
  settings.cards = 1;
  settings.link_bytes_per_s = 10e9;
  const ParkedOutcome without = replay_parked(records, settings);
  EXPECT_GT(without.longest_wait_s, 10'000) << "the first one waits until others have ended";
  settings.turn_s = 20;
  const ParkedOutcome with = replay_parked(records, settings);
  EXPECT_EQ(with.never_started, 0u);
  EXPECT_GT(with.wakes, 500u);
  EXPECT_LE(with.longest_wait_s, 32.01) << "a turn, and twice that one leaves and one comes";
  EXPECT_GT(with.mean_late_s, 1000) << "three on two places";
}

TEST(MemoryNeed, CountsThoseAtWorkWhereverTheyAre) {
  const Records records = taking_turns();  // 40 GB each, in 100 s of each hour
  const MemoryNeed step = memory_need(records, 80 * kGb, 0);
  EXPECT_EQ(step.most, 0.5);
  EXPECT_NEAR(step.mean, 0.5 * 3 / 36, 0.01);
  EXPECT_EQ(memory_need(records, 80 * kGb, 20'000).most, 1.5) << "all of them, sooner or later";
  EXPECT_EQ(memory_need_now(records, 80 * kGb).most, 0.25);
  EXPECT_EQ(without_place(records, 80 * kGb, 1), 0);
  EXPECT_NEAR(without_place(records, 20 * kGb, 1), 0.5, 1e-6);
}

TEST(PlanTraces, OpenbNeedsFewerGpusOnEachStep) {
  const std::string pods = trace("openb_pod_list_default.csv.gz");
  if (pods.empty()) GTEST_SKIP() << "TENDRIL_TRACES does not name the folder of the traces";
  LadderOptions options;
  options.cards_bytes = {80 * kGb};
  options.assumed_active = 0.33;
  const std::vector<Rung> ladder = climb(records_of({pods}), options);
  ASSERT_EQ(ladder.size(), 4u);
  for (const Rung& rung : ladder) {
    EXPECT_TRUE(rung.reached);
    EXPECT_GE(rung.outcome.gpus, rung.bound_gpus);
  }
  for (size_t i = 1; i < ladder.size(); ++i)
    EXPECT_LE(ladder[i].outcome.gpus, ladder[i - 1].outcome.gpus);
  EXPECT_EQ(ladder[0].outcome.gpus, 57u);
  EXPECT_EQ(ladder[1].outcome.gpus, 51u);
}

}  // namespace
}  // namespace tendril::plan

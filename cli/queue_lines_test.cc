// SPDX-License-Identifier: Apache-2.0
// One line at once, then on change only.
#include "cli/queue_lines.h"

#include <gtest/gtest.h>

namespace tendril::cli {
namespace {

using Lines = std::vector<std::string>;

wire::News news() {
  wire::News news;
  news.place = 3;
  news.of = 7;
  news.queue = "top (account vision)";
  news.reason = "Quota: vision holds 4.0 of 4.0 top, 2.0 lent to nlp";
  news.start = "between 14:10 and 16:40";
  return news;
}

TEST(QueueLines, AllAtOnceThenWhatChanged) {
  QueueLines lines;
  EXPECT_FALSE(lines.has_spoken());
  EXPECT_EQ(lines.heard(news()),
            (Lines{"waiting, position 3 of 7 for top (account vision)",
                   "reason Quota: vision holds 4.0 of 4.0 top, 2.0 lent to nlp",
                   "start between 14:10 and 16:40"}));
  EXPECT_TRUE(lines.has_spoken());
  EXPECT_EQ(lines.heard(news()), Lines());
  wire::News moved = news();
  moved.place = 2;
  EXPECT_EQ(lines.heard(moved), (Lines{"waiting, position 2 of 7 for top (account vision)"}));
  moved.reason = "Resources: 1.0 of 2.0 free";
  EXPECT_EQ(lines.heard(moved), (Lines{"reason Resources: 1.0 of 2.0 free"}));
  moved.start.clear();
  EXPECT_EQ(lines.heard(moved), Lines());
}

TEST(QueueLines, APoolMaySayLittle) {
  QueueLines lines;
  wire::News news;
  news.text = "the store does not answer";
  EXPECT_EQ(lines.heard(news), Lines());
  EXPECT_FALSE(lines.has_spoken());
  EXPECT_EQ(lines.heard(news), (Lines{"waiting: the store does not answer"}));
  EXPECT_EQ(lines.heard(news), Lines());
  EXPECT_TRUE(lines.has_spoken());
}

TEST(QueueLines, WhoIsInNoQueueIsToldWhy) {
  QueueLines lines;
  lines.heard(news());
  wire::News held;
  held.reason = "Schedule: held by root: too large";
  EXPECT_EQ(lines.heard(held), Lines());
  EXPECT_EQ(lines.heard(held), (Lines{"waiting: Schedule: held by root: too large"}));
  EXPECT_EQ(lines.heard(held), Lines());
  EXPECT_EQ(lines.heard(news()).size(), 3u) << "all is said again";
}

TEST(QueueLines, ALostSchedulerIsSaidOnceAndThePlaceAgain) {
  QueueLines lines;
  lines.heard(news());
  EXPECT_EQ(lines.lost("pool1 is gone"), (Lines{"pool1 is gone"}));
  EXPECT_EQ(lines.lost("pool2 does not answer"), Lines());
  EXPECT_EQ(lines.heard(news()), (Lines{"waiting, position 3 of 7 for top (account vision)"}));
  EXPECT_EQ(lines.lost("pool2 is gone"), (Lines{"pool2 is gone"}));
}

TEST(QueueLines, TextFromAPoolIsCleaned) {
  QueueLines lines;
  wire::News evil;
  evil.place = 1;
  evil.reason = "\x1b[2J" + std::string(5000, 'x');
  for (const std::string& line : lines.heard(evil)) {
    EXPECT_EQ(line.find('\x1b'), std::string::npos);
    EXPECT_LT(line.size(), 400u);
  }
}

TEST(QueueLines, TheGrantNamesServersOnce) {
  wire::LeaseReply reply;
  reply.lease_id = 412;
  reply.waited_s = 1400;
  reply.parts.resize(3);
  reply.parts[0].server = "gpu3";
  reply.parts[1].server = "gpu5";
  reply.parts[2].server = "gpu3";
  EXPECT_EQ(granted_line(reply), "leases 412 (gpu3, gpu5) after 23 min");
  reply.waited_s = 0;
  EXPECT_EQ(granted_line(reply), "leases 412 (gpu3, gpu5)");
}

}  // namespace
}  // namespace tendril::cli

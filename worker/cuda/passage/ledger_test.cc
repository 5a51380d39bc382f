// SPDX-License-Identifier: Apache-2.0
// Two ledgers that talk to each other in random order: every operation ends at both ends, with the
// bytes that were to come. And another end that breaks the rules.
#include "worker/cuda/passage/ledger.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <set>

#include "worker/cuda/passage/shape.h"

namespace tendril::worker::cuda {
namespace {

using Kind = PassageLedger::Step::Kind;

struct End {
  PassageLedger ledger;
  std::deque<PassageFrame> to_say, lines[3];
  std::deque<uint64_t> sends;
  std::map<uint64_t, int> ended;
  uint64_t received = 0;
  bool broken = false;

  void take(const PassageLedger::Steps& steps) {
    for (const auto& step : steps) {
      if (step.kind == Kind::kSay) to_say.push_back(step.frame);
      if (step.kind == Kind::kEnd) ended[step.operation] = step.result;
      if (step.kind == Kind::kBreak) broken = true;
      if (step.kind != Kind::kMove) continue;
      if (step.frame.bytes == 0) {
        sends.push_back(step.operation);
        continue;
      }
      received += step.frame.bytes;
      PassageLedger::Steps more;
      ledger.moved(step.operation, step.frame.bytes, &more);
      take(more);
    }
  }
  void add(uint64_t operation, PassageRole role, uint64_t bytes) {
    PassageLedger::Steps steps;
    EXPECT_TRUE(ledger.add(operation, role, bytes, &steps));
    take(steps);
  }
  void arrive(uint64_t operation) {
    PassageLedger::Steps steps;
    ledger.arrived(operation, &steps);
    take(steps);
  }
  void hear(const PassageFrame& frame) {
    PassageLedger::Steps steps;
    ledger.heard(frame, &steps);
    take(steps);
  }
  bool send_some(uint64_t most) {
    if (sends.empty()) return false;
    const uint64_t operation = sends.front();
    uint64_t at = 0, bytes = 0;
    if (!ledger.next_piece(operation, most, &at, &bytes)) {
      sends.pop_front();
      return true;
    }
    PassageLedger::Steps steps;
    ledger.moved(operation, bytes, &steps);
    take(steps);
    lines[at % 3].push_back({PassageSays::kData, static_cast<uint32_t>(bytes), operation, at});
    return true;
  }
  // The next frame of one of its lines; what is said goes over the first.
  bool next_frame(unsigned which, PassageFrame* frame) {
    std::deque<PassageFrame>* line = which < 3 ? &lines[which] : &to_say;
    if (line->empty()) return false;
    *frame = line->front();
    line->pop_front();
    return true;
  }
};

void step(End* one, End* other, std::mt19937* draw) {
  if ((*draw)() % 2 == 0) std::swap(one, other);
  if ((*draw)() % 3 == 0 && one->send_some(1 + (*draw)() % 5)) return;
  PassageFrame frame;
  if (!one->next_frame((*draw)() % 4, &frame)) return;
  ASSERT_TRUE(is_sound(frame));
  other->hear(frame);
}

TEST(PassageLedger, EveryOperationEndsAtBothEnds) {
  for (unsigned seed = 1; seed <= 60; ++seed) {
    std::mt19937 draw(seed);
    End ends[2];
    uint64_t bytes[2] = {};
    std::deque<std::pair<int, uint64_t>> calls[2], arrivals;
    constexpr uint64_t kOperations = 30;
    std::map<uint64_t, uint64_t> sizes;
    for (uint64_t operation = 1; operation <= kOperations; ++operation) {
      sizes[operation] = 1 + draw() % 20;
      const int from = static_cast<int>(draw() % 2);
      const bool copies = draw() % 3 != 0;
      if (copies) bytes[1 - from] += sizes[operation];
      calls[from].push_back({copies ? 0 : 2, operation});
      calls[1 - from].push_back({copies ? 1 : 3, operation});
    }
    for (int turn = 0; turn < 20'000; ++turn) {
      step(&ends[0], &ends[1], &draw);
      const auto which = draw() % 2;
      if (draw() % 4 == 0 && !calls[which].empty()) {
        const auto [role, operation] = calls[which].front();
        calls[which].pop_front();
        ends[which].add(operation, static_cast<PassageRole>(role), role < 2 ? sizes[operation] : 0);
        arrivals.push_back({static_cast<int>(which), operation});
      }
      if (draw() % 4 == 0 && !arrivals.empty()) {
        std::swap(arrivals.front(), arrivals[draw() % arrivals.size()]);
        ends[arrivals.front().first].arrive(arrivals.front().second);
        arrivals.pop_front();
      }
    }
    for (int i = 0; i < 2; ++i) {
      EXPECT_FALSE(ends[i].broken) << "seed " << seed;
      EXPECT_EQ(kOperations, ends[i].ended.size()) << "seed " << seed;
      EXPECT_EQ(bytes[i], ends[i].received) << "seed " << seed;
      for (const auto& [operation, result] : ends[i].ended) EXPECT_EQ(0, result);
    }
  }
}

TEST(PassageLedger, AFailureEndsBothHalves) {
  for (const bool early : {false, true}) {
    End here, there;
    here.add(1, PassageRole::kSend, 10);
    PassageLedger::Steps steps;
    if (!early) there.add(1, PassageRole::kReceive, 10);
    here.ledger.fail(1, 700, &steps);
    here.take(steps);
    there.hear(here.to_say.front());
    if (early) there.add(1, PassageRole::kReceive, 10);
    EXPECT_EQ(700, here.ended.at(1));
    EXPECT_EQ(700, there.ended.at(1));
  }
}

TEST(PassageLedger, WhoBreaksTheRulesWritesNothing) {
  const auto breaks = [](const std::vector<PassageFrame>& frames, bool here) {
    End end;
    end.add(1, PassageRole::kReceive, 10);
    if (here) end.arrive(1);
    for (const PassageFrame& frame : frames) end.hear(frame);
    EXPECT_LE(end.received, 10u);
    return end.broken;
  };
  EXPECT_FALSE(breaks({{PassageSays::kData, 4, 1, 0}, {PassageSays::kData, 6, 1, 4}}, true));
  EXPECT_TRUE(breaks({{PassageSays::kData, 4, 1, 0}}, false)) << "before it was ready";
  EXPECT_TRUE(breaks({{PassageSays::kData, 11, 1, 0}}, true)) << "too much";
  EXPECT_FALSE(breaks({{PassageSays::kData, 6, 1, 4}, {PassageSays::kData, 4, 1, 0}}, true));
  EXPECT_TRUE(breaks({{PassageSays::kData, 4, 1, 7}}, true)) << "elsewhere";
  EXPECT_TRUE(breaks({{PassageSays::kData, 1, 1, uint64_t(0) - 1}}, true)) << "elsewhere";
  EXPECT_TRUE(breaks({{PassageSays::kData, 6, 1, 4}, {PassageSays::kData, 5, 1, 0}}, true))
      << "more than it asked for";
  EXPECT_TRUE(breaks({{PassageSays::kDone, 0, 1, 0}}, true)) << "of a sender";
  EXPECT_TRUE(breaks({{PassageSays::kTell, 0, 1, 0}}, true)) << "of no event";
  EXPECT_FALSE(breaks({{PassageSays::kData, 4, 2, 0}}, true)) << "of one that may have failed";
  EXPECT_FALSE(is_sound({PassageSays::kData, kPassagePieceBytes + 1, 1, 0}));
  EXPECT_FALSE(is_sound({PassageSays::kReady, 1, 1, 0}));
}

// A fabric lost them after this end had counted them.
TEST(PassageLedger, BytesThatWereLostMustGoBeforeAllAreThere) {
  PassageLedger ledger;
  PassageLedger::Steps steps;
  ASSERT_TRUE(ledger.add(1, PassageRole::kSend, 100, &steps));
  ledger.arrived(1, &steps);
  ledger.heard({PassageSays::kReady, 0, 1, 100}, &steps);
  uint64_t at = 0, bytes = 0;
  ASSERT_TRUE(ledger.next_piece(1, 100, &at, &bytes));
  ledger.moved(1, 100, &steps);
  ledger.again(1, 40);
  ledger.again(7, 40);  // of an operation that is over
  steps.clear();
  ledger.heard({PassageSays::kDone, 0, 1, 0}, &steps);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].kind, PassageLedger::Step::Kind::kBreak) << "it cannot have them";
  ledger.moved(1, 40, &steps);
  steps.clear();
  ledger.heard({PassageSays::kDone, 0, 1, 0}, &steps);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].kind, PassageLedger::Step::Kind::kEnd);
}

TEST(PassageShape, PartsCoverTheRowsOnce) {
  std::mt19937 draw(5);
  for (int turn = 0; turn < 300; ++turn) {
    PassageShape shape;
    shape.address = 1000;
    shape.width = 1 + draw() % 9;
    shape.height = 1 + draw() % 4;
    shape.depth = 1 + draw() % 3;
    shape.pitch = shape.width + draw() % 3;
    shape.slice = shape.pitch * shape.height + draw() % 5;
    uint64_t bytes = 0, span = 0;
    ASSERT_TRUE(measure(shape, &bytes, &span));
    std::set<uint64_t> seen;
    for (uint64_t at = 0; at < bytes;) {
      const PassagePart part = part_at(shape, at, 1 + draw() % 20);
      ASSERT_NE(0u, part.bytes());
      for (uint64_t row = 0; row < part.rows; ++row) {
        for (uint64_t x = 0; x < part.width; ++x) {
          const uint64_t where = part.address + row * shape.pitch + x;
          EXPECT_TRUE(seen.insert(where).second);
          EXPECT_LT(where - shape.address, span);
        }
      }
      at += part.bytes();
    }
    EXPECT_EQ(bytes, seen.size());
  }
}

TEST(PassageShape, NumbersBeyondAnyMemoryAreRefused) {
  const uint64_t huge = uint64_t{1} << 62;
  uint64_t bytes = 0, span = 0;
  EXPECT_FALSE(measure({0, 0, 1, 1, 0, 0}, &bytes, &span));
  EXPECT_FALSE(measure({0, huge, 1, 1, 0, 0}, &bytes, &span));
  EXPECT_FALSE(measure({0, 4, huge, 1, 4, 0}, &bytes, &span));
  EXPECT_FALSE(measure({0, 1 << 20, 1 << 20, 1 << 20, 1 << 20, huge}, &bytes, &span));
  EXPECT_FALSE(measure({0, 8, 2, 1, 4, 0}, &bytes, &span)) << "rows that overlap";
  EXPECT_FALSE(measure({0, 8, 2, 2, 8, 8}, &bytes, &span)) << "slices that overlap";
}

}  // namespace
}  // namespace tendril::worker::cuda

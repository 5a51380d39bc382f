// SPDX-License-Identifier: Apache-2.0
// The turn policy on simulated time. Each tenant gets what it asked for, to the figures that
// docs/slices.md promises. Random sequences check what must always hold.
#include "lease/turn_policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "lease/turn_simulation.h"

namespace tendril::lease {
namespace {

constexpr uint64_t kUs = 1000;
constexpr uint64_t kPieces[] = {5 * kUs, 500 * kUs, 50 * kMs};

TurnTerms share(double part, bool capped = false, int32_t priority = 0) {
  return {static_cast<uint32_t>(part * 1e6), capped, priority};
}

Load pieces(uint64_t piece_ns, uint64_t gap_ns = 0) {
  Load load;
  load.piece_ns = piece_ns;
  load.gap_ns = gap_ns;
  return load;
}

// How far the delivered part is from the requested one, in points. Work that cannot be interrupted
// has its own grain: an interval holds one piece more or less. A tenant's pieces are measured in
// its first turn, and tenants of 1/76 wait a while for that.
void expect_shares(const TurnSimulation& simulation, const std::vector<double>& asked,
                   uint64_t piece_ns) {
  const double grain = piece_ns > 10 * kMs ? 1.05 * static_cast<double>(piece_ns) / kSecond : 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    EXPECT_NEAR(simulation.delivered(i + 1, 2 * kSecond, 12 * kSecond), asked[i], 0.01 + grain / 10)
        << "tenant " << i << " of " << asked.size() << ", pieces of " << piece_ns;
    const auto [most, least] = simulation.extremes(i + 1, 2 * kSecond, 12 * kSecond, kSecond);
    EXPECT_LE(most, asked[i] + 0.02 + grain) << "tenant " << i << " of " << asked.size();
    EXPECT_GE(least, asked[i] - 0.02 - grain) << "tenant " << i << " of " << asked.size();
  }
}

class Backlogged : public testing::TestWithParam<uint64_t> {};

TEST_P(Backlogged, EqualPartsOfTwoToTwenty) {
  for (int count = 2; count <= 20; ++count) {
    TurnSimulation simulation;
    const std::vector<double> asked(static_cast<size_t>(count), 1.0 / count);
    for (const double part : asked) simulation.add(share(part), pieces(GetParam()));
    simulation.run(12 * kSecond);
    expect_shares(simulation, asked, GetParam());
  }
}

TEST_P(Backlogged, OneFractionAndTheRest) {
  for (const double part : {1. / 20, 1. / 10, 1. / 7, 1. / 4, 1. / 3, 1. / 2, 3. / 4}) {
    for (const int others : {1, 2, 4, 9, 19}) {
      TurnSimulation simulation;
      std::vector<double> asked = {part};
      asked.resize(1 + static_cast<size_t>(others), (1 - part) / others);
      for (const double one : asked) simulation.add(share(one), pieces(GetParam()));
      simulation.run(12 * kSecond);
      expect_shares(simulation, asked, GetParam());
    }
  }
}

TEST_P(Backlogged, OneToNineArrivesAsOneToNine) {
  TurnSimulation simulation;
  const uint64_t small = simulation.add(share(0.1), pieces(GetParam()));
  const uint64_t large = simulation.add(share(0.9), pieces(GetParam()));
  simulation.run(21 * kSecond);
  const double ratio = simulation.delivered(large, kSecond, 21 * kSecond) /
                       simulation.delivered(small, kSecond, 21 * kSecond);
  EXPECT_GE(ratio, 8.5);
  EXPECT_LE(ratio, 9.5);
}

INSTANTIATE_TEST_SUITE_P(Pieces, Backlogged, testing::ValuesIn(kPieces), [](const auto& param) {
  return std::to_string(param.param / kUs) + "us";
});

TEST(TurnPolicy, MixedPiecesGetTheirShares) {
  TurnSimulation simulation;
  const std::vector<double> asked = {0.25, 0.35, 0.15, 0.25};
  const uint64_t lengths[] = {5 * kUs, 50 * kMs, 500 * kUs, 7 * kMs};
  for (size_t i = 0; i < asked.size(); ++i) simulation.add(share(asked[i]), pieces(lengths[i]));
  simulation.run(12 * kSecond);
  expect_shares(simulation, asked, 50 * kMs);
}

// With turns of a quantum, switching costs little of the GPU.
TEST(TurnPolicy, LittleIsLostInSwitching) {
  const std::pair<int, double> floors[] = {{2, 0.97}, {4, 0.95}, {20, 0.90}};
  for (const auto& [count, floor] : floors) {
    TurnSimulation simulation;
    for (int i = 0; i < count; ++i) simulation.add(share(1.0 / count), pieces(500 * kUs));
    simulation.run(11 * kSecond);
    double sum = 0;
    for (int i = 1; i <= count; ++i) sum += simulation.delivered(i, kSecond, 11 * kSecond);
    EXPECT_GE(sum, floor) << count << " tenants";
  }
}

// As measured on an H200: 0.27 ms from one tenant's last kernel to the next one's first.
TEST(TurnPolicy, WithTheSwitchesOfACardSharesAreStillWithinAPoint) {
  TurnSimulation::Costs costs;
  costs.begin_ns = 150 * kUs;
  costs.end_ns = 120 * kUs;
  for (const std::vector<double>& asked :
       std::vector<std::vector<double>>{{0.5, 0.5},
                                        {0.25, 0.75},
                                        {0.1, 0.9},
                                        {1. / 7, 2. / 7, 4. / 7},
                                        {0.25, 0.25, 0.25, 0.25},
                                        std::vector<double>(20, 0.05)}) {
    TurnSimulation simulation(TurnRules{}, costs);
    uint64_t piece_ns = 450 * kUs;
    for (const double part : asked) simulation.add(share(part), pieces(piece_ns += 13 * kUs));
    simulation.run(12 * kSecond);
    for (size_t i = 0; i < asked.size(); ++i) {
      EXPECT_NEAR(simulation.delivered(i + 1, kSecond, 11 * kSecond), asked[i], 0.0101)
          << asked.size();
      const auto [most, least] = simulation.extremes(i + 1, kSecond, 11 * kSecond, kSecond);
      EXPECT_LE(most, asked[i] + 0.02);
      EXPECT_GE(least, asked[i] - 0.02);
    }
  }
}

// No two switches take equally long. Small differences must not decide who is next. Otherwise equal
// tenants would have two turns in a row as often as one, and a second would hold one turn more of
// one of them. The differences must not shift others' turns either.
TEST(TurnPolicy, TenantsAlternateWhateverASwitchTakes) {
  TurnSimulation::Costs costs;
  costs.begin_ns = 60 * kUs;
  costs.end_ns = 40 * kUs;
  costs.jitter_ns = 150 * kUs;
  const std::vector<std::vector<double>> together = {{0.5, 0.5},
                                                     {1. / 3, 1. / 3, 1. / 3},
                                                     {0.25, 0.25, 0.25, 0.25},
                                                     {1. / 3, 2. / 3},
                                                     {0.25, 0.75}};
  for (const std::vector<double>& parts : together) {
    TurnSimulation simulation(TurnRules{}, costs);
    for (const double part : parts) simulation.add(share(part), pieces(568 * kUs));
    simulation.run(21 * kSecond);
    double sum = 0;
    for (size_t i = 1; i <= parts.size(); ++i)
      sum += simulation.delivered(i, kSecond, 21 * kSecond);
    for (size_t i = 1; i <= parts.size(); ++i) {
      const double mean = simulation.delivered(i, kSecond, 21 * kSecond);
      const auto [most, least] = simulation.extremes(i, kSecond, 21 * kSecond, kSecond);
      // A turn has the same price whatever its length, so a tenant with a smaller share pays more.
      EXPECT_NEAR(mean, sum * parts[i - 1], parts[0] == parts[1] ? 0.002 : 0.003) << parts[i - 1];
      EXPECT_LE(most, mean + 0.006) << parts[i - 1];
      EXPECT_GE(least, mean - 0.006) << parts[i - 1];
    }
  }
}

TEST(TurnPolicy, AloneATurnHasNoEnd) {
  TurnSimulation simulation;
  const uint64_t alone = simulation.add(share(0.05), pieces(500 * kUs));
  simulation.run(10 * kSecond);
  EXPECT_EQ(simulation.turns(), 1u);
  EXPECT_GT(simulation.delivered(alone, 0, 10 * kSecond), 0.9999);
}

// The other tenant gets what one does not use, and gives it back.
TEST(TurnPolicy, IdleTimeIsLentAndGivenBackWithinTwentyMilliseconds) {
  TurnSimulation simulation;
  const uint64_t steady = simulation.add(share(0.25), pieces(500 * kUs));
  Load load = pieces(500 * kUs);
  load.from_ns = 2 * kSecond + 3 * kMs;
  load.to_ns = 4 * kSecond;
  const uint64_t guest = simulation.add(share(0.75), load);
  simulation.run(6 * kSecond);
  EXPECT_GT(simulation.delivered(steady, kSecond, 2 * kSecond), 0.999);
  EXPECT_LE(simulation.first_after(guest, 0), load.from_ns + 20 * kMs);
  EXPECT_NEAR(simulation.delivered(guest, load.from_ns + 20 * kMs, 4 * kSecond), 0.75, 0.01);
  EXPECT_GT(simulation.delivered(steady, 4 * kSecond + 20 * kMs, 6 * kSecond), 0.999);
}

TEST(TurnPolicy, SpareTimeIsSplitByShare) {
  TurnSimulation simulation;
  const uint64_t one = simulation.add(share(0.1), pieces(500 * kUs));
  const uint64_t two = simulation.add(share(0.2), pieces(500 * kUs));
  simulation.run(11 * kSecond);
  EXPECT_NEAR(simulation.delivered(one, kSecond, 11 * kSecond), 1. / 3, 0.01);
  EXPECT_NEAR(simulation.delivered(two, kSecond, 11 * kSecond), 2. / 3, 0.01);
}

TEST(TurnPolicy, ACapHoldsAloneAndAmongOthers) {
  for (const uint64_t piece_ns : kPieces) {
    for (const double part : {1. / 20, 1. / 10, 1. / 7, 1. / 4, 1. / 3, 1. / 2, 3. / 4}) {
      for (const bool contended : {false, true}) {
        TurnSimulation simulation;
        const uint64_t capped = simulation.add(share(part, true), pieces(piece_ns));
        const uint64_t other = contended ? simulation.add(share(1 - part), pieces(500 * kUs)) : 0;
        simulation.run(12 * kSecond);
        const double grain = piece_ns > 10 * kMs ? static_cast<double>(piece_ns) / kSecond : 0;
        const double got = simulation.delivered(capped, kSecond, 11 * kSecond);
        EXPECT_LE(simulation.extremes(capped, 0, 12 * kSecond, kSecond).first, part + 0.02 + grain)
            << part << " in pieces of " << piece_ns << (contended ? " beside another" : " alone");
        EXPECT_LE(got, part + 0.01 + grain / 10);
        EXPECT_GE(got, part - 0.01 - grain / 10) << part << " in pieces of " << piece_ns;
        if (contended) {
          EXPECT_GE(simulation.delivered(other, kSecond, 11 * kSecond),
                    1 - part - 0.01 - grain / 10);
        }
      }
    }
  }
}

// Beside a higher class it waits longer than its savings last. A little is lost.
TEST(TurnPolicy, ACapBesideAHigherClass) {
  for (const double part : {0.1, 0.25, 0.5}) {
    TurnSimulation simulation;
    const uint64_t capped = simulation.add(share(part, true), pieces(500 * kUs));
    simulation.add(share(1 - part, false, 2), pieces(500 * kUs));
    simulation.run(12 * kSecond);
    EXPECT_LE(simulation.extremes(capped, 0, 12 * kSecond, kSecond).first, part + 0.02);
    EXPECT_GE(simulation.delivered(capped, kSecond, 11 * kSecond), part - 0.025) << part;
  }
}

// The program rests after each piece. Its cap must not begin again each time.
TEST(TurnPolicy, ACapHoldsForProgramsThatWait) {
  TurnSimulation simulation;
  const uint64_t capped = simulation.add(share(0.25, true), pieces(2 * kMs, 1500 * kUs));
  simulation.run(11 * kSecond);
  EXPECT_LE(simulation.extremes(capped, 0, 11 * kSecond, kSecond).first, 0.27);
  EXPECT_GE(simulation.delivered(capped, kSecond, 11 * kSecond), 0.15);
}

// Each piece is far overdue. It is paid for before the next one, and the policy makes no needless
// look.
TEST(TurnPolicy, ACapHoldsForVeryLongWork) {
  for (const bool contended : {false, true}) {
    TurnSimulation simulation;
    const uint64_t capped = simulation.add(share(0.2, true), pieces(400 * kMs));
    if (contended) simulation.add(share(0.5), pieces(500 * kUs));
    simulation.run(40 * kSecond);
    // Overlapping work runs at full speed here. The charge is what a real GPU would have given.
    const uint64_t used_ns = simulation.policy().use(40 * kSecond, capped).used_ns;
    const double charged = static_cast<double>(used_ns) / (40.0 * kSecond);
    EXPECT_NEAR(charged, 0.2, 0.02) << contended;
    if (!contended) {
      EXPECT_NEAR(simulation.delivered(capped, 4 * kSecond, 40 * kSecond), 0.2, 0.02);
    }
    EXPECT_LT(simulation.decisions(), 40'000u) << contended;
  }
}

TEST(TurnPolicy, TimeNotWantedIsNotSavedUp) {
  TurnSimulation simulation;
  const uint64_t steady = simulation.add(share(0.5), pieces(500 * kUs));
  Load load = pieces(500 * kUs);
  load.from_ns = 5 * kSecond;
  const uint64_t late = simulation.add(share(0.5), load);
  simulation.run(6 * kSecond);
  EXPECT_NEAR(simulation.delivered(late, 5 * kSecond + 50 * kMs, 5 * kSecond + 250 * kMs), 0.5,
              0.06);
  EXPECT_NEAR(simulation.delivered(steady, 5 * kSecond + 50 * kMs, 5 * kSecond + 250 * kMs), 0.5,
              0.06);
}

// The host is late now and then, and its queue is empty for 2 ms. The tenant loses these 2 ms, but
// not what it was owed.
TEST(TurnPolicy, WhoRunsDryForAMomentKeepsWhatItIsOwed) {
  for (const double part : {0.5, 0.75, 0.9, 0.95}) {
    TurnSimulation simulation;
    const uint64_t dry = simulation.add(share(part), pieces(5 * kUs));
    const uint64_t other = simulation.add(share(1 - part), pieces(5 * kUs));
    for (uint64_t at_ns = kSecond; at_ns < 12 * kSecond; at_ns += 61 * kMs)
      simulation.pause(dry, at_ns, at_ns + 2 * kMs);
    simulation.run(12 * kSecond);
    const double lost = part * 2 / 61;
    EXPECT_GE(simulation.delivered(dry, 2 * kSecond, 12 * kSecond), part - lost - 0.01) << part;
    EXPECT_GE(simulation.extremes(dry, 2 * kSecond, 12 * kSecond, kSecond).second,
              part - lost - 0.02)
        << part;
    EXPECT_LE(simulation.extremes(other, 2 * kSecond, 12 * kSecond, kSecond).first,
              1 - part + lost + 0.02)
        << part;
  }
}

// It works for 1 ms and waits for 0.3 ms: alone it would use 77 % of the GPU. Beside a tenant that
// always has more it holds its half, including what it leaves idle within its turns.
TEST(TurnPolicy, AProgramThatWaitsForEachPieceKeepsItsTurns) {
  TurnSimulation simulation;
  const uint64_t waits = simulation.add(share(0.5), pieces(1 * kMs, 300 * kUs));
  const uint64_t other = simulation.add(share(0.5), pieces(500 * kUs));
  simulation.run(11 * kSecond);
  EXPECT_GE(simulation.delivered(waits, kSecond, 11 * kSecond), 0.5 * 0.77 - 0.03);
  EXPECT_NEAR(simulation.delivered(other, kSecond, 11 * kSecond), 0.5, 0.03);
}

// Its pauses are longer than a turn lasts without work. It must not wait for a whole quantum each
// time, because that would leave it one seventh.
TEST(TurnPolicy, AProgramThatPausesIsServedSoonAfter) {
  TurnSimulation simulation;
  const uint64_t pauses = simulation.add(share(0.5), pieces(2 * kMs, 4 * kMs));  // alone: 1/3
  const uint64_t other = simulation.add(share(0.5), pieces(500 * kUs));
  simulation.run(11 * kSecond);
  EXPECT_GE(simulation.delivered(pauses, kSecond, 11 * kSecond), 0.18);
  EXPECT_GE(simulation.delivered(other, kSecond, 11 * kSecond), 0.5);
}

TEST(TurnPolicy, AHigherClassGoesFirstAndGetsNoMore) {
  TurnSimulation simulation;
  const uint64_t high = simulation.add(share(0.5, false, 1), pieces(500 * kUs));
  const uint64_t low = simulation.add(share(0.5), pieces(500 * kUs));
  simulation.run(11 * kSecond);
  EXPECT_NEAR(simulation.delivered(high, kSecond, 11 * kSecond), 0.5, 0.01);
  EXPECT_NEAR(simulation.delivered(low, kSecond, 11 * kSecond), 0.5, 0.01);
}

// Requests of 300 us beside a tenant that always has more: their longest and median wait.
struct Waits {
  uint64_t median_ns, p99_ns;
};
Waits waits_of(int32_t priority, uint64_t gap_ns, int others) {
  TurnSimulation::Costs costs;
  costs.linger_ns = 50 * kUs;  // the worker learns how long its program's pauses are
  TurnSimulation simulation(TurnRules{}, costs);
  const double part = 1.0 / (1 + others);
  const Load load = pieces(300 * kUs, gap_ns);
  const uint64_t asks = simulation.add(share(part, false, priority), load);
  for (int i = 0; i < others; ++i) simulation.add(share(part), pieces(500 * kUs));
  simulation.run(11 * kSecond);
  const std::vector<uint64_t> starts = simulation.starts(asks);
  std::vector<uint64_t> waits;
  for (size_t i = 1; i < starts.size(); ++i)
    waits.push_back(starts[i] - starts[i - 1] - load.piece_ns - gap_ns);
  std::sort(waits.begin(), waits.end());
  EXPECT_GT(waits.size(), 100u);
  return {waits[waits.size() / 2], waits[waits.size() * 99 / 100]};
}

TEST(TurnPolicy, AHigherClassCutsTheRunningTurn) {
  for (const uint64_t gap_ns : {2 * kMs, 20 * kMs}) {
    for (const int others : {1, 3}) {
      const Waits waits = waits_of(1, gap_ns, others);
      EXPECT_LE(waits.p99_ns, 1800 * kUs)
          << others << " others";  // a window, a piece, and a switch
    }
  }
}

// Without a higher class, too, a tenant that asks for little is due sooner than one that asks for
// whole turns.
TEST(TurnPolicy, WhoAsksForLittleIsServedSoon) {
  for (const uint64_t gap_ns : {2 * kMs, 20 * kMs}) {
    for (const int others : {1, 3})
      EXPECT_LE(waits_of(0, gap_ns, others).median_ns, 3 * kMs) << others << " others";
  }
}

TEST(TurnPolicy, AHigherClassThatIsAheadWaitsItsTurn) {
  TurnSimulation simulation;
  const uint64_t high =
      simulation.add(share(0.1, false, 5), pieces(3 * kMs, 2 * kMs));  // alone: 60 %
  const uint64_t low = simulation.add(share(0.9), pieces(500 * kUs));
  simulation.run(11 * kSecond);
  EXPECT_LE(simulation.delivered(high, kSecond, 11 * kSecond), 0.12);
  EXPECT_GE(simulation.delivered(low, kSecond, 11 * kSecond), 0.85);
}

TEST(TurnPolicy, AnOverrunIsADebt) {
  TurnSimulation simulation;
  const uint64_t rude = simulation.add(share(0.5), pieces(40 * kMs));
  const uint64_t polite = simulation.add(share(0.5), pieces(500 * kUs));
  simulation.run(11 * kSecond);
  EXPECT_NEAR(simulation.delivered(rude, kSecond, 11 * kSecond), 0.5, 0.01);
  EXPECT_NEAR(simulation.delivered(polite, kSecond, 11 * kSecond), 0.5, 0.01);
}

// Two long pieces at a time, more than the grace. The others run beside it, and none is shut out.
TEST(TurnPolicy, LongPiecesTwoAtATime) {
  TurnSimulation simulation;
  Load load = pieces(50 * kMs);
  load.in_flight = 2;
  const uint64_t small = simulation.add(share(0.1), load);
  const uint64_t large = simulation.add(share(0.9), load);
  simulation.run(22 * kSecond);
  const double ratio = simulation.delivered(large, 2 * kSecond, 22 * kSecond) /
                       simulation.delivered(small, 2 * kSecond, 22 * kSecond);
  EXPECT_GE(ratio, 7);
  EXPECT_LE(ratio, 11);
  EXPECT_GE(simulation.extremes(small, 2 * kSecond, 22 * kSecond, 2 * kSecond).second, 0.05);
}

// A kernel that does not end. The others continue beside it. A tenant that comes meanwhile does not
// pay for it.
TEST(TurnPolicy, WhoDoesNotDrainLosesExclusivenessAndPays) {
  TurnSimulation simulation;
  Load once = pieces(3 * kSecond);
  once.from_ns = kSecond;
  once.to_ns = kSecond + 30 * kMs;
  const uint64_t stuck = simulation.add(share(0.4), once);
  const uint64_t other = simulation.add(share(0.3), pieces(500 * kUs));
  Load later = pieces(500 * kUs);
  later.from_ns = 2 * kSecond;
  const uint64_t late = simulation.add(share(0.3), later);
  simulation.run(6 * kSecond);
  EXPECT_LE(simulation.first_after(other, kSecond + 10 * kMs), kSecond + 160 * kMs);
  EXPECT_LE(simulation.first_after(late, 0), 2 * kSecond + 30 * kMs);
  EXPECT_NEAR(simulation.delivered(late, 2100 * kMs, 4 * kSecond), 0.5, 0.02);
  EXPECT_GT(simulation.delivered(other, 2100 * kMs, 4 * kSecond), 0.45);
  EXPECT_GE(simulation.policy().use(6 * kSecond, stuck).used_ns, 1300 * kMs);
}

// Its work ends only when it submits more (a stream that waits for another's event). It must be
// able to do so.
TEST(TurnPolicy, WhoIsOverdueIsLetInNowAndThen) {
  TurnPolicy policy(TurnRules{});
  policy.add(0, 1, share(0.5));
  policy.add(0, 2, share(0.5));
  policy.set_wanting(0, 1, true);
  policy.set_wanting(0, 2, true);
  std::vector<uint64_t> resumed_ns;
  uint64_t drains_ns = UINT64_MAX;
  for (uint64_t now_ns = 0; now_ns < kSecond; now_ns += kMs) {
    if (now_ns >= drains_ns) {
      policy.drained(now_ns, 2);
      drains_ns = UINT64_MAX;
    }
    for (const TurnPolicy::Turn& turn : policy.decide(now_ns)) {
      if (turn.tenant == 1 && turn.begins) resumed_ns.push_back(now_ns);
      if (turn.tenant == 2) drains_ns = turn.until_ns;
    }
  }
  ASSERT_GT(resumed_ns.size(), 5u);
  for (size_t i = 1; i < resumed_ns.size(); ++i)
    EXPECT_LE(resumed_ns[i] - resumed_ns[i - 1], 160 * kMs);
  EXPECT_GE(policy.use(kSecond, 2).used_ns, kSecond / 4);
}

// Twenty tenants come one after another, two at a time. The first launch of one of them takes the
// driver 80 ms, in which it loads code. `excused_ns`: how much of that is reported as no work.
uint64_t longest_wait_after_loading(uint64_t begin_ns, uint64_t excused_ns) {
  TurnSimulation simulation;
  Load load = pieces(500 * kUs);
  load.from_ns = begin_ns;
  for (int i = 0; i < 20; ++i) simulation.add(share(0.05), load);
  TurnPolicy& policy = simulation.policy();
  for (uint64_t one = 1; one < 20; one += 2) {
    const uint64_t at_ns = one * 150 * kMs, done_ns = at_ns + 90 * kMs,
                   over_ns = done_ns + 12 * kMs;
    simulation.at(at_ns, [&policy, at_ns, one] {
      for (const uint64_t tenant : {one, one + 1}) policy.set_wanting(at_ns, tenant, true);
      policy.decide(at_ns);
    });
    simulation.at(done_ns, [&policy, done_ns, one, excused_ns] {
      policy.drained(done_ns, one, excused_ns);
      policy.set_wanting(done_ns, one, false);
      policy.decide(done_ns);
    });
    simulation.at(over_ns, [&policy, over_ns, one] {
      policy.set_wanting(over_ns, one + 1, false);
      policy.drained(over_ns, one + 1);
    });
  }
  simulation.run(begin_ns + 5 * kSecond);
  uint64_t longest_ns = 0;
  for (uint64_t tenant = 1; tenant <= 20; ++tenant)
    longest_ns = std::max(longest_ns, simulation.first_after(tenant, begin_ns) - begin_ns);
  return longest_ns;
}

TEST(TurnPolicy, TimeInWhichTheDriverLoadedCodeIsNoDebt) {
  EXPECT_LE(longest_wait_after_loading(3200 * kMs, 80 * kMs), 200 * kMs);
  EXPECT_GE(longest_wait_after_loading(3200 * kMs, 0),
            1000 * kMs);  // 90 ms are 1.8 s worth of a twentieth
}

TEST(TurnPolicy, ADebtGrowsOldWhileNobodyWantsTheGpu) {
  EXPECT_LE(longest_wait_after_loading(5 * kSecond, 0), 200 * kMs);
}

TEST(TurnPolicy, WhatIsExcusedIsNeverMoreThanTheTurn) {
  TurnPolicy policy(TurnRules{});
  policy.add(0, 1, share(0.5));
  policy.set_wanting(0, 1, true);
  ASSERT_EQ(policy.decide(0).size(), 1u);
  policy.drained(4 * kMs, 1, kSecond);
  EXPECT_EQ(policy.use(4 * kMs, 1).used_ns, 0u);
  ASSERT_EQ(policy.decide(4 * kMs).size(), 1u);
  policy.drained(7 * kMs, 1, kMs);
  EXPECT_EQ(policy.use(7 * kMs, 1).used_ns, 2 * kMs);
}

TEST(TurnPolicy, WhatRanInAnothersTurnIsTakenFromIt) {
  TurnPolicy policy(TurnRules{});
  for (const uint64_t tenant : {1, 2}) {
    policy.add(0, tenant, share(0.5));
    policy.set_wanting(0, tenant, true);
  }
  ASSERT_EQ(policy.decide(0)[0].tenant, 1u);
  policy.drained(4 * kMs, 1);
  ASSERT_EQ(policy.decide(4 * kMs)[0].tenant, 2u);
  policy.drained(10 * kMs, 2);
  ASSERT_EQ(policy.decide(10 * kMs)[0].tenant, 1u);
  policy.charge(11 * kMs, 1, 2 * kMs);
  EXPECT_EQ(policy.use(11 * kMs, 1).used_ns, 7 * kMs);
  EXPECT_EQ(policy.use(11 * kMs, 2).used_ns, 4 * kMs);
  policy.charge(11 * kMs, 1, kSecond);  // at most what there was
  EXPECT_EQ(policy.use(11 * kMs, 1).used_ns, 11 * kMs);
  EXPECT_EQ(policy.use(11 * kMs, 2).used_ns, 0u);
}

// The tenant's lease has another GPU now. It goes before the tenant that is due, and ends a turn
// that has lasted a while. But it gets only its share.
TEST(TurnPolicy, AClaimGoesFirstAndGetsNoMore) {
  TurnPolicy policy(TurnRules{});
  for (const uint64_t tenant : {1, 2, 3}) {
    policy.add(0, tenant, share(1. / 3));
    policy.set_wanting(0, tenant, true);
  }
  ASSERT_EQ(policy.decide(0)[0].tenant, 1u);
  EXPECT_EQ(policy.ending().next, 2u);
  EXPECT_TRUE(policy.claim(kMs, 3, TurnPolicy::Cut::kSoon));
  EXPECT_EQ(policy.ending().next, 3u);
  const auto moved = policy.decide(kMs);
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(moved[0].until_ns, TurnRules{}.cut_ns);
  policy.drained(3 * kMs, 1);
  ASSERT_EQ(policy.decide(3 * kMs)[0].tenant, 3u);
  uint64_t used_ns = 0;
  bool claims = true;
  for (uint64_t at_ns = 3 * kMs; claims && at_ns < kSecond; at_ns += 5 * kMs) {
    policy.cut(at_ns, 3);
    policy.drained(at_ns, 3);
    claims = policy.claim(at_ns, 3, TurnPolicy::Cut::kNow);
    if (claims) {
      ASSERT_EQ(policy.decide(at_ns)[0].tenant, 3u);
    }
    used_ns = policy.use(at_ns, 3).used_ns;
  }
  EXPECT_FALSE(claims);  // the tenant is ahead by a turn
  EXPECT_LE(used_ns, 30 * kMs);
}

TEST(TurnPolicy, SharesChangeWhileTheyRun) {
  TurnSimulation simulation;
  const uint64_t one = simulation.add(share(0.5), pieces(500 * kUs));
  const uint64_t two = simulation.add(share(0.5), pieces(500 * kUs));
  simulation.at(3 * kSecond, [&] { simulation.policy().change(3 * kSecond, one, share(0.2)); });
  simulation.at(3 * kSecond, [&] { simulation.policy().change(3 * kSecond, two, share(0.8)); });
  simulation.at(6 * kSecond,
                [&] { simulation.policy().change(6 * kSecond, two, share(0.3, true)); });
  simulation.at(9 * kSecond, [&] { simulation.policy().change(9 * kSecond, two, share(0.8)); });
  simulation.run(12 * kSecond);
  EXPECT_NEAR(simulation.delivered(one, kSecond, 3 * kSecond), 0.5, 0.01);
  EXPECT_NEAR(simulation.delivered(one, 3100 * kMs, 6 * kSecond), 0.2, 0.01);
  EXPECT_NEAR(simulation.delivered(two, 6100 * kMs, 9 * kSecond), 0.3, 0.01);
  EXPECT_GE(simulation.delivered(one, 6100 * kMs, 9 * kSecond), 0.68);
  EXPECT_NEAR(simulation.delivered(two, 9100 * kMs, 12 * kSecond), 0.8, 0.01);
}

TEST(TurnPolicy, WhoGoesLeavesItsTimeToTheOthers) {
  TurnSimulation simulation;
  const uint64_t goes = simulation.add(share(0.5), pieces(500 * kUs));
  const uint64_t stays = simulation.add(share(0.5), pieces(500 * kUs));
  simulation.at(2 * kSecond, [&] { simulation.policy().remove(2 * kSecond, goes); });
  simulation.run(4 * kSecond);
  EXPECT_GT(simulation.delivered(stays, 2 * kSecond + 20 * kMs, 4 * kSecond), 0.999);
}

TEST(TurnPolicy, WaitingAndUseAreCounted) {
  TurnPolicy policy(TurnRules{});
  policy.add(0, 1, share(0.5));
  policy.add(0, 2, share(0.5));
  policy.set_wanting(0, 1, true);
  ASSERT_EQ(policy.decide(0).size(), 1u);
  policy.set_wanting(4 * kMs, 2, true);
  const auto moved = policy.decide(4 * kMs);
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(moved[0].tenant, 1u);
  EXPECT_EQ(moved[0].until_ns, 16'600 * kUs);
  EXPECT_FALSE(moved[0].begins);
  policy.drained(17 * kMs, 1);
  const auto next = policy.decide(17 * kMs);
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].tenant, 2u);
  EXPECT_EQ(policy.use(17 * kMs, 1).used_ns, 17 * kMs);
  EXPECT_EQ(policy.use(17 * kMs, 2).waited_ns, 13 * kMs);
}

// A gang's part here. What it has elsewhere has its turns in the same windows.
TEST(TurnPolicy, AGangHasItsTurnInItsWindowsAndWhatNobodyWants) {
  TurnRules rules;
  rules.preempts = true;
  TurnPolicy policy(rules);
  for (const uint64_t tenant : {1, 2}) {
    policy.add(0, tenant, share(0.5));
    policy.set_wanting(0, tenant, true);
  }
  policy.open_window(0, 1, 10 * kMs, 30 * kMs);
  auto turns = policy.decide(0);
  ASSERT_EQ(turns.size(), 1u);
  EXPECT_EQ(turns[0].tenant, 1u);
  EXPECT_EQ(turns[0].until_ns, 10 * kMs);
  // Work that is not over loses the GPU, and has it again in the next window.
  EXPECT_EQ(policy.look_again_ns(), 10 * kMs);
  turns = policy.decide(10 * kMs);
  ASSERT_EQ(turns.size(), 1u);
  EXPECT_EQ(turns[0].tenant, 2u);
  EXPECT_EQ(turns[0].until_ns, 30 * kMs) << "longer than its quantum, but not into the window";
  EXPECT_TRUE(policy.use(10 * kMs, 1).preempted);
  policy.open_window(30 * kMs, 1, 40 * kMs, 60 * kMs);
  turns = policy.decide(30 * kMs);
  ASSERT_EQ(turns.size(), 1u);
  EXPECT_EQ(turns[0].tenant, 1u);
  EXPECT_EQ(turns[0].until_ns, 40 * kMs);
  EXPECT_EQ(policy.use(30 * kMs, 1).used_ns, 10 * kMs);
  // Alone it needs no window.
  policy.drained(35 * kMs, 1);
  policy.drained(40 * kMs, 2);
  policy.set_wanting(40 * kMs, 2, false);
  turns = policy.decide(45 * kMs);
  ASSERT_EQ(turns.size(), 1u);
  EXPECT_EQ(turns[0].tenant, 1u);
  EXPECT_EQ(turns[0].until_ns, TurnPolicy::kNever);
}

// Everything at random: wants, ends of turns, changes, comings and goings.
class RandomSequence {
 public:
  RandomSequence(uint32_t seed, bool preempts, bool with_gangs)
      : random_(seed), policy_(rules(preempts)), with_gangs_(with_gangs) {}
  void run();

 private:
  struct Model {
    TurnTerms terms;
    bool wanting = false, holding = false, late = false;
    uint64_t until_ns = 0, granted_ns = 0, used_ns = 0, came_ns = 0;
    uint64_t waiting_since_ns = 0;
  };
  static TurnRules rules(bool preempts) {
    TurnRules rules;
    rules.preempts = preempts;
    return rules;
  }
  void act();
  void decide();
  void check();
  uint32_t pick(uint32_t below) { return static_cast<uint32_t>(random_() % below); }
  Model* any(uint64_t* id) {
    if (tenants_.empty()) return nullptr;
    auto at = std::next(tenants_.begin(), pick(static_cast<uint32_t>(tenants_.size())));
    *id = at->first;
    return &at->second;
  }
  TurnTerms terms() { return {1 + pick(400'000), pick(4) == 0, static_cast<int32_t>(pick(3)) - 1}; }

  std::mt19937 random_;
  TurnPolicy policy_;
  const bool with_gangs_;
  uint64_t now_ns_ = 0, next_id_ = 1;
  std::map<uint64_t, Model> tenants_;
};

void RandomSequence::act() {
  uint64_t id = 0;
  Model* const model = any(&id);
  const uint32_t what = pick(20);
  if (model == nullptr || (what == 0 && tenants_.size() < 12)) {
    const TurnTerms asked = terms();
    tenants_[next_id_].terms = asked;
    tenants_[next_id_].came_ns = now_ns_;
    policy_.add(now_ns_, next_id_++, asked);
  } else if (what == 1) {
    policy_.remove(now_ns_, id);
    tenants_.erase(id);
  } else if (what == 2) {
    model->terms = terms();
    policy_.change(now_ns_, id, model->terms);
  } else if (what == 3) {
    policy_.claim(now_ns_, id, static_cast<TurnPolicy::Cut>(pick(3)));
    const uint64_t end_ns = now_ns_ + pick(20 * kMs);
    if (with_gangs_ && id % 3 == 0)
      policy_.open_window(now_ns_, id, end_ns, end_ns + pick(20 * kMs));
  } else if (what == 4) {
    policy_.cut(now_ns_, id);
    if (pick(2) == 0) policy_.disclaim(id);
  } else if (what < 10) {
    model->wanting = pick(3) != 0;
    policy_.set_wanting(now_ns_, id, model->wanting);
  } else {
    for (auto& [holder, state] : tenants_) {
      // Now and then a tenant does not drain for a long time.
      if (!state.holding || (state.until_ns > now_ns_ && state.wanting) || pick(40) == 0) continue;
      state.holding = false;
      state.used_ns += now_ns_ - state.granted_ns;
      policy_.drained(now_ns_, holder);
    }
  }
}

void RandomSequence::decide() {
  for (const TurnPolicy::Turn& turn : policy_.decide(now_ns_)) {
    ASSERT_EQ(tenants_.count(turn.tenant), 1u);
    Model& model = tenants_[turn.tenant];
    ASSERT_GE(turn.until_ns, now_ns_);
    ASSERT_TRUE(turn.begins || model.holding);
    if (turn.begins) {
      ASSERT_TRUE(model.wanting);
      if (!model.holding) model.granted_ns = now_ns_;
      model.holding = true;
    }
    model.until_ns = turn.until_ns;
  }
}

void RandomSequence::check() {
  uint32_t exclusive = 0, waiting = 0;
  uint64_t used_ns = 0;
  for (auto& [id, model] : tenants_) {
    const TurnPolicy::Use use = policy_.use(now_ns_, id);
    const uint64_t grace_ns = TurnRules{}.grace_ns;
    model.late =
        model.holding && (model.late || now_ns_ - std::min(now_ns_, model.until_ns) >= grace_ns);
    ASSERT_EQ(use.holding, model.holding);
    const uint64_t running_ns = model.holding ? now_ns_ - model.granted_ns : 0;
    ASSERT_LE(use.used_ns, model.used_ns + running_ns + 1);
    ASSERT_LE(use.used_ns + use.waited_ns, now_ns_ - model.came_ns + 1);
    used_ns += use.used_ns;
    if (use.overdue) {
      ASSERT_TRUE(model.late) << "it was in time";
    }
    exclusive += use.holding && !use.overdue && !use.preempted;
    waiting += model.wanting && !model.holding && !model.terms.capped;
  }
  ASSERT_LE(exclusive, 1u);
  ASSERT_LE(used_ns, now_ns_ + 100'000) << "more was charged than there is";
  if (waiting != 0) {
    ASSERT_EQ(exclusive, 1u) << "somebody waits and the GPU is idle";
  }
}

void RandomSequence::run() {
  for (int step = 0; step < 20'000; ++step) {
    now_ns_ += pick(4) == 0 ? pick(30 * kMs) : pick(1 * kMs);
    for (uint32_t i = 0; i <= pick(3); ++i) act();
    decide();
    for (int again = 0; again < 3 && policy_.look_again_ns() <= now_ns_; ++again) decide();
    ASSERT_GT(policy_.look_again_ns(), now_ns_) << "it would be asked for ever";
    check();
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(TurnPolicy, RandomSequencesKeepWhatMustHold) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    RandomSequence(seed, seed % 2 == 0, seed % 3 == 0).run();
    if (HasFatalFailure()) return;
  }
}

// Random tenants with any kind of load, beside one that always has more. That one gets its share of
// any half second, whatever the others do and however often their terms change. Less only by what
// higher classes and tenants with a claim may be ahead.
TEST(TurnPolicy, NobodyStarvesWhateverTheNeighboursDo) {
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    std::mt19937 random(seed);
    TurnSimulation simulation;
    const double asked = 0.1 + 0.01 * (random() % 40);
    const uint64_t watched = simulation.add(share(asked), pieces(100 * kUs));
    const uint32_t others = 1 + random() % 8;
    for (uint32_t i = 0; i < others; ++i) {
      Load load = pieces(10 * kUs + random() % (8 * kMs), random() % 2 * (random() % (15 * kMs)));
      load.from_ns = random() % kSecond;
      if (random() % 2 == 0) load.to_ns = load.from_ns + random() % (10 * kSecond);
      const bool capped = random() % 3 == 0;
      const uint64_t id =
          simulation.add(share((1 - asked) / others, capped, static_cast<int>(random() % 3)), load);
      for (uint64_t at_ns = 100 * kMs; at_ns < 10 * kSecond;
           at_ns += 100 * kMs + random() % kSecond) {
        const TurnTerms terms = share((1 - asked) / others, capped, static_cast<int>(random() % 3));
        simulation.at(at_ns, [&simulation, id, at_ns, terms] {
          simulation.policy().change(at_ns, id, terms);
        });
      }
      for (uint64_t at_ns = kSecond; at_ns < 10 * kSecond;
           at_ns += 5 * kMs + random() % (100 * kMs)) {
        const auto cut = static_cast<TurnPolicy::Cut>(random() % 2);
        simulation.at(at_ns,
                      [&simulation, id, at_ns, cut] { simulation.policy().claim(at_ns, id, cut); });
      }
    }
    simulation.run(10 * kSecond);
    EXPECT_GE(simulation.extremes(watched, 0, 10 * kSecond, kSecond / 2).second, asked - 0.11)
        << "seed " << seed << ", asked " << asked << ", others " << others;
    EXPECT_GE(simulation.delivered(watched, 0, 10 * kSecond), asked - 0.02) << "seed " << seed;
  }
}

}  // namespace
}  // namespace tendril::lease

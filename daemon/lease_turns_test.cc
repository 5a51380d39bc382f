// SPDX-License-Identifier: Apache-2.0
// Leases with several GPUs on simulated time: a program whose calls go in one order works on one GPU only for as long as it
// is not stopped at another. What Arbiter::claim_others, cut_others and lapse_claims do between GPUs, and what a worker's gate
// does while a piece waits, is repeated here in little; the policy is the real one.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

#include "daemon/turn_policy.h"

namespace tendril::daemon {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;
constexpr uint64_t kTickNs = 50 * kUs, kWindowNs = kMs, kLingerNs = kMs, kAwaitNs = 20 * kMs, kAnnounceNs = kMs;
constexpr uint64_t kPieces[] = {100 * kUs, kMs, 5 * kMs};
enum class Wants { kNothing, kTurn, kTurnToo };

// A slice of a lease, with what its worker knows of it and what tendrild does.
struct Part {
  uint32_t gpu = 0;
  TurnPolicy::Tenant id = 0;
  bool held = false, gave_up = false, used = false, claims = false;
  size_t claims_with = 0;
  uint64_t seen_ns = 0, until_ns = 0, await_ns = 0, idle_since_ns = 0;
  Wants wants = Wants::kNothing;
  std::deque<uint64_t> queue;  // what is left of each piece
  uint64_t had_ns = 0;

  uint64_t unfinished_ns() const {
    uint64_t sum_ns = 0;
    for (const uint64_t left_ns : queue) sum_ns += left_ns;
    return sum_ns;
  }
};

// Always has more pieces, for its slices in turn, and submits them in that order.
struct Lease {
  std::vector<Part> parts;
  uint64_t piece_ns = 0;
  size_t next = 0;        // the slice of the next piece
  bool waits = false;     // that piece does
  uint64_t blocked_ns = 0;  // since when, without a turn; 0: it is not so
};

class LeaseSimulation {
 public:
  explicit LeaseSimulation(size_t gpus, bool together = true) : together_(together), gpus_(gpus), random_(1) {}

  size_t add(double share, uint64_t piece_ns, const std::vector<uint32_t>& gpus) {
    Lease lease;
    lease.piece_ns = piece_ns;
    for (const uint32_t gpu : gpus) {
      Part part;
      part.gpu = gpu;
      part.id = ++ids_;
      lease.parts.push_back(part);
      gpus_[gpu].policy.add(0, part.id, {static_cast<uint32_t>(share * 1e6), false, 0});
    }
    leases_.push_back(lease);
    return leases_.size() - 1;
  }
  void run(uint64_t until_ns) {
    for (; now_ns_ < until_ns; now_ns_ += kTickNs) {
      for (Lease& lease : leases_) submit(&lease);
      for (Lease& lease : leases_) hear(&lease);
      for (int again = 0; again < 2; ++again) {
        for (uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) settle(gpu);
      }
      for (uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) work(gpu);
    }
  }
  // Of the time so far.
  double delivered(size_t lease, size_t slice = 0) const { return part_of(leases_[lease].parts[slice].had_ns); }
  double unused(uint32_t gpu) const { return part_of(gpus_[gpu].idle_ns); }
  // From here on.
  void forget() {
    for (Lease& lease : leases_) {
      for (Part& part : lease.parts) part.had_ns = 0;
    }
    for (Gpu& gpu : gpus_) gpu.idle_ns = 0;
    since_ns_ = now_ns_;
  }

 private:
  struct Gpu {
    TurnPolicy policy{TurnRules{}};
    uint64_t idle_ns = 0, announced_ns = 0, prepared_ns = 0;
  };
  double part_of(uint64_t ns) const { return static_cast<double>(ns) / static_cast<double>(now_ns_ - since_ns_); }
  bool sees(const Part& part) const { return part.held && now_ns_ >= part.seen_ns; }
  uint64_t about(uint64_t ns) { return ns * (80 + random_() % 41) / 100; }

  // ---- The worker ----
  bool may_pass(const Part& part, uint64_t piece_ns) const {
    const uint64_t unfinished_ns = part.unfinished_ns();
    if (!sees(part) || (part.until_ns != TurnPolicy::kNever && now_ns_ + unfinished_ns >= part.until_ns)) return false;
    if (unfinished_ns + piece_ns <= kWindowNs || part.queue.empty()) return true;
    return part.queue.size() == 1 && unfinished_ns <= 4 * kWindowNs;
  }
  void submit(Lease* lease) {
    const size_t before = lease->next;
    lease->waits = false;
    for (int most = 0; most < 100; ++most) {
      Part& part = lease->parts[lease->next];
      if (!may_pass(part, lease->piece_ns)) {
        lease->waits = true;
        if (!part.held) part.wants = Wants::kTurn;
        break;
      }
      part.queue.push_back(about(lease->piece_ns));
      part.used = true;
      part.wants = Wants::kTurn;
      lease->next = (lease->next + 1) % lease->parts.size();
    }
    const bool blocked = lease->waits && !sees(lease->parts[lease->next]);
    if (!blocked || lease->next != before || lease->blocked_ns == 0) lease->blocked_ns = blocked ? now_ns_ : 0;
    for (size_t slice = 0; slice < lease->parts.size(); ++slice) look(lease, slice);
  }
  void look(Lease* lease, size_t slice) const {
    Part& part = lease->parts[slice];
    if (!sees(part) || !part.queue.empty()) return;
    const bool waits = lease->waits && lease->next == slice, blocked = lease->blocked_ns != 0;
    if (blocked && now_ns_ - lease->blocked_ns < part.await_ns) part.idle_since_ns = now_ns_;
    const bool over = part.until_ns != TurnPolicy::kNever && now_ns_ >= part.until_ns;
    if (!over && (waits || now_ns_ - std::max(part.idle_since_ns, part.seen_ns) < kLingerNs)) return;
    part.held = false;
    part.gave_up = true;
    const bool too = together_ && lease->waits && (part.used || blocked);
    part.wants = waits ? Wants::kTurn : too ? Wants::kTurnToo : Wants::kNothing;
    part.used = false;
  }

  // ---- tendrild ----
  void hear(Lease* lease) {
    for (Part& part : lease->parts) {
      if (!part.gave_up) continue;
      part.gave_up = false;
      gpus_[part.gpu].policy.drained(now_ns_, part.id);
      read(&part);
    }
  }
  void read(Part* part) {
    const bool wanting = part->wants == Wants::kTurn || (part->wants == Wants::kTurnToo && part->claims);
    gpus_[part->gpu].policy.set_wanting(now_ns_, part->id, wanting);
  }
  Part* find(TurnPolicy::Tenant id, Lease** of) {
    for (Lease& lease : leases_) {
      for (Part& part : lease.parts) {
        if (part.id != id) continue;
        *of = &lease;
        return &part;
      }
    }
    return nullptr;
  }
  uint32_t lowest_held(const Lease& lease) const {
    uint32_t lowest = UINT32_MAX;
    for (const Part& part : lease.parts) {
      if (part.held && part.until_ns > now_ns_) lowest = std::min(lowest, part.gpu);
    }
    return lowest;
  }
  // Of those with several GPUs: the one that holds this one.
  const Lease* gang_on(uint32_t gpu, const Lease* but) const {
    for (const Lease& lease : leases_) {
      for (const Part& part : lease.parts) {
        if (&lease != but && lease.parts.size() > 1 && part.gpu == gpu && part.held) return &lease;
      }
    }
    return nullptr;
  }
  void claim_others(Lease* lease, const Part& first, bool cut) {
    if (!together_ || lease->parts.size() == 1) return;
    const uint32_t lowest = std::min(first.gpu, lowest_held(*lease));
    bool awaits = false;
    for (Part& other : lease->parts) {
      if (&other == &first || other.held || other.wants == Wants::kNothing) continue;
      const Lease* const gang = gang_on(other.gpu, lease);
      if (gang != nullptr && lowest_held(*gang) < lowest) continue;
      other.claims = true;
      other.claims_with = static_cast<size_t>(&first - lease->parts.data());
      read(&other);
      const TurnPolicy::Cut how = !cut              ? TurnPolicy::Cut::kNone
                                  : gang != nullptr ? TurnPolicy::Cut::kNow
                                                    : TurnPolicy::Cut::kSoon;
      awaits |= gpus_[other.gpu].policy.claim(now_ns_, other.id, how);
    }
    for (Part& part : lease->parts) {
      if (awaits && part.held) part.await_ns = kAwaitNs;
    }
  }
  void lapse_claims(uint32_t gpu) {
    for (Lease& lease : leases_) {
      for (Part& part : lease.parts) {
        if (part.gpu != gpu || !part.claims) continue;
        const Part& with = lease.parts[part.claims_with];
        const TurnPolicy::Ending ending = gpus_[with.gpu].policy.ending();
        if (with.held || (ending.until_ns != TurnPolicy::kNever && ending.next == with.id)) continue;
        part.claims = false;
        gpus_[gpu].policy.disclaim(part.id);
        read(&part);
      }
    }
  }
  void begin(Lease* lease, Part* part) {
    part->held = true;
    part->claims = false;
    part->await_ns = 0;
    part->seen_ns = now_ns_ + kTickNs * (1 + random_() % 4);
    claim_others(lease, *part, true);
  }
  void prepare(Gpu* gpu) {
    const TurnPolicy::Ending ending = gpu->policy.ending();
    if (ending.until_ns == TurnPolicy::kNever || now_ns_ + kAnnounceNs < ending.until_ns) return;
    Lease* lease = nullptr;
    const Part* const next = find(ending.next, &lease);
    if (gpu->announced_ns != ending.until_ns) claim_others(lease, *next, false);
    gpu->announced_ns = ending.until_ns;
    if (now_ns_ < ending.until_ns || gpu->prepared_ns == ending.until_ns) return;
    gpu->prepared_ns = ending.until_ns;
    cut_others(gpu);
    claim_others(lease, *next, true);
  }
  void cut_others(const Gpu* ended) {
    for (Lease& lease : leases_) {
      const auto holds = [&](const Part& part) { return part.held && &gpus_[part.gpu] == ended; };
      if (!together_ || std::none_of(lease.parts.begin(), lease.parts.end(), holds)) continue;
      for (Part& other : lease.parts) {
        if (other.held && !holds(other)) gpus_[other.gpu].policy.cut(now_ns_, other.id);
      }
    }
  }
  void settle(uint32_t index) {
    Gpu& gpu = gpus_[index];
    lapse_claims(index);
    for (Lease& lease : leases_) {
      for (Part& part : lease.parts) {
        if (part.gpu == index) read(&part);
      }
    }
    for (const TurnPolicy::Turn& turn : gpu.policy.decide(now_ns_)) {
      Lease* lease = nullptr;
      Part* const part = find(turn.tenant, &lease);
      part->until_ns = turn.until_ns;
      if (!part->held) begin(lease, part);
    }
    prepare(&gpu);
  }

  // ---- The GPU ----
  void work(uint32_t index) {
    Part* running = nullptr;
    for (Lease& lease : leases_) {
      for (Part& part : lease.parts) {
        if (part.gpu == index && !part.queue.empty()) running = &part;
      }
    }
    if (running == nullptr) gpus_[index].idle_ns += kTickNs;
    for (uint64_t left_ns = kTickNs; running != nullptr && left_ns != 0 && !running->queue.empty();) {
      const uint64_t some_ns = std::min(left_ns, running->queue.front());
      running->queue.front() -= some_ns;
      running->had_ns += some_ns;
      left_ns -= some_ns;
      if (running->queue.front() == 0) running->queue.pop_front();
      running->idle_since_ns = now_ns_ + kTickNs;
    }
  }

  const bool together_;
  uint64_t now_ns_ = 0, since_ns_ = 0, ids_ = 0;
  std::vector<Gpu> gpus_;
  std::vector<Lease> leases_;
  std::mt19937 random_;
};

class SeveralGpus : public testing::TestWithParam<uint64_t> {
 protected:
  static void run(LeaseSimulation* simulation) {
    simulation->run(kSecond);
    simulation->forget();
    simulation->run(6 * kSecond);
  }
};

TEST_P(SeveralGpus, TwoLeasesOfTwo) {
  for (const double share : {0.5, 0.25}) {
    for (const bool same_order : {true, false}) {
      LeaseSimulation simulation(2);
      simulation.add(share, GetParam(), {0, 1});
      simulation.add(1 - share, GetParam(), same_order ? std::vector<uint32_t>{0, 1} : std::vector<uint32_t>{1, 0});
      run(&simulation);
      for (const size_t slice : {0, 1}) {
        EXPECT_NEAR(simulation.delivered(0, slice), share, 0.025) << same_order;
        EXPECT_NEAR(simulation.delivered(1, slice), 1 - share, 0.025) << same_order;
      }
    }
  }
}

TEST_P(SeveralGpus, ThreeLeasesOfTwo) {
  LeaseSimulation simulation(2);
  for (const std::vector<uint32_t>& gpus : {std::vector<uint32_t>{0, 1}, {1, 0}, {0, 1}})
    simulation.add(1. / 3, GetParam(), gpus);
  run(&simulation);
  for (const size_t lease : {0, 1, 2}) EXPECT_NEAR(simulation.delivered(lease), 1. / 3, 0.025);
  EXPECT_LE(simulation.unused(0), 0.04);
}

// Beside tenants that are always ready it has the GPUs it works on at the same time.
TEST_P(SeveralGpus, ALeaseOfTwoBesideTenantsOfOne) {
  double by_chance = 0;
  for (const bool together : {false, true}) {
    LeaseSimulation simulation(2, together);
    simulation.add(0.5, GetParam(), {0, 1});
    simulation.add(0.5, 500 * kUs, {0});
    simulation.add(0.5, 500 * kUs, {1});
    run(&simulation);
    if (!together) by_chance = simulation.delivered(0);
    if (!together) continue;
    for (const size_t slice : {0, 1}) EXPECT_GE(simulation.delivered(0, slice), 0.465);
    EXPECT_GE(simulation.delivered(0), by_chance - 0.01);
    for (const size_t lease : {1, 2}) EXPECT_NEAR(simulation.delivered(lease), 0.5, 0.04);
    for (const uint32_t gpu : {0, 1}) EXPECT_LE(simulation.unused(gpu), 0.03);
  }
}

TEST_P(SeveralGpus, ASmallLeaseOfTwoAmongManyOfOne) {
  LeaseSimulation simulation(2);
  simulation.add(0.1, GetParam(), {0, 1});
  for (uint32_t i = 0; i < 6; ++i) simulation.add(0.3, 500 * kUs, {i % 2});
  run(&simulation);
  EXPECT_GE(simulation.delivered(0), 0.07);  // by chance: 0.05
  for (size_t lease = 1; lease < 7; ++lease) EXPECT_NEAR(simulation.delivered(lease), 0.3, 0.025);
}

// Where nobody else wants the other GPU nothing is lost on either.
TEST_P(SeveralGpus, ALeaseOfTwoOfWhichOneIsContended) {
  LeaseSimulation simulation(2);
  simulation.add(0.5, GetParam(), {0, 1});
  simulation.add(0.5, 500 * kUs, {1});
  run(&simulation);
  EXPECT_NEAR(simulation.delivered(0, 1), 0.5, 0.025);
  EXPECT_NEAR(simulation.delivered(1), 0.5, 0.025);
}

INSTANTIATE_TEST_SUITE_P(Pieces, SeveralGpus, testing::ValuesIn(kPieces),
                         [](const auto& param) { return std::to_string(param.param / kUs) + "us"; });

}  // namespace
}  // namespace tendril::daemon

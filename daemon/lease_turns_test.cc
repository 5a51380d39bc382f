// SPDX-License-Identifier: Apache-2.0
// Leases with several GPUs on simulated time: a program whose calls go in one order works on one GPU only for as long as it
// is not stopped at another. The rules are the product's own, over pages as workers have them; what a worker's gate does at its end of
// a page (worker/cuda/gate.h) is repeated here in little, as this room knows no worker.
#include "daemon/lease_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <vector>

namespace tendril::daemon {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSecond = 1'000'000'000;
constexpr uint64_t kTickNs = 50 * kUs;
constexpr uint64_t kPieces[] = {100 * kUs, kMs, 5 * kMs};

// A slice of a lease, with what its worker knows of it.
struct Part {
  uint32_t gpu = 0;
  wire::TurnPart* page = nullptr;
  uint32_t turn = 0, given_up = 0;  // the last one told of, and given up
  uint64_t seen_ns = 0, idle_since_ns = 0;
  bool asked = false, used = false;
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
  uint64_t id = 0;
  std::unique_ptr<wire::TurnPage> page = std::make_unique<wire::TurnPage>();
  std::vector<Part> parts;
  uint64_t piece_ns = 0;
  size_t next = 0;          // the slice of the next piece
  bool waits = false;       // that piece does
  uint64_t blocked_ns = 0;  // since when, without a turn; 0: it is not so
};

class LeaseSimulation {
 public:
  explicit LeaseSimulation(size_t gpus) : idle_ns_(gpus), random_(1) {}

  size_t add(double share, uint64_t piece_ns, const std::vector<uint32_t>& gpus) {
    Lease& lease = leases_.emplace_back();
    lease.id = leases_.size();
    lease.piece_ns = piece_ns;
    std::vector<wire::SliceGrant> slices(gpus.size());
    for (size_t slice = 0; slice < gpus.size(); ++slice) {
      slices[slice].gpu_index = gpus[slice];
      slices[slice].share_millionths = static_cast<uint32_t>(share * 1e6);
      Part& part = lease.parts.emplace_back();
      part.gpu = gpus[slice];
      part.page = &lease.page->slices[slice];
    }
    turns_.open(0, lease.id, slices, {});
    turns_.join(lease.id, lease.id, lease.page.get());
    return leases_.size() - 1;
  }
  void run(uint64_t until_ns) {
    for (; now_ns_ < until_ns; now_ns_ += kTickNs) {
      for (Lease& lease : leases_) submit(&lease);
      if (!rang_.empty() || now_ns_ >= turns_.look_again_ns()) turns_.hear(now_ns_, rang_);
      rang_.clear();
      for (uint32_t gpu = 0; gpu < idle_ns_.size(); ++gpu) work(gpu);
    }
  }
  // Of the time so far.
  double delivered(size_t lease, size_t slice = 0) const { return part_of(leases_[lease].parts[slice].had_ns); }
  double unused(uint32_t gpu) const { return part_of(idle_ns_[gpu]); }
  // From here on.
  void forget() {
    for (Lease& lease : leases_) {
      for (Part& part : lease.parts) part.had_ns = 0;
    }
    std::fill(idle_ns_.begin(), idle_ns_.end(), 0);
    since_ns_ = now_ns_;
  }

 private:
  double part_of(uint64_t ns) const { return static_cast<double>(ns) / static_cast<double>(now_ns_ - since_ns_); }
  static bool holds(const Part& part) { return part.turn != part.given_up; }
  bool sees(const Part& part) const { return holds(part) && now_ns_ >= part.seen_ns; }
  uint64_t about(uint64_t ns) { return ns * (80 + random_() % 41) / 100; }

  // ---- The worker ----
  bool may_pass(const Part& part, uint64_t piece_ns) const {
    const uint64_t unfinished_ns = part.unfinished_ns();
    const uint64_t until_ns = part.page->until_ns, window_ns = part.page->window_ns;
    if (!sees(part) || (until_ns != wire::kTurnWithoutEnd && now_ns_ + unfinished_ns >= until_ns)) return false;
    if (unfinished_ns + piece_ns <= window_ns || part.queue.empty()) return true;
    return part.queue.size() == 1 && unfinished_ns <= 4 * window_ns;
  }
  void submit(Lease* lease) {
    for (Part& part : lease->parts) {
      if (part.turn == part.page->turn) continue;
      part.turn = part.page->turn;
      part.seen_ns = now_ns_ + kTickNs * (random_() % 4);
      part.asked = part.used = false;
    }
    const size_t before = lease->next;
    lease->waits = false;
    for (int most = 0; most < 100; ++most) {
      Part& part = lease->parts[lease->next];
      if (!may_pass(part, lease->piece_ns)) {
        lease->waits = true;
        if (!holds(part)) ask(lease, &part);
        break;
      }
      part.queue.push_back(about(lease->piece_ns));
      part.used = true;
      lease->next = (lease->next + 1) % lease->parts.size();
    }
    const bool blocked = lease->waits && !sees(lease->parts[lease->next]);
    if (!blocked || lease->next != before || lease->blocked_ns == 0) lease->blocked_ns = blocked ? now_ns_ : 0;
    for (size_t slice = 0; slice < lease->parts.size(); ++slice) look(lease, slice);
  }
  void ask(Lease* lease, Part* part) {
    if (part->asked) return;
    part->asked = true;
    part->page->wants = wire::kWantsTurn;
    rang_.push_back(lease->id);
  }
  void look(Lease* lease, size_t slice) {
    Part& part = lease->parts[slice];
    if (!sees(part) || !part.queue.empty()) return;
    const bool waits = lease->waits && lease->next == slice, blocked = lease->blocked_ns != 0;
    if (blocked && now_ns_ - lease->blocked_ns < part.page->await_ns) part.idle_since_ns = now_ns_;
    const bool over = now_ns_ >= part.page->until_ns;
    const uint64_t idle_ns = now_ns_ - std::max(part.idle_since_ns, part.seen_ns);
    if (!over && (waits || idle_ns < part.page->linger_ns)) return;
    const bool too = lease->waits && (part.used || blocked);
    part.page->wants = waits ? wire::kWantsTurn : too ? wire::kWantsTurnToo : wire::kWantsNothing;
    part.asked = waits;
    part.given_up = part.turn;
    part.page->drained = part.turn;
    rang_.push_back(lease->id);
  }

  // ---- The GPU ----
  void work(uint32_t index) {
    Part* running = nullptr;
    for (Lease& lease : leases_) {
      for (Part& part : lease.parts) {
        if (part.gpu == index && !part.queue.empty()) running = &part;
      }
    }
    if (running == nullptr) idle_ns_[index] += kTickNs;
    for (uint64_t left_ns = kTickNs; running != nullptr && left_ns != 0 && !running->queue.empty();) {
      const uint64_t some_ns = std::min(left_ns, running->queue.front());
      running->queue.front() -= some_ns;
      running->had_ns += some_ns;
      left_ns -= some_ns;
      if (running->queue.front() == 0) running->queue.pop_front();
      running->idle_since_ns = now_ns_ + kTickNs;
    }
  }

  LeaseTurns turns_{SharingOptions{}, [](wire::TurnPart*) {}};
  uint64_t now_ns_ = 0, since_ns_ = 0;
  std::vector<uint64_t> rang_;     // since tendrild last heard
  std::vector<uint64_t> idle_ns_;  // by GPU
  std::deque<Lease> leases_;
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
  EXPECT_LE(simulation.unused(0), 0.05);
}

// Beside tenants that are always ready it has the GPUs it works on at the same time. By chance: 0.35 to 0.44.
TEST_P(SeveralGpus, ALeaseOfTwoBesideTenantsOfOne) {
  LeaseSimulation simulation(2);
  simulation.add(0.5, GetParam(), {0, 1});
  simulation.add(0.5, 500 * kUs, {0});
  simulation.add(0.5, 500 * kUs, {1});
  run(&simulation);
  for (const size_t slice : {0, 1}) EXPECT_GE(simulation.delivered(0, slice), 0.465);
  for (const size_t lease : {1, 2}) EXPECT_NEAR(simulation.delivered(lease), 0.5, 0.04);
  for (const uint32_t gpu : {0, 1}) EXPECT_LE(simulation.unused(gpu), 0.03);
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

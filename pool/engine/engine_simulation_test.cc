// SPDX-License-Identifier: Apache-2.0
// A pool on simulated time, with servers that are lost, drained and closed, holds that fail, leases
// that shrink, and requests that leave. It keeps books of its own and compares after every step.
// TENDRIL_SEED replays one seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <random>
#include <set>

#include "pool/engine/engine.h"

namespace tendril::pool {
namespace {

constexpr uint64_t kGpu = kWholeGpu;
constexpr uint64_t kGigabyte = uint64_t{1} << 30;
constexpr int64_t kHour_s = 3600;
constexpr int64_t kMost_s = 8 * kHour_s;

Account account(const std::string& name, uint32_t parent, Amounts quota, Amounts limit,
                Amounts lending) {
  Account account;
  account.name = name;
  account.parent = parent;
  account.quota = std::move(quota);
  account.limit = std::move(limit);
  account.lending_limit = std::move(lending);
  return account;
}

PoolPolicy policy() {
  PoolPolicy policy = default_policy();
  GpuClass top = policy.gpu_classes[0];
  top.name = "top";
  policy.gpu_classes = {top, policy.gpu_classes[0]};
  policy.accounts = {
      account("research", kNoAccount, {12 * kGpu, 20 * kGpu}, {16 * kGpu, 40 * kGpu}, {}),
      account("vision", 0, {8 * kGpu, 12 * kGpu}, {12 * kGpu, 30 * kGpu}, {4 * kGpu, 8 * kGpu}),
      account("nlp", 0, {4 * kGpu, 8 * kGpu}, {16 * kGpu, 20 * kGpu}, {4 * kGpu, 0}),
      account("teaching", kNoAccount, {0, 6 * kGpu}, {4 * kGpu, 20 * kGpu}, {0, 6 * kGpu})};
  UserClass batch = policy.user_classes[0];
  batch.name = "batch";
  batch.priority = 10;
  batch.gpu_classes = {0, 1};
  batch.max_wall_s = kMost_s;
  batch.max_per_user.gpus = 12 * kGpu;
  UserClass interactive = batch;
  interactive.name = "interactive";
  interactive.priority = 100;
  interactive.gpu_classes = {1};
  interactive.max_per_user.gpus = 2 * kGpu;
  interactive.max_per_user.leases = 3;
  interactive.reclaimable = false;
  interactive.preempts = {2};
  UserClass scavenger = batch;
  scavenger.name = "scavenger";
  scavenger.priority = 0;
  scavenger.over_quota = OverQuota::kOnly;
  scavenger.max_per_user.gpus = 30 * kGpu;
  scavenger.preempt_exempt_time_s = 60;
  policy.user_classes = {batch, interactive, scavenger};
  policy.longest_wait_s = 86'400;
  return policy;
}

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : dice_(seed) {
    set_policy();
    for (int i = 0; i < 10; ++i) {
      EngineServer server;
      server.name = "gpu" + std::to_string(i);
      for (uint32_t gpu = 0; gpu < 4U + i % 3; ++gpu)
        server.gpus.push_back(EngineGpu{i % 4 == 0 ? "H200"
                                        : gpu < 2  ? "A100"
                                                   : "L40",
                                        i % 4 == 0 ? 0U : 1U, (gpu < 2 ? 80 : 48) * kGigabyte, 0});
      servers_.push_back(Server{server, true});
      EXPECT_TRUE(engine_.add_server(server));
    }
  }

  void run(int64_t days) {
    const int64_t end_s = days * 24 * kHour_s;
    int64_t arrival_s = 0;
    while (!::testing::Test::HasFailure()) {
      int64_t next_s = arrival_s < end_s ? arrival_s : kNever;
      for (const auto& [id, lease] : leases_) next_s = std::min(next_s, lease.ends_s);
      if (again_s_ > now_s_ && (arrival_s < end_s || !waiting_.empty()))
        next_s = std::min(next_s, std::max(again_s_, now_s_ + 60));
      if (next_s == kNever || next_s > end_s + 10 * 24 * kHour_s) break;
      now_s_ = next_s;
      end_leases();
      if (now_s_ >= arrival_s && arrival_s < end_s) {
        arrive();
        arrival_s = now_s_ + 1 + static_cast<int64_t>(dice_() % 1200);
        disturb();
      }
      if (arrival_s >= end_s) calm();
      step();
    }
  }

  size_t started = 0, reclaimed = 0, promised = 0, failed = 0, refused = 0;
  int64_t longest_wait_s = 0;
  const std::map<uint64_t, Ask>& waiting() const { return waiting_; }

 private:
  struct Lease {
    Ask ask;
    std::vector<PlacedSlice> slices;
    uint32_t gpu_class = 0;
    int64_t started_s = 0, ends_s = 0, ends_by_s = 0;
    bool reclaimed = false;
  };
  struct Server {
    EngineServer what;
    bool open = true;
    std::vector<Interval> maintenance;
  };

  void set_policy() {
    PoolPolicy now = policy();
    // From ten to twelve each day; the engine is told the window that is or comes.
    Reservation course;
    course.name = "course";
    course.gpus = {0, 4 * kGpu};
    course.accounts = {3};
    const int64_t day = now_s_ / 86'400;
    course.from_s = day * 86'400 + 10 * kHour_s;
    course.to_s = course.from_s + 2 * kHour_s;
    if (course.to_s <= now_s_) {
      course.from_s += 86'400;
      course.to_s += 86'400;
    }
    now.reservations = {course};
    course_ = Interval{course.from_s, course.to_s};
    engine_.set_policy(now, now_s_, now_s_);
    told_.clear();
  }

  void arrive() {
    Ask ask;
    ask.id = ++last_id_;
    ask.account = 1 + dice_() % 3;
    ask.user_class = dice_() % 3;
    ask.user = "user" + std::to_string(dice_() % 9);
    ask.gpu_classes = policy().user_classes[ask.user_class].gpu_classes;
    ask.share_millionths = (1 + dice_() % 20) * 50'000;
    ask.most_s = 60 + static_cast<int64_t>(dice_() % kMost_s);
    ask.submitted_s = now_s_;
    ask.packed = dice_() % 5 == 0;
    if (dice_() % 4 == 0) ask.memory_bytes = (1 + dice_() % 60) * kGigabyte;
    if (dice_() % 5 == 0) {
      ask.slices = 1 + dice_() % 8;
      ask.spread = static_cast<Spread>(dice_() % 4);
      ask.share_millionths = kGpu;
      ask.memory_bytes = 0;
    }
    if (dice_() % 6 == 0) {
      const uint32_t odd = dice_() % 2;
      ask.filter_text = odd ? "odd" : "even";
      ask.filter = [odd](uint32_t server, uint32_t) { return server % 2 == odd; };
    }
    const base::Status status = engine_.submit(ask, now_s_);
    if (!status) {
      EXPECT_EQ(status.code(), base::Code::kRefused) << status.message();
      ++refused;
      return;
    }
    waiting_[ask.id] = ask;
    if (dice_() % 20 == 0) {
      engine_.withdraw(ask.id);
      waiting_.erase(ask.id);
    }
  }

  void disturb() {
    if (now_s_ >= course_.to_s) set_policy();
    if (dice_() % (away() ? 40 : 300) == 0) {
      // One at a time: the one that is away comes back first.
      uint32_t server = dice_() % servers_.size();
      for (uint32_t i = 0; i < servers_.size(); ++i)
        if (!servers_[i].open) server = i;
      servers_[server].open = !servers_[server].open;
      engine_.set_state(server, servers_[server].open ? ServerState::kOpen
                                : dice_() % 2         ? ServerState::kSilent
                                                      : ServerState::kDraining);
      told_.clear();
    }
    if (dice_() % 300 == 0) {
      const uint32_t server = dice_() % servers_.size();
      const int64_t from_s = now_s_ + static_cast<int64_t>(dice_() % (2 * kMost_s));
      servers_[server].maintenance = {Interval{from_s, from_s + kHour_s}};
      engine_.set_maintenance(server, servers_[server].maintenance);
      told_.clear();
    }
    if (dice_() % 50 == 0 && !leases_.empty()) {  // it shrinks
      Lease& lease = leases_.begin()->second;
      for (PlacedSlice& slice : lease.slices) slice.share_millionths /= 2;
      if (lease.slices[0].share_millionths != 0) engine_.resize(lease.ask.id, lease.slices);
    }
  }

  void calm() {
    for (uint32_t i = 0; i < servers_.size(); ++i)
      if (!servers_[i].open) {
        servers_[i].open = true;
        engine_.set_state(i, ServerState::kOpen);
        told_.clear();
      }
    if (now_s_ >= course_.to_s) set_policy();
  }

  void end_leases() {
    for (auto each = leases_.begin(); each != leases_.end();) {
      Lease& lease = each->second;
      if (lease.ends_s > now_s_) {
        ++each;
        continue;
      }
      if (lease.reclaimed) {
        engine_.failed(lease.ask.id, Engine::kNoServer, now_s_);
        waiting_[lease.ask.id] = lease.ask;
      } else {
        engine_.ended(lease.ask.id, now_s_);
      }
      each = leases_.erase(each);
    }
  }

  void step() {
    const EnginePlan plan = engine_.plan(now_s_);
    again_s_ = plan.again_s;
    for (const EngineStart& start : plan.starts) {
      this->start(start);
      if (dice_() % 40 == 0) {  // a server did not take it
        engine_.failed(start.id, start.slices[0].server, now_s_);
        waiting_[start.id] = leases_[start.id].ask;
        leases_.erase(start.id);
        // What it left may be another's; promises hold.
        ++failed;
      }
    }
    for (const EngineReclaim& each : plan.reclaims) reclaim(each);
    compare();
    if (dice_() % 4 == 0) look_at_waiting();
  }

  void start(const EngineStart& start) {
    ASSERT_TRUE(waiting_.count(start.id)) << "started twice, or never asked for";
    const Ask ask = waiting_[start.id];
    ASSERT_EQ(start.slices.size(), ask.slices);
    for (const PlacedSlice& slice : start.slices) {
      const Server& server = servers_[slice.server];
      EXPECT_TRUE(server.open);
      EXPECT_EQ(server.what.gpus[slice.gpu].gpu_class, start.gpu_class);
      if (ask.filter) {
        EXPECT_TRUE(ask.filter(slice.server, slice.gpu));
      }
      for (const Interval& window : server.maintenance)
        EXPECT_FALSE(now_s_ < window.to_s && start.ends_by_s > window.from_s)
            << "it runs into maintenance";
    }
    if (ask.spread == Spread::kOneServer) {
      EXPECT_EQ(start.slices.front().server, start.slices.back().server);
    }
    if (const auto told = told_.find(start.id); told != told_.end()) {
      EXPECT_LE(now_s_, told->second + 60) << start.id << " started later than it was told";
    }
    told_.erase(start.id);
    if (excused_.count(start.id) == 0)
      longest_wait_s = std::max(longest_wait_s, now_s_ - ask.submitted_s);
    waiting_.erase(start.id);
    const int64_t lasts_s = dice_() % 2 == 0
                                ? start.ends_by_s - now_s_
                                : 1 + static_cast<int64_t>(dice_() % (start.ends_by_s - now_s_));
    leases_[start.id] =
        Lease{ask, start.slices, start.gpu_class, now_s_, now_s_ + lasts_s, start.ends_by_s, false};
    ++started;
  }

  void reclaim(const EngineReclaim& each) {
    const auto found = leases_.find(each.id);
    if (found == leases_.end()) return;  // it failed in this very step
    Lease& lease = found->second;
    EXPECT_FALSE(lease.reclaimed);
    const UserClass of = policy().user_classes[lease.ask.user_class];
    EXPECT_TRUE(of.reclaimable);
    if (each.for_id != 0) {
      EXPECT_GE(now_s_ - lease.started_s, static_cast<int64_t>(of.preempt_exempt_time_s));
    }
    lease.reclaimed = true;
    lease.ends_s = std::min(lease.ends_s, each.by_s);
    ++reclaimed;
  }

  void compare() {
    struct Sum {
      uint64_t share = 0, memory = 0;
      std::set<bool> modes;
    };
    std::map<std::pair<uint32_t, uint32_t>, Sum> gpus;
    std::map<std::pair<uint32_t, std::string>, uint64_t> users;
    std::vector<uint64_t> held(8);
    for (const auto& [id, lease] : leases_) {
      std::set<std::pair<uint32_t, uint32_t>> own;
      uint64_t amount = 0;
      for (const PlacedSlice& slice : lease.slices) {
        EXPECT_TRUE(own.insert({slice.server, slice.gpu}).second) << "two slices on one GPU";
        Sum& sum = gpus[{slice.server, slice.gpu}];
        sum.share += slice.share_millionths;
        sum.memory += slice.memory_bytes;
        sum.modes.insert(lease.ask.packed);
        const double part =
            static_cast<double>(slice.memory_bytes) /
            static_cast<double>(servers_[slice.server].what.gpus[slice.gpu].memory_usable_bytes);
        amount += std::max<uint64_t>(slice.share_millionths, static_cast<uint64_t>(part * 1e6));
      }
      users[{lease.ask.user_class, lease.ask.user}] += amount;
      for (uint32_t of = lease.ask.account; of != kNoAccount; of = policy().accounts[of].parent)
        held[of * 2 + lease.gpu_class] += amount;
    }
    for (const auto& [at, sum] : gpus) {
      EXPECT_LE(sum.share, kGpu);
      EXPECT_LE(sum.memory, servers_[at.first].what.gpus[at.second].memory_usable_bytes);
      EXPECT_EQ(sum.modes.size(), 1U) << "packed and not packed on one GPU";
    }
    for (uint32_t of = 0; of < 4; ++of)
      for (uint32_t gpu_class = 0; gpu_class < 2; ++gpu_class) {
        EXPECT_EQ(engine_.used(of, gpu_class), held[of * 2 + gpu_class]);
        EXPECT_LE(held[of * 2 + gpu_class], policy().accounts[of].limit[gpu_class]);
      }
    for (const auto& [user, amount] : users) {
      EXPECT_EQ(engine_.used_by_user(user.first, user.second), amount);
      EXPECT_LE(amount, policy().user_classes[user.first].max_per_user.gpus);
    }
    EXPECT_EQ(engine_.running_count(), leases_.size());
    EXPECT_EQ(engine_.waiting_count(), waiting_.size());
  }

  void look_at_waiting() {
    const std::vector<EngineWaiting> all = engine_.waiting(now_s_);
    ASSERT_EQ(all.size(), waiting_.size());
    for (const EngineWaiting& each : all) {
      ASSERT_TRUE(waiting_.count(each.id));
      EXPECT_FALSE(each.text.empty());
      EXPECT_GE(each.of, each.place);
      if (each.start_to_s != kNever) {
        EXPECT_LE(each.start_from_s, each.start_to_s);
      }
      // It needs servers that are away, or its promise was lost with one.
      if (each.reason == WaitReason::kServersDown || each.reason == WaitReason::kSchedule ||
          each.reason == WaitReason::kNeverFits || away())
        excused_.insert(each.id);
      if (each.start_why.empty()) continue;  // it is no head
      ++promised;
      const auto [told, first] = told_.emplace(each.id, each.start_to_s);
      EXPECT_LE(each.start_to_s, std::max(told->second, now_s_)) << "a promise was moved";
      told->second = std::min(told->second, each.start_to_s);
    }
  }

  bool away() const {
    return std::any_of(servers_.begin(), servers_.end(),
                       [](const Server& each) { return !each.open; });
  }

  std::mt19937_64 dice_;
  Engine engine_;
  std::vector<Server> servers_;
  int64_t now_s_ = 0;
  int64_t again_s_ = kNever;
  uint64_t last_id_ = 0;
  std::set<uint64_t> excused_;
  Interval course_;
  std::map<uint64_t, Ask> waiting_;
  std::map<uint64_t, int64_t> told_;
  std::map<uint64_t, Lease> leases_;
};

TEST(EngineSimulation, KeepsItsRulesAtEveryStep) {
  const char* only = std::getenv("TENDRIL_SEED");
  const char* kind = std::getenv("TENDRIL_SIMULATION");
  // With 6 and 83 it found rules that did not hold.
  std::vector<uint64_t> seeds = {1, 2, 3, 6, 83};
  for (uint64_t seed = 1; kind != nullptr && std::string(kind) == "long" && seed <= 400; ++seed)
    seeds.push_back(1'000 + seed);
  if (only != nullptr) seeds = {std::strtoull(only, nullptr, 10)};
  size_t reclaimed = 0, promised = 0, failed = 0;
  int64_t longest_wait_s = 0;
  for (const uint64_t seed : seeds) {
    SCOPED_TRACE("TENDRIL_SEED=" + std::to_string(seed));
    Simulation simulation(seed);
    simulation.run(12);
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(simulation.waiting().size(), 0U) << "all start when nothing new comes";
    EXPECT_GT(simulation.started, 500U);
    reclaimed += simulation.reclaimed;
    promised += simulation.promised;
    failed += simulation.failed;
    longest_wait_s = std::max(longest_wait_s, simulation.longest_wait_s);
    if (only != nullptr) return;
  }
  EXPECT_GT(reclaimed, 0U);
  EXPECT_GT(promised, 100U);
  EXPECT_GT(failed, 10U);
  std::printf("reclaimed %zu, promised %zu, longest wait %.1f h\n", reclaimed, promised,
              static_cast<double>(longest_wait_s) / kHour_s);
  // An overdue request waits only for older ones and for running leases.
  EXPECT_LE(longest_wait_s, 86'400 + 3 * kMost_s);
}

}  // namespace
}  // namespace tendril::pool

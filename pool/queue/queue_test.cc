// SPDX-License-Identifier: Apache-2.0
// The queue's rules one by one, and then all of them at every step of seeded simulations: weeks of
// arrivals, early ends, withdrawals, reclaims and lost servers in a second.
#include "pool/queue/queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace tendril::pool {
namespace {

constexpr uint64_t kGpu = 1'000'000;
constexpr uint64_t kHour = 3600;

// Two accounts with 4 GPUs each; vision lends 2 of its own, teaching all.
QueuePolicy small_policy() {
  QueuePolicy policy;
  policy.accounts = {{"vision", 4 * kGpu, 8 * kGpu, 2 * kGpu, 1},
                     {"teaching", 4 * kGpu, 6 * kGpu, 4 * kGpu, 1}};
  policy.classes = {{"batch", 10, kNoLimit, true, 600}, {"interactive", 100, kGpu, false, 0}};
  return policy;
}

QueuedRequest request(uint64_t id, uint32_t account, uint64_t gpus, uint64_t hours = 1) {
  return {id, account, 0, static_cast<uint32_t>(id), gpus * kGpu, hours * kHour};
}

const Waiting* find(const QueuePlan& plan, uint64_t id) {
  for (const Waiting& each : plan.waiting)
    if (each.id == id) return &each;
  return nullptr;
}

TEST(DecayedUsage, HalvesWithEachHalfLife) {
  DecayedUsage usage;
  usage.advance(100, 0, kHour);
  usage.advance(100 + 3600, 2, kHour);
  const double after_an_hour = usage.gpu_seconds();
  EXPECT_NEAR(after_an_hour, 2 * 3600 / std::log(2) / 2, 1e-6);
  usage.advance(100 + 7200, 0, kHour);
  EXPECT_NEAR(usage.gpu_seconds(), after_an_hour / 2, 1e-6);
  DecayedUsage stepped;
  stepped.advance(100, 0, kHour);
  for (uint64_t time_s = 100; time_s <= 3700; time_s += 7) stepped.advance(time_s, 2, kHour);
  stepped.advance(3700, 2, kHour);
  EXPECT_NEAR(stepped.gpu_seconds(), after_an_hour, 1e-6) << "the steps do not matter";
}

TEST(Queue, RefusesWhatNeverFits) {
  Queue queue(small_policy(), 8 * kGpu);
  EXPECT_EQ(queue.submit(request(1, 1, 7), 0).code(), base::Code::kRefused) << "limit";
  EXPECT_EQ(queue.submit(request(1, 1, 6), 0).code(), base::Code::kOk) << "vision lends two";
  EXPECT_EQ(queue.submit(request(2, 2, 1), 0).code(), base::Code::kInvalid);
  EXPECT_EQ(queue.submit(request(2, 0, 9), 0).code(), base::Code::kRefused);
  QueuedRequest greedy = request(2, 0, 2);
  greedy.user_class = 1;
  EXPECT_EQ(queue.submit(greedy, 0).code(), base::Code::kRefused) << "the class's limit";
}

TEST(Queue, LendsNoMoreThanTheLendingLimit) {
  Queue queue(small_policy(), 8 * kGpu);
  for (uint64_t id = 1; id <= 7; ++id) ASSERT_TRUE(queue.submit(request(id, 1, 1), 0));
  const QueuePlan plan = queue.plan(0);
  EXPECT_EQ(plan.starts.size(), 6U) << "four of its own, two that vision lends";
  ASSERT_EQ(plan.waiting.size(), 1U);
  EXPECT_EQ(plan.waiting[0].reason, WaitReason::kLimit);
}

TEST(Queue, ReclaimsWhatWasLent) {
  Queue queue(small_policy(), 8 * kGpu);
  for (uint64_t id = 1; id <= 6; ++id) ASSERT_TRUE(queue.submit(request(id, 1, 1, 10), id));
  ASSERT_EQ(queue.plan(10).starts.size(), 6U);
  ASSERT_TRUE(queue.submit(request(7, 0, 3), 100));
  QueuePlan plan = queue.plan(100);
  EXPECT_TRUE(plan.reclaims.empty()) << "none has run ten minutes";
  EXPECT_EQ(find(plan, 7)->start_by_s, 10 + 10 * kHour);
  plan = queue.plan(1000);
  ASSERT_EQ(plan.reclaims.size(), 1U);
  EXPECT_EQ(find(plan, 7)->start_by_s, 1000U + 120);
  EXPECT_TRUE(queue.plan(1001).reclaims.empty()) << "once is enough";
  queue.requeue(plan.reclaims[0], 1120);
  plan = queue.plan(1120);
  EXPECT_EQ(plan.starts, std::vector<uint64_t>{7});
  EXPECT_EQ(plan.waiting.size(), 1U) << "what was reclaimed waits again";
}

TEST(Queue, StartsOthersBeforeTheHeadOnlyIfTheyDoNotDelayIt) {
  Queue queue(small_policy(), 8 * kGpu);
  ASSERT_TRUE(queue.submit(request(1, 0, 4, 4), 0));
  ASSERT_TRUE(queue.submit(request(2, 1, 2, 2), 0));
  ASSERT_EQ(queue.plan(0).starts.size(), 2U);
  ASSERT_TRUE(queue.submit(request(3, 1, 2, 1), 10));
  ASSERT_EQ(queue.plan(10).starts.size(), 1U);
  ASSERT_TRUE(queue.submit(request(4, 0, 1, 1), 20));  // over quota, nothing free
  ASSERT_TRUE(queue.submit(request(5, 1, 3, 1), 20));
  queue.ended(3, 30);
  const QueuePlan plan = queue.plan(30);
  EXPECT_EQ(plan.starts, std::vector<uint64_t>{4}) << "it ends before the head starts";
  ASSERT_NE(find(plan, 5), nullptr);
  EXPECT_EQ(find(plan, 5)->reason, WaitReason::kQuota) << "three more are over quota";
}

TEST(Queue, PutsTheAccountThatUsedLessFirst) {
  QueuePolicy policy = small_policy();
  for (QueueAccount& account : policy.accounts) account.quota = account.lending_limit = 0;
  Queue queue(policy, kGpu);
  ASSERT_TRUE(queue.submit(request(1, 0, 1), 0));
  ASSERT_EQ(queue.plan(0).starts.size(), 1U);
  ASSERT_TRUE(queue.submit(request(2, 0, 1), 10));
  ASSERT_TRUE(queue.submit(request(3, 1, 1), 20));
  queue.ended(1, kHour);
  EXPECT_EQ(queue.plan(kHour).starts, std::vector<uint64_t>{3});
}

// A pool on simulated time. It keeps books of its own and compares after every step.
class Simulation {
 public:
  explicit Simulation(uint64_t seed) : dice_(seed), queue_(policy(), kCapacity) {}

  void run(uint64_t days) {
    const uint64_t end_s = days * 24 * kHour;
    uint64_t next_arrival_s = 0;
    while (!::testing::Test::HasFailure()) {
      uint64_t next_s = next_arrival_s < end_s ? next_arrival_s : UINT64_MAX;
      for (const auto& [id, lease] : leases_) next_s = std::min(next_s, lease.ends_s);
      if (next_s == UINT64_MAX) break;
      now_s_ = next_s;
      end_leases();
      if (now_s_ == next_arrival_s && next_arrival_s < end_s) {
        arrive();
        next_arrival_s += 1 + dice_() % 900;
      }
      if (dice_() % 2000 == 0) lose_or_regain_servers();
      step();
    }
    capacity_ = kCapacity;
    queue_.set_capacity(capacity_);
    step();
  }

  size_t started = 0, reclaimed = 0, promised = 0, backfilled = 0;
  uint64_t longest_wait_s = 0;
  const Queue& queue() const { return queue_; }
  const std::map<uint64_t, QueuedRequest>& waiting() const { return waiting_; }

  static constexpr uint64_t kCapacity = 40 * kGpu;
  static constexpr uint64_t kMostS = 8 * kHour;
  static QueuePolicy policy() {
    QueuePolicy policy;
    policy.accounts = {{"a", 16 * kGpu, 40 * kGpu, 8 * kGpu, 4},
                       {"b", 12 * kGpu, 30 * kGpu, 12 * kGpu, 3},
                       {"c", 8 * kGpu, 20 * kGpu, 0, 2},
                       {"d", 0, 12 * kGpu, 0, 1}};
    policy.classes = {{"batch", 10, 24 * kGpu, true, 600},
                      {"interactive", 100, 2 * kGpu, false, 0},
                      {"scavenger", 0, 30 * kGpu, true, 60}};
    return policy;
  }

 private:
  struct Lease {
    QueuedRequest request;
    uint64_t started_s = 0, ends_s = 0;
    bool reclaimed = false;
  };

  void arrive() {
    const QueuePolicy policy = this->policy();
    QueuedRequest request{++last_id_,
                          static_cast<uint32_t>(dice_() % 4),
                          static_cast<uint32_t>(dice_() % 3),
                          static_cast<uint32_t>(dice_() % 9),
                          (1 + dice_() % 20) * 50'000,
                          60 + dice_() % kMostS};
    if (dice_() % 6 == 0) request.share_millionths = (1 + dice_() % 8) * kGpu;
    if (!queue_.submit(request, now_s_)) return;
    waiting_[request.id] = request;
    submitted_s_[request.id] = now_s_;
    if (dice_() % 20 == 0) {  // Ctrl-C
      queue_.ended(request.id, now_s_);
      waiting_.erase(request.id);
    }
  }

  void end_leases() {
    for (auto each = leases_.begin(); each != leases_.end();) {
      Lease& lease = each->second;
      if (lease.ends_s > now_s_) {
        ++each;
        continue;
      }
      if (lease.reclaimed) {
        queue_.requeue(lease.request.id, now_s_);
        waiting_[lease.request.id] = lease.request;
        submitted_s_[lease.request.id] = now_s_;
      } else {
        queue_.ended(lease.request.id, now_s_);
      }
      each = leases_.erase(each);
    }
  }

  void lose_or_regain_servers() {
    capacity_ = capacity_ == kCapacity ? kCapacity - (1 + dice_() % 10) * kGpu : kCapacity;
    queue_.set_capacity(capacity_);
    told_.clear();
  }

  void step() {
    const QueuePlan plan = queue_.plan(now_s_);
    for (uint64_t id : plan.starts) start(id, plan);
    for (uint64_t id : plan.reclaims) reclaim(id);
    std::optional<uint64_t> head;
    for (const Waiting& each : plan.waiting) {
      ASSERT_TRUE(waiting_.count(each.id));
      if (!each.start_by_s) continue;
      EXPECT_FALSE(head) << "two heads";
      head = each.id;
      ++promised;
      const auto [told, first] = told_.emplace(each.id, *each.start_by_s);
      EXPECT_LE(*each.start_by_s, told->second) << "the promise to " << each.id << " was moved";
      told->second = *each.start_by_s;
    }
    EXPECT_EQ(plan.waiting.size(), waiting_.size());
    for (const auto& [id, start_by_s] : told_)
      if (waiting_.count(id)) {
        EXPECT_GE(start_by_s, now_s_) << id << " did not start when promised";
      }
    compare();
  }

  void start(uint64_t id, const QueuePlan& plan) {
    ASSERT_TRUE(waiting_.count(id)) << "started twice, or never asked for";
    const QueuedRequest request = waiting_[id];
    const QueueAccount account = policy().accounts[request.account];
    // Over quota: what others never lend stays free.
    if (use(request.account) + request.share_millionths > account.quota) {
      uint64_t taken = use(request.account) + request.share_millionths;
      for (uint32_t other = 0; other < 4; ++other) {
        const QueueAccount of = policy().accounts[other];
        if (other != request.account)
          taken += std::max(use(other), of.quota - std::min(of.quota, of.lending_limit));
      }
      EXPECT_LE(taken, capacity_);
    }
    if (const auto told = told_.find(id); told != told_.end()) {
      EXPECT_LE(now_s_, told->second);
    } else if (!plan.waiting.empty() && plan.waiting[0].start_by_s) {
      ++backfilled;
    }
    told_.erase(id);
    longest_wait_s = std::max(longest_wait_s, now_s_ - submitted_s_[id]);
    waiting_.erase(id);
    // Half of all end before they must.
    const uint64_t lasts_s = dice_() % 2 == 0 ? request.most_s : 1 + dice_() % request.most_s;
    leases_[id] = Lease{request, now_s_, now_s_ + lasts_s, false};
    ++started;
    uint64_t total = 0;
    for (const auto& [each, lease] : leases_) total += lease.request.share_millionths;
    EXPECT_LE(total, capacity_) << "started what there is no room for";
  }

  void reclaim(uint64_t id) {
    ASSERT_TRUE(leases_.count(id));
    Lease& lease = leases_[id];
    EXPECT_FALSE(lease.reclaimed);
    const QueueClass of = policy().classes[lease.request.user_class];
    EXPECT_TRUE(of.reclaimable);
    EXPECT_GE(now_s_, lease.started_s + of.reclaim_exempt_s);
    uint64_t staying = 0;
    for (const auto& [each, other] : leases_)
      if (other.request.account == lease.request.account && !other.reclaimed)
        staying += other.request.share_millionths;
    EXPECT_GT(staying, policy().accounts[lease.request.account].quota);
    lease.reclaimed = true;
    lease.ends_s = std::min(lease.ends_s, now_s_ + policy().reclaim_grace_s);
    ++reclaimed;
  }

  uint64_t use(uint32_t account) const {
    uint64_t sum = 0;
    for (const auto& [id, lease] : leases_)
      if (lease.request.account == account) sum += lease.request.share_millionths;
    return sum;
  }

  void compare() {
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> users;
    for (const auto& [id, lease] : leases_)
      users[{lease.request.user_class, lease.request.user}] += lease.request.share_millionths;
    for (uint32_t account = 0; account < 4; ++account) {
      EXPECT_EQ(queue_.used(account), use(account));
      EXPECT_LE(use(account), policy().accounts[account].limit);
    }
    for (const auto& [user, share] : users) {
      EXPECT_LE(share, policy().classes[user.first].most_per_user);
      EXPECT_EQ(share, queue_.used_by_user(user.first, user.second));
    }
    EXPECT_EQ(queue_.running(), leases_.size());
    EXPECT_EQ(queue_.waiting(), waiting_.size());
  }

  std::mt19937_64 dice_;
  Queue queue_;
  uint64_t now_s_ = 0;
  uint64_t last_id_ = 0;
  uint64_t capacity_ = kCapacity;
  std::map<uint64_t, QueuedRequest> waiting_;
  std::map<uint64_t, uint64_t> submitted_s_, told_;
  std::map<uint64_t, Lease> leases_;
};

TEST(QueueSimulation, KeepsItsRulesAtEveryStep) {
  size_t reclaimed = 0, promised = 0, backfilled = 0;
  uint64_t longest_wait_s = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    Simulation simulation(seed);
    simulation.run(24);
    ASSERT_FALSE(HasFailure());
    EXPECT_EQ(simulation.waiting().size(), 0U) << "all start when nothing new comes";
    EXPECT_GT(simulation.started, 1000U);
    reclaimed += simulation.reclaimed;
    promised += simulation.promised;
    backfilled += simulation.backfilled;
    longest_wait_s = std::max(longest_wait_s, simulation.longest_wait_s);
  }
  EXPECT_GT(reclaimed, 0U);
  EXPECT_GT(promised, 100U);
  EXPECT_GT(backfilled, 100U);
  std::printf("reclaimed %zu, promised %zu, backfilled %zu, longest wait %.1f h\n", reclaimed,
              promised, backfilled, static_cast<double>(longest_wait_s) / kHour);
  // An overdue request waits only for older ones and for running leases.
  EXPECT_LE(longest_wait_s, Simulation::policy().longest_wait_s + 2 * Simulation::kMostS);
}

// All accounts alike ask for more than there is. Each gets a part by its weight.
TEST(QueueSimulation, DividesByWeight) {
  QueuePolicy policy;
  for (uint32_t weight = 1; weight <= 5; ++weight)
    policy.accounts.push_back({"account", 0, kNoLimit, 0, static_cast<double>(weight)});
  policy.classes = {{"batch", 0, kNoLimit, true, 600}};
  policy.usage_half_life_s = 6 * kHour;
  Queue queue(policy, 20 * kGpu);
  std::mt19937_64 dice(5);
  std::multimap<uint64_t, uint64_t> ends;
  std::map<uint64_t, QueuedRequest> asked;
  std::vector<int> waiting(5);
  uint64_t id = 0;
  for (uint64_t now_s = 0; now_s < 3 * 24 * kHour; now_s += 60) {
    while (!ends.empty() && ends.begin()->first <= now_s) {
      queue.ended(ends.begin()->second, now_s);
      ends.erase(ends.begin());
    }
    for (uint32_t account = 0; account < 5; ++account)
      for (; waiting[account] < 15; ++waiting[account]) {
        const uint64_t most_s = 600 + dice() % kHour;
        const uint64_t share = (1 + dice() % 20) * 50'000;
        ++id;
        asked[id] = QueuedRequest{id, account, 0, account, share, most_s};
        ASSERT_TRUE(queue.submit(asked[id], now_s));
      }
    for (uint64_t started : queue.plan(now_s).starts) {
      ends.emplace(now_s + asked[started].most_s, started);
      --waiting[asked[started].account];
    }
  }
  double sum = 0, squares = 0;
  for (uint32_t account = 0; account < 5; ++account) {
    const double got = queue.decayed_gpu_seconds(account) / policy.accounts[account].weight;
    sum += got;
    squares += got * got;
  }
  EXPECT_GE(sum * sum / (5 * squares), 0.95) << "Jain's index";
}

}  // namespace
}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// See rule_checks.h.
#include "pool/simulation/rule_checks.h"

#include <algorithm>
#include <set>

#include "pool/engine/engine.h"
#include "pool/policy/assign.h"
#include "pool/policy/policy_file.h"
#include "pool/simulation/world.h"

namespace tendril::pool::simulation {
namespace {

constexpr int64_t kStartedBeforeNs = kMinute;  // from a plan to the grant, at most
constexpr int64_t kPlannedNs = 20 * kSecond;
constexpr int64_t kHeardNs = 2 * kMinute;  // until the scheduler knows and acts
constexpr int64_t kSkewNs = 8 * kSecond;   // one order may be faster than another
constexpr uint64_t kLeastShare = 50'000;
constexpr uint64_t kStepS = 60, kLossS = 30;

std::string text(uint64_t number) { return std::to_string(number); }

bool begins(const std::string& what, const std::string& with) {
  return what.compare(0, with.size(), with) == 0;
}

bool reclaims(const std::string& what) {
  return what.find(" reclaims ") != std::string::npos || begins(what, "reservation ");
}

std::string name_of(const FakeServer& server, const FakeLease& lease) {
  return "lease " + text(lease.entry.pool_lease_id) + " on " + server.name();
}

}  // namespace

void RuleChecks::Held::add(uint64_t more_gpus, uint64_t more_leases, int64_t granted_ns) {
  gpus += more_gpus;
  leases += more_leases;
  oldest_ns = std::min(oldest_ns, granted_ns);
}

void RuleChecks::fail(const std::string& what) { world_->checks().fail(what); }

void RuleChecks::servers_changed() { servers_changed_ns_ = world_->now_ns(); }

void RuleChecks::attempt_failed() { attempt_failed_ns_ = world_->now_ns(); }

void RuleChecks::forgotten(const std::string& server) {
  forgotten_ns_[server] = world_->now_ns();
  maintenance_.erase(server);  // its record is gone
  servers_changed();
}

bool RuleChecks::was_forgotten(const std::string& server, int64_t since_ns) const {
  const auto found = forgotten_ns_.find(server);
  return found != forgotten_ns_.end() && found->second >= since_ns;
}

void RuleChecks::set_maintenance(const std::string& server, int64_t from_s, int64_t to_s) {
  maintenance_[server] = {from_s, to_s, world_->now_ns()};
  servers_changed();
}

// What was applied may have died with its scheduler. So the scheduler says which policy holds, and
// by its clock, what of it holds now.
void RuleChecks::look_at_policy() {
  FakeProcess* process = world_->scheduling();
  if (process == nullptr) return;
  const int64_t wall_s = process->now().wall_s;
  const int64_t ahead_s = wall_s - world_->now_ns() / kSecond;
  const std::string& text = process->scheduler()->policy_text();
  const bool same = text == policy_text_ && process->term() == term_ && wall_s < until_s_ &&
                    std::abs(ahead_s - ahead_s_) <= 2;
  if (same) return;
  policy_text_ = text;
  term_ = process->term();
  ahead_s_ = ahead_s;
  until_s_ = kNever;
  if (text.empty()) return;
  auto policy = parse_pool_policy(text, "policy", only_utc);
  if (!policy.ok()) return fail("the world's policy is wrong: " + policy.status().message());
  until_s_ = next_change(*policy, wall_s);
  eras_.push_back({effective(*policy, wall_s), world_->now_ns()});
}

// Nothing happened for so long that the scheduler may not know of yet.
bool RuleChecks::is_calm(int64_t for_ns) const {
  const int64_t now_ns = world_->now_ns();
  return !eras_.empty() && now_ns - eras_.back().from_ns > for_ns &&
         now_ns - servers_changed_ns_ > for_ns && now_ns - world_->scheduler_changed_ns() > for_ns;
}

uint32_t RuleChecks::class_of_gpu(size_t server, uint32_t gpu) const {
  const auto known = gpu_classes_.find({server, gpu});
  if (known != gpu_classes_.end()) return known->second;
  GpuFacts facts;
  facts.model = world_->server(server).gpus()[gpu].model;
  facts.memory_bytes = world_->server(server).gpus()[gpu].memory_bytes;
  facts.server = world_->server(server).name();
  return gpu_classes_[{server, gpu}] = class_of(policy(), facts).value_or(kNoClass);
}

uint64_t RuleChecks::amount_of(size_t server, const wire::SliceGrant& slice) const {
  const uint64_t usable = world_->server(server).usable_bytes(slice.gpu_index);
  const double part = static_cast<double>(slice.memory_bytes) / static_cast<double>(usable);
  return std::max<uint64_t>(slice.share_millionths,
                            static_cast<uint64_t>(std::min(part, 1.0) * 1'000'000));
}

// Leases that ran when the scheduler gave them up, or that are ending, are not its any more.
bool RuleChecks::counts(const FakeServer& server, const FakeLease& lease) const {
  return lease.entry.phase == wire::LeasePhase::kClaimed && lease.entry.pool_lease_id != 0 &&
         world_->truth().part_ended_ns(lease.entry.pool_lease_id) < 0 &&
         !was_forgotten(server.name(), lease.granted_ns);
}

RuleChecks::Sums RuleChecks::sums() {
  Sums sums;
  std::set<uint64_t> seen;
  for (size_t i = 0; i < world_->server_count(); ++i) {
    const FakeServer& server = world_->server(i);
    for (const auto& [id, lease] : server.leases()) {
      const wire::BookEntry& entry = lease.entry;
      const auto user_class = policy().user_class(entry.user_class);
      const auto account = policy().account(entry.account);
      if (!user_class || !account) continue;
      const bool inside = policy().user_classes[*user_class].over_quota != OverQuota::kOnly;
      if (!counts(server, lease)) continue;
      const uint64_t leases = seen.insert(entry.pool_lease_id).second ? 1 : 0;
      uint64_t all = 0;
      for (const wire::SliceGrant& slice : entry.slices) {
        const uint64_t amount = amount_of(i, slice);
        const uint32_t gpu_class = class_of_gpu(i, slice.gpu_index);
        all += amount;
        for (uint32_t of = *account; of != kNoAccount; of = policy().accounts[of].parent) {
          sums.accounts[{of, gpu_class}].add(amount, leases, lease.granted_ns);
          if (inside) sums.counted[{of, gpu_class}] += amount;
        }
      }
      sums.class_users[{*user_class, entry.owner_name}].add(all, leases, lease.granted_ns);
      for (uint32_t of = *account; of != kNoAccount; of = policy().accounts[of].parent)
        sums.account_users[{of, entry.owner_name}].add(all, leases, lease.granted_ns);
    }
  }
  return sums;
}

bool RuleChecks::policy_has(const std::string& name) const {
  return !eras_.empty() && (policy().account(name) || policy().user_class(name));
}

// With what is about to start, and with what has just ended, for the scheduler hears of both later.
void RuleChecks::note_over_quota() {
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> counted;
  const auto add = [&](size_t server, const wire::BookEntry& entry) {
    const auto user_class = policy().user_class(entry.user_class);
    const auto account = policy().account(entry.account);
    if (!user_class || !account ||
        policy().user_classes[*user_class].over_quota == OverQuota::kOnly)
      return;
    for (const wire::SliceGrant& slice : entry.slices)
      counted[{*account, class_of_gpu(server, slice.gpu_index)}] += amount_of(server, slice);
  };
  for (size_t i = 0; i < world_->server_count(); ++i)
    for (const auto& [id, lease] : world_->server(i).leases()) add(i, lease.entry);
  for (const Truth::Late& late : world_->truth().ended_just_now()) add(late.server, late.entry);
  for (const auto& [key, amount] : counted) {
    if (amount > policy().accounts[key.first].quota[key.second])
      over_quota_ns_[key] = world_->now_ns();
  }
}

// The most that any policy allowed since then.
template <typename Of>
uint64_t RuleChecks::most_since(int64_t since_ns, Of of) const {
  uint64_t most = 0;
  for (size_t i = eras_.size(); i-- > 0;) {
    if (i + 1 < eras_.size() && eras_[i + 1].from_ns < since_ns - kStartedBeforeNs) break;
    most = std::max(most, of(eras_[i].policy));
  }
  return most;
}

void RuleChecks::sweep() {
  look_at_policy();
  if (eras_.empty()) return;
  note_over_quota();
  limits(sums());
  reservations(true);
  overdue();
  starvation_.sweep(policy(), std::max({servers_changed_ns_, eras_.back().from_ns,
                                        attempt_failed_ns_, world_->scheduler_changed_ns()}));
  longest_times();
}

// Nobody has more than a policy allowed while the oldest of what they have was there.
void RuleChecks::limits(const Sums& sums) {
  ++counts_.limits;
  for (const auto& [key, held] : sums.accounts) {
    const auto account = key.first, gpu_class = key.second;
    const uint64_t most = most_since(held.oldest_ns, [&](const PoolPolicy& then) {
      return then.accounts[account].limit[gpu_class];
    });
    if (held.gpus > most) {
      return fail("account " + policy().accounts[account].name + " holds " + text(held.gpus) +
                  " of at most " + text(most) + " " + policy().gpu_classes[gpu_class].name);
    }
  }
  const auto users = [&](const auto& of_users, const char* what, auto per_user, auto name) {
    for (const auto& [key, held] : of_users) {
      const uint32_t of = key.first;
      const uint64_t gpus = most_since(
          held.oldest_ns, [&](const PoolPolicy& then) { return per_user(then, of).gpus; });
      const uint64_t leases = most_since(
          held.oldest_ns, [&](const PoolPolicy& then) { return per_user(then, of).leases; });
      if (held.gpus <= gpus && held.leases <= leases) continue;
      return fail(key.second + " has " + text(held.gpus) + " of at most " + text(gpus) + " and " +
                  text(held.leases) + " leases of at most " + text(leases) + " in " + what + " " +
                  name(of));
    }
  };
  users(
      sums.class_users, "class",
      [](const PoolPolicy& then, uint32_t of) { return then.user_classes[of].max_per_user; },
      [&](uint32_t of) { return policy().user_classes[of].name; });
  users(
      sums.account_users, "account",
      [](const PoolPolicy& then, uint32_t of) { return then.accounts[of].max_per_user; },
      [&](uint32_t of) { return policy().accounts[of].name; });
}

void RuleChecks::granted(const FakeClient& client, const wire::LeaseReply& reply) {
  look_at_policy();
  if (eras_.empty()) return;
  maintenance(client, reply);
  reservations(false);
  for (const wire::LeasePart& part : reply.parts) {
    const size_t server = world_->server_of(part.server);
    const FakeLease* lease = world_->server(server).find(part.lease_id);
    if (lease == nullptr || lease->entry.slices.empty()) continue;
    return lending(*lease, class_of_gpu(server, lease->entry.slices[0].gpu_index));
  }
}

// What starts over its account's quota leaves free what others never lend, as things were when the
// lease was planned. Nobody knows which of the leases that came just before, or ended since, were
// there then. So the check looks at each of these moments, and all of them must be wrong.
void RuleChecks::lending(const FakeLease& mine, uint32_t gpu_class) {
  if (gpu_class == kNoClass || !is_calm(kHeardNs)) return;
  ++counts_.lending;
  std::set<int64_t> moments = {mine.granted_ns - kPlannedNs, mine.granted_ns};
  for (size_t i = 0; i < world_->server_count(); ++i)
    for (const auto& [id, lease] : world_->server(i).leases())
      if (lease.granted_ns > mine.granted_ns - kPlannedNs && lease.granted_ns < mine.granted_ns)
        moments.insert(lease.granted_ns);
  std::string what;
  const bool wrong = std::all_of(moments.begin(), moments.end(), [&](int64_t before_ns) {
    return lends_too_much(mine, gpu_class, before_ns, &what);
  });
  if (wrong) fail(what);
}

// With the leases that were granted before that moment, and `mine`.
bool RuleChecks::lends_too_much(const FakeLease& mine, uint32_t gpu_class, int64_t before_ns,
                                std::string* what) const {
  const auto account = policy().account(mine.entry.account);
  const auto user_class = policy().user_class(mine.entry.user_class);
  if (!account || !user_class) return false;
  uint64_t capacity = 0, counted = 0, all = 0;
  std::map<uint32_t, uint64_t> held, needed;
  const auto add = [&](size_t server, const wire::BookEntry& entry) {
    const auto its = policy().account(entry.account);
    const auto its_class = policy().user_class(entry.user_class);
    if (!its || !its_class) return;
    for (const wire::SliceGrant& slice : entry.slices) {
      if (class_of_gpu(server, slice.gpu_index) != gpu_class) continue;
      held[*its] += amount_of(server, slice);
      if (*its == *account && policy().user_classes[*its_class].over_quota != OverQuota::kOnly)
        counted += amount_of(server, slice);
    }
  };
  for (size_t i = 0; i < world_->server_count(); ++i) {
    const FakeServer& server = world_->server(i);
    for (uint32_t gpu = 0; gpu < server.gpus().size(); ++gpu)
      if (class_of_gpu(i, gpu) == gpu_class) capacity += 1'000'000;
    for (const auto& [id, lease] : server.leases()) {
      const bool is_mine = lease.entry.pool_lease_id == mine.entry.pool_lease_id;
      if (is_mine || (counts(server, lease) && lease.granted_ns < before_ns)) add(i, lease.entry);
    }
  }
  for (const Truth::Late& late : world_->truth().ended_just_now())
    if (before_ns < mine.granted_ns && late.time_ns >= before_ns) add(late.server, late.entry);
  uint64_t quota = policy().accounts[*account].quota[gpu_class];
  for (const Reservation& of : policy().reservations) {  // theirs counts as a quota while it holds
    if (std::find(of.accounts.begin(), of.accounts.end(), *account) != of.accounts.end())
      quota = std::max(quota, of.gpus[gpu_class]);
  }
  const bool only = policy().user_classes[*user_class].over_quota == OverQuota::kOnly;
  if (!only && counted <= quota) return false;
  bool keeps = false;  // more than it holds
  // Accounts of a world have children without children, and only those hold anything.
  for (uint32_t of = 0; of < policy().accounts.size(); ++of) {
    const Account& each = policy().accounts[of];
    const uint64_t kept =
        each.quota[gpu_class] - std::min(each.quota[gpu_class], each.lending_limit[gpu_class]);
    if (std::any_of(policy().accounts.begin(), policy().accounts.end(),
                    [of](const Account& other) { return other.parent == of; }))
      continue;
    const uint64_t its = std::max(held[of], kept);
    keeps = keeps || kept > held[of];
    all += its;
    if (each.parent != kNoAccount) needed[each.parent] += its;
  }
  const uint32_t parent = policy().accounts[*account].parent;
  // What is held may be more than there is: one slice of a GPU counts as its memory, another as its
  // time. Then places decide, unless somebody keeps what is not held.
  if (all <= capacity || !keeps ||
      (parent != kNoAccount && needed[parent] <= policy().accounts[parent].quota[gpu_class]))
    return false;
  *what = "lease " + text(mine.entry.pool_lease_id) + " of " + mine.entry.account +
          " uses what others never lend: " + text(all) + " of " + text(capacity);
  return true;
}

// While a reservation holds, others are given nothing of it; and when there was time to take it
// back (`all`), they have nothing of it.
void RuleChecks::reservations(bool all) {
  FakeProcess* process = world_->scheduling();
  if (process == nullptr) return;
  const int64_t wall_s = process->now().wall_s;
  for (const Reservation& of : policy().reservations) {
    if (wall_s < of.from_s || wall_s >= of.to_s) continue;
    for (uint32_t gpu_class = 0; gpu_class < of.gpus.size(); ++gpu_class) {
      if (of.gpus[gpu_class] != 0) one_reservation(of, gpu_class, all ? wall_s : kNever);
    }
  }
}

void RuleChecks::one_reservation(const Reservation& of, uint32_t gpu_class, int64_t wall_s) {
  const int64_t now_ns = world_->now_ns();
  const int64_t began_ns = now_ns - (world_->scheduling()->now().wall_s - of.from_s) * kSecond;
  const int64_t since_ns = std::max({began_ns, eras_.back().from_ns, servers_changed_ns_,
                                     world_->scheduler_changed_ns()}) +
                           kHeardNs;
  uint64_t gpus = 0, taken = 0, others = 0;
  for (size_t i = 0; i < world_->server_count(); ++i) {
    const FakeServer& server = world_->server(i);
    if (!server.alive() || world_->is_drained(server.name())) continue;
    std::map<uint32_t, bool> lately;  // GPUs that others have: not longer than `since_ns`
    for (const auto& [id, lease] : server.leases()) {
      const auto account = policy().account(lease.entry.account);
      if (!account || lease.entry.pool_lease_id == 0) continue;
      if (std::find(of.accounts.begin(), of.accounts.end(), *account) != of.accounts.end())
        continue;
      for (const wire::SliceGrant& slice : lease.entry.slices) {
        const auto [at, first] = lately.emplace(slice.gpu_index, true);
        at->second = at->second && lease.granted_ns > since_ns;
      }
    }
    for (uint32_t gpu = 0; gpu < server.gpus().size(); ++gpu) {
      if (class_of_gpu(i, gpu) != gpu_class) continue;
      ++gpus;
      const auto found = lately.find(gpu);
      if (found == lately.end()) continue;
      ++others;
      taken += found->second ? 1 : 0;
    }
  }
  const uint64_t reserved = std::min(of.gpus[gpu_class] / 1'000'000, gpus);
  if (now_ns > since_ns) ++counts_.reserved;
  if (now_ns > since_ns && taken > gpus - reserved) {
    return fail("of " + text(gpus) + " " + policy().gpu_classes[gpu_class].name + ", " +
                text(reserved) + " are reserved for " + of.name + ", and others were given " +
                text(taken));
  }
  // Exempt for ten minutes, then warned, shrunk and requeued.
  if (wall_s == kNever || now_ns < since_ns + 20 * kMinute) return;
  ++counts_.reservations_free;
  if (others > gpus - reserved) {
    fail("of " + text(gpus) + " " + policy().gpu_classes[gpu_class].name + ", " + text(reserved) +
         " are reserved for " + of.name + ", and others still have " + text(others));
  }
}

// Nothing starts that may run into a window.
void RuleChecks::maintenance(const FakeClient& client, const wire::LeaseReply& reply) {
  FakeProcess* process = world_->scheduling();
  if (process == nullptr || !is_calm(kHeardNs)) return;
  const int64_t wall_s = process->now().wall_s;
  for (const wire::LeasePart& part : reply.parts) {
    const auto window = maintenance_.find(part.server);
    if (window == maintenance_.end() || wall_s >= window->second.to_s) continue;
    const FakeLease* lease = world_->server(world_->server_of(part.server)).find(part.lease_id);
    if (lease == nullptr) continue;
    const auto user_class = policy().user_class(lease->entry.user_class);
    if (!user_class) continue;
    uint64_t most_s = policy().user_classes[*user_class].max_wall_s;
    const uint64_t wished_s = client.plan().request.wish.longest_s;
    if (wished_s != 0) most_s = std::min(most_s, wished_s);
    ++counts_.maintenance;
    if (wall_s + static_cast<int64_t>(most_s) > window->second.from_s + 120) {
      fail("lease " + text(reply.lease_id) + " may run for " + text(most_s) +
           " s, and maintenance of " + part.server + " begins in " +
           std::to_string(window->second.from_s - wall_s) + " s");
    }
  }
}

// ---- warnings ----

// What the program did on all its servers.
void RuleChecks::idle(const FakeLease& lease, const std::string& what, int64_t at_least_ns) {
  const int64_t now_ns = world_->now_ns();
  int64_t idle_ns = INT64_MAX;
  for (size_t i = 0; i < world_->server_count(); ++i) {
    for (const auto& [id, part] : world_->server(i).leases()) {
      if (part.entry.pool_lease_id != lease.entry.pool_lease_id) continue;
      // It began to work after the order was given.
      if (part.busy_from_ns != 0 && now_ns - part.busy_from_ns < 30 * kSecond) return;
      idle_ns = std::min(idle_ns, part.idle_ns(now_ns));
    }
  }
  ++counts_.idle;
  if (idle_ns + kSkewNs < at_least_ns) {
    fail("lease " + text(lease.entry.pool_lease_id) + " " + what + " as idle after " +
         text(static_cast<uint64_t>(idle_ns / kSecond)) + " s instead of " +
         text(static_cast<uint64_t>(at_least_ns / kSecond)));
  }
}

// What made it so may be a lease that has not reached its server yet.
void RuleChecks::was_over_quota(std::pair<uint32_t, uint32_t> key, const std::string& what) {
  const int64_t since_ns = world_->now_ns() - 10 * kMinute;
  // What a silent server holds counts as held, whatever became of it there.
  if (attempt_failed_ns_ > since_ns || !world_->away().empty()) return;
  world_->clock().in(20 * kSecond, [this, key, what, since_ns] {
    note_over_quota();
    const auto over = over_quota_ns_.find(key);
    if (over != over_quota_ns_.end() && over->second > since_ns) return;
    fail(what + ": taken back, and account " + policy().accounts[key.first].name +
         " is not over its quota");
  });
  note_over_quota();
}

void RuleChecks::told(const FakeServer& server, const FakeLease& lease, const wire::Order& order) {
  look_at_policy();
  if (eras_.empty() || order.notice != wire::NoticeKind::kWarning) return;
  const auto user_class = policy().user_class(lease.entry.user_class);
  const auto account = policy().account(lease.entry.account);
  if (!user_class || !account) return;
  const UserClass& of = policy().user_classes[*user_class];
  const std::string what = name_of(server, lease) + " (" + order.text + ")";
  uint64_t least_s = 0, most_s = UINT64_MAX;
  if (begins(order.text, "it did nothing for")) {
    least_s = most_s = of.idle_grace_s;
    idle(lease, "is warned", static_cast<int64_t>(of.idle_timeout_s) * kSecond);
  } else if (begins(order.text, "nothing attached for")) {
    least_s = most_s = of.idle_grace_s;
    if (lease.entry.was_attached && !lease.entry.slices.empty() &&
        world_->now_ns() - lease.attached_ns > kMinute)
      fail(what + " is warned as unused, and was attached");
  } else if (begins(order.text, "it reaches its longest time") ||
             begins(order.text, "maintenance")) {
    most_s = of.warn_time_s;
    const FakeClient* client = world_->client(lease.client);
    const uint64_t wished_s = client == nullptr ? 1 : client->plan().request.wish.longest_s;
    least_s = std::min(of.warn_time_s, wished_s == 0 ? of.max_wall_s : wished_s) * 7 / 8;
    least_s -= std::min<uint64_t>(least_s, 1);
  } else if (reclaims(order.text)) {
    least_s = most_s = of.grace_time_s;
    ++counts_.reclaims;
    const uint32_t gpu_class =
        class_of_gpu(world_->server_of(server.name()), lease.entry.slices[0].gpu_index);
    const bool preempted = of.priority == 0;  // the class that others of a world preempt
    if (!begins(order.text, "reservation ") && !preempted && is_calm(10 * kMinute))
      was_over_quota({*account, gpu_class}, what);
  } else {
    return;
  }
  ++counts_.warnings;
  if (order.in_s < least_s || order.in_s > most_s) {
    fail(what + ": a warning of " + text(order.in_s) + " s instead of " + text(least_s) + " to " +
         text(most_s));
  }
}

// How long the holder has from such a warning to the end, at least.
uint64_t RuleChecks::least_s(const FakeServer& server, const FakeLease& lease,
                             const std::string& why, int64_t since_ns) const {
  uint64_t least = UINT64_MAX;
  const FakeClient* client = world_->client(lease.client);
  // A scheduler that forgot the server knows of a lease there only what the server says.
  const bool known = client != nullptr && !was_forgotten(server.name(), lease.granted_ns);
  const bool requeues = known && client->plan().request.wish.requeues;
  for (size_t i = eras_.size(); i-- > 0;) {
    if (i + 1 < eras_.size() && eras_[i + 1].from_ns < since_ns - kStartedBeforeNs) break;
    const auto user_class = eras_[i].policy.user_class(lease.entry.user_class);
    if (!user_class) return 0;
    const UserClass& of = eras_[i].policy.user_classes[*user_class];
    const bool is_idle = begins(why, "it did nothing for");
    uint64_t sum_s = is_idle || begins(why, "nothing attached") ? of.idle_grace_s : of.grace_time_s;
    for (const Action step : is_idle         ? of.idle_action
                             : reclaims(why) ? of.preempt_mode
                                             : std::vector<Action>()) {
      if (step == Action::kPause) sum_s += eras_[i].policy.pause_limit_s;
      if (step == Action::kShrink && known &&
          client->plan().request.slice.share_millionths > kLeastShare)
        sum_s += kStepS;
      if (step == Action::kRequeue && requeues) sum_s += std::max<uint64_t>(of.grace_time_s, 10);
      if (step == Action::kRequeue || step == Action::kEnd) break;
    }
    least = std::min(least, sum_s);
  }
  return least;
}

// A lease that its holder uses ends by order only after a warning for the same cause, and after all
// the time that the steps of its class give.
void RuleChecks::ended(const FakeServer& server, const FakeLease& lease, const wire::Order& order) {
  look_at_policy();
  const FakeClient* client = world_->client(lease.client);
  if (eras_.empty() || client == nullptr || !client->runs_whole()) return;
  const int64_t now_ns = world_->now_ns();
  const std::string what = name_of(server, lease) + " was ended (" + order.text + ") ";
  const bool stopped = begins(order.text, "it was told to stop");
  const bool lost = order.text.find("lost a part") != std::string::npos;
  const FakeLease::Told* warned = nullptr;
  for (const FakeLease::Told& each : lease.told) {
    const bool fits =
        stopped ? each.kind == wire::NoticeKind::kRequeue
        : lost  ? each.text.find("lost a part") != std::string::npos
                : begins(each.text, order.text) || (reclaims(each.text) && reclaims(order.text));
    if (!fits ||
        (each.kind != wire::NoticeKind::kWarning && each.kind != wire::NoticeKind::kRequeue))
      continue;
    // A new scheduler warns again, and the time begins anew.
    if (warned == nullptr || each.term != warned->term) warned = &each;
  }
  if (warned == nullptr) return fail(what + "without a warning of that");
  const bool fixed =
      begins(order.text, "it reaches its longest time") || begins(order.text, "maintenance");
  // A fixed end does not move for a warning that is heard a little late.
  const uint64_t least = fixed     ? warned->in_s * 7 / 8
                         : stopped ? warned->in_s
                         : lost    ? kLossS
                                   : least_s(server, lease, order.text, warned->time_ns);
  ++counts_.graces;
  const int64_t had_ns = now_ns - warned->time_ns;
  if (had_ns + kSkewNs < static_cast<int64_t>(least) * kSecond) {
    return fail(what + text(static_cast<uint64_t>(had_ns / kSecond)) +
                " s after the warning, instead of " + text(least));
  }
  const auto user_class = policy().user_class(lease.entry.user_class);
  if (user_class && begins(order.text, "it did nothing for")) {
    idle(lease, "was ended",
         static_cast<int64_t>(policy().user_classes[*user_class].idle_timeout_s + least) * kSecond);
  }
}

// ---- time ----

// The oldest that has waited for longest_wait is the next one: it starts within the longest time
// that a lease may last.
void RuleChecks::overdue() {
  if (world_->options().faults.wall_step_ns != 0) return;  // ages follow the wall's clock
  const int64_t now_ns = world_->now_ns();
  const FakeClient* oldest = nullptr;
  for (const auto& [id, client] : world_->clients()) {
    if (client->state() != ClientState::kWaiting || client->last_news().place == 0) continue;
    const std::string& reason = client->last_news().reason;
    const bool excused = begins(reason, "NeverFits") || begins(reason, "Account") ||
                         begins(reason, "ServersDown") || begins(reason, "Schedule") ||
                         begins(reason, "Reservation");
    if (excused) continue;
    if (oldest == nullptr || client->asked_ns() < oldest->asked_ns()) oldest = client.get();
  }
  const auto longest_ns = static_cast<int64_t>(policy().longest_wait_s) * kSecond;
  if (oldest == nullptr || now_ns - oldest->asked_ns() < longest_ns) {
    oldest_ = 0;
    return;
  }
  if (oldest->id() != oldest_) {
    oldest_ = oldest->id();
    oldest_since_ns_ = now_ns;
  }
  uint64_t most_s = 0;
  for (const UserClass& of : policy().user_classes) most_s = std::max(most_s, of.max_wall_s);
  ++counts_.overdue;
  const int64_t since_ns = std::max({oldest_since_ns_, servers_changed_ns_, eras_.back().from_ns,
                                     world_->scheduler_changed_ns()});
  if (now_ns - since_ns > static_cast<int64_t>(most_s) * kSecond + 15 * kMinute) {
    fail("client " + text(oldest->id()) + " has waited for " +
         text(static_cast<uint64_t>((now_ns - oldest->asked_ns()) / kSecond)) +
         " s, and nobody who may start is older: " + oldest->last_news().reason);
  }
}

// No lease outlives its longest time.
void RuleChecks::longest_times() {
  if (!is_calm(15 * kMinute) || !world_->away().empty()) return;
  ++counts_.walls;
  for (size_t i = 0; i < world_->server_count(); ++i) {
    const FakeServer& server = world_->server(i);
    for (const auto& [id, lease] : server.leases()) {
      if (!counts(server, lease)) continue;
      const auto user_class = policy().user_class(lease.entry.user_class);
      const FakeClient* client = world_->client(lease.client);
      if (!user_class || client == nullptr) continue;
      const UserClass& of = policy().user_classes[*user_class];
      uint64_t most_s = of.max_wall_s;
      const uint64_t wished_s = client->plan().request.wish.longest_s;
      if (wished_s != 0) most_s = std::min(most_s, wished_s);
      const int64_t age_ns = world_->now_ns() - lease.granted_ns;
      if (age_ns > static_cast<int64_t>(most_s + of.warn_time_s) * kSecond + 2 * kMinute) {
        return fail(name_of(server, lease) + " runs for " +
                    text(static_cast<uint64_t>(age_ns / kSecond)) + " s, and may for " +
                    text(most_s));
      }
    }
  }
}

}  // namespace tendril::pool::simulation

// SPDX-License-Identifier: Apache-2.0
// Order, the head's promise, backfill and reclaim. All rest on one property of Queue::lacks: when
// a lease ends, no request fits worse than before. So a promise that holds if every lease lasts as
// long as it may also holds if some end sooner.
#include "pool/queue/queue.h"

#include <algorithm>
#include <string>
#include <tuple>

namespace tendril::pool {

void Queue::Use::add(const QueuedRequest& request) {
  by_account[request.account] += request.share_millionths;
  by_user[{request.user_class, request.user}] += request.share_millionths;
  total += request.share_millionths;
}

void Queue::Use::remove(const QueuedRequest& request) {
  by_account[request.account] -= request.share_millionths;
  const auto user = by_user.find({request.user_class, request.user});
  user->second -= request.share_millionths;
  if (user->second == 0) by_user.erase(user);
  total -= request.share_millionths;
}

base::Status Queue::submit(const QueuedRequest& request, uint64_t now_s) {
  if (request.account >= policy_.accounts.size() || request.user_class >= policy_.classes.size())
    return base::Status(base::Code::kInvalid,
                        "the policy has no account number " + std::to_string(request.account) +
                            " or no user class number " + std::to_string(request.user_class));
  if (request.share_millionths == 0 || lacks(nothing(), request))
    return base::Status(base::Code::kRefused,
                        "a request for " + std::to_string(request.share_millionths) +
                            " millionths of a GPU never fits what account " +
                            policy_.accounts[request.account].name + " and its users may have of " +
                            std::to_string(capacity_) + "; ask for less");
  advance(now_s);
  waiting_.push_back(Entry{request, now_s, 0, 0, false});
  return {};
}

void Queue::ended(uint64_t id, uint64_t now_s) {
  advance(now_s);
  if (promised_ == id) promised_.reset();
  std::erase_if(waiting_, [id](const Entry& entry) { return entry.request.id == id; });
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  use_.remove(found->second.request);
  running_.erase(found);
}

void Queue::requeue(uint64_t id, uint64_t now_s) {
  const auto found = running_.find(id);
  if (found == running_.end()) return;
  Entry entry = found->second;
  ended(id, now_s);
  entry.reclaimed = false;
  waiting_.push_back(entry);
}

void Queue::set_capacity(uint64_t capacity_millionths) {
  if (capacity_millionths < capacity_) promised_.reset();
  capacity_ = capacity_millionths;
}

QueuePlan Queue::plan(uint64_t now_s) {
  advance(now_s);
  sort(now_s);
  QueuePlan plan;
  std::optional<Head> head;
  std::vector<Entry> still_waiting;
  for (Entry& entry : waiting_) {
    const QueuedRequest& request = entry.request;
    std::optional<WaitReason> reason = lacks(use_, request);
    if (head && !reason && now_s + request.most_s > head->start_by_s) {
      head->then.add(request);
      if (lacks(head->then, head->request)) {
        head->then.remove(request);
        reason = WaitReason::kPriority;
      }
    }
    if (!reason) {
      if (promised_ == request.id) promised_.reset();
      plan.starts.push_back(request.id);
      start(entry, now_s);
      continue;
    }
    plan.waiting.push_back(Waiting{request.id, *reason, std::nullopt});
    if (!head && may_be_head(entry, *reason, now_s)) {
      for (uint64_t id : reclaim_for(request, now_s)) plan.reclaims.push_back(id);
      if (const auto start_by_s = earliest_start(request, now_s)) {
        head = Head{request, *start_by_s, use_at(*start_by_s)};
        promised_ = request.id;
        plan.waiting.back().start_by_s = start_by_s;
      }
    } else if (reason == WaitReason::kResources) {
      plan.waiting.back().reason = WaitReason::kPriority;
    }
    still_waiting.push_back(entry);
  }
  waiting_ = std::move(still_waiting);
  return plan;
}

bool Queue::may_be_head(const Entry& entry, WaitReason reason, uint64_t now_s) const {
  return promised_ == entry.request.id || overdue(entry, now_s) || reason == WaitReason::kResources;
}

bool Queue::overdue(const Entry& entry, uint64_t now_s) const {
  return now_s - entry.submitted_s >= policy_.longest_wait_s;
}

uint64_t Queue::used(uint32_t account) const { return use_.by_account[account]; }

uint64_t Queue::used_by_user(uint32_t user_class, uint32_t user) const {
  const auto found = use_.by_user.find({user_class, user});
  return found == use_.by_user.end() ? 0 : found->second;
}

Queue::Use Queue::use_at(uint64_t time_s) const {
  Use use = use_;
  for (const auto& [id, entry] : running_)
    if (entry.ends_by_s <= time_s) use.remove(entry.request);
  return use;
}

bool Queue::inside_quota(const Use& use, const QueuedRequest& request) const {
  return use.by_account[request.account] + request.share_millionths <=
         policy_.accounts[request.account].quota;
}

std::optional<WaitReason> Queue::lacks(const Use& use, const QueuedRequest& request) const {
  const QueueAccount& account = policy_.accounts[request.account];
  const uint64_t wanted = use.by_account[request.account] + request.share_millionths;
  if (wanted > account.limit) return WaitReason::kLimit;
  const auto user = use.by_user.find({request.user_class, request.user});
  const uint64_t of_user = user == use.by_user.end() ? 0 : user->second;
  if (of_user + request.share_millionths > policy_.classes[request.user_class].most_per_user)
    return WaitReason::kUserLimit;
  const bool inside = inside_quota(use, request);
  if (use.total + request.share_millionths > capacity_)
    return inside ? WaitReason::kResources : WaitReason::kQuota;
  if (inside) return std::nullopt;
  // Over quota: the part that other accounts never lend must stay free beside what they use.
  uint64_t taken = wanted;
  for (uint32_t other = 0; other < use.by_account.size(); ++other)
    if (other != request.account) taken += std::max(use.by_account[other], floor_[other]);
  if (taken > capacity_) return WaitReason::kQuota;
  return std::nullopt;
}

void Queue::sort(uint64_t now_s) {
  const auto key = [&](const Entry& entry) {
    const QueuedRequest& request = entry.request;
    const QueueAccount& account = policy_.accounts[request.account];
    const bool late = overdue(entry, now_s);
    const double used = usage_[request.account].gpu_seconds() / std::max(account.weight, 1e-9);
    return std::tuple(
        promised_ != request.id, !late, late ? 0 : -policy_.classes[request.user_class].priority,
        !late && !inside_quota(use_, request), late ? 0 : used, entry.submitted_s, request.id);
  };
  std::sort(waiting_.begin(), waiting_.end(),
            [&](const Entry& left, const Entry& right) { return key(left) < key(right); });
}

std::optional<uint64_t> Queue::earliest_start(const QueuedRequest& request, uint64_t now_s) const {
  std::vector<std::pair<uint64_t, const Entry*>> ends;
  for (const auto& [id, entry] : running_) ends.emplace_back(entry.ends_by_s, &entry);
  std::sort(ends.begin(), ends.end());
  Use use = use_;
  for (size_t i = 0; i < ends.size(); ++i) {
    use.remove(ends[i].second->request);
    if (i + 1 < ends.size() && ends[i + 1].first == ends[i].first) continue;
    if (!lacks(use, request)) return std::max(ends[i].first, now_s);
  }
  return std::nullopt;
}

std::vector<uint64_t> Queue::reclaim_for(const QueuedRequest& request, uint64_t now_s) {
  if (!inside_quota(use_, request)) return {};
  std::vector<Entry*> candidates;
  Use use = use_;
  for (auto& [id, entry] : running_) {
    const QueueClass& of = policy_.classes[entry.request.user_class];
    if (entry.reclaimed)
      use.remove(entry.request);  // it ends soon
    else if (of.reclaimable && now_s >= entry.started_s + of.reclaim_exempt_s)
      candidates.push_back(&entry);
  }
  // The least important first. Among equals, the one that loses least.
  std::sort(candidates.begin(), candidates.end(), [&](const Entry* left, const Entry* right) {
    const int32_t of_left = policy_.classes[left->request.user_class].priority;
    const int32_t of_right = policy_.classes[right->request.user_class].priority;
    return std::tuple(of_left, right->started_s, right->request.id) <
           std::tuple(of_right, left->started_s, left->request.id);
  });
  std::vector<Entry*> chosen;
  for (Entry* entry : candidates) {
    if (!lacks(use, request)) break;
    const QueuedRequest& other = entry->request;
    if (use.by_account[other.account] <= policy_.accounts[other.account].quota) continue;
    use.remove(other);
    chosen.push_back(entry);
  }
  if (lacks(use, request)) return {};
  std::vector<uint64_t> reclaims;
  for (Entry* entry : chosen) {
    entry->reclaimed = true;
    entry->ends_by_s = std::min(entry->ends_by_s, now_s + policy_.reclaim_grace_s);
    reclaims.push_back(entry->request.id);
  }
  return reclaims;
}

void Queue::advance(uint64_t now_s) {
  for (size_t account = 0; account < usage_.size(); ++account)
    usage_[account].advance(now_s, static_cast<double>(use_.by_account[account]) / 1e6,
                            policy_.usage_half_life_s);
}

void Queue::start(Entry entry, uint64_t now_s) {
  entry.started_s = now_s;
  entry.ends_by_s = now_s + entry.request.most_s;
  use_.add(entry.request);
  running_[entry.request.id] = entry;
}

}  // namespace tendril::pool

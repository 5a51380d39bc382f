// SPDX-License-Identifier: Apache-2.0
// The queue of one class of GPUs: what starts now, what waits and why, and what is to be reclaimed.
// It counts shares of GPUs and leaves their places to placement/. It has no clock: the caller
// passes the time, which never runs backwards. The scheduler calls it, one call at a time.
//
// Order: requests that have waited longest_wait_s; then priority; then requests inside their
// account's quota; then decayed usage over weight; then age. The first request that has a right to
// start and lacks room is the head. It gets a time by which it starts: when enough leases must have
// ended. No request that starts later may delay it. So another starts before it only if the head
// still fits then.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "base/result.h"
#include "pool/queue/policy.h"
#include "pool/queue/usage.h"

namespace tendril::pool {

struct QueuedRequest {
  uint64_t id = 0;  // unique among those that wait or run
  uint32_t account = 0;
  uint32_t user_class = 0;
  uint32_t user = 0;
  uint64_t share_millionths = 0;  // of all its slices
  uint64_t most_s = 0;            // it is ended after this time
};

enum class WaitReason : uint8_t {
  kResources,  // it is the head: not enough is free
  kPriority,   // it would delay the head, or nothing is free and others go first
  kQuota,      // it is over its account's quota, and others lend no more
  kLimit,      // its account has reached its limit
  kUserLimit,  // its user has reached the class's limit
};

struct Waiting {
  uint64_t id = 0;
  WaitReason reason = WaitReason::kPriority;
  std::optional<uint64_t> start_by_s;  // of the head
};

struct QueuePlan {
  std::vector<uint64_t> starts;    // in this order; they count as running from now on
  std::vector<uint64_t> reclaims;  // end these after the grace; given once for each
  std::vector<Waiting> waiting;    // in order
};

class Queue {
 public:
  Queue(QueuePolicy policy, uint64_t capacity_millionths)
      : policy_(std::move(policy)),
        capacity_(capacity_millionths),
        usage_(policy_.accounts.size()),
        floor_(policy_.accounts.size()) {
    for (size_t i = 0; i < floor_.size(); ++i) {
      const QueueAccount& account = policy_.accounts[i];
      floor_[i] = account.quota > account.lending_limit ? account.quota - account.lending_limit : 0;
    }
  }

  // kInvalid: no such account or class. kRefused: it would not fit if nothing else ran.
  base::Status submit(const QueuedRequest& request, uint64_t now_s);
  // A lease ended, by itself or because it was reclaimed, or a request left the queue. Does nothing
  // for an unknown id.
  void ended(uint64_t id, uint64_t now_s);
  // A reclaimed request waits again, with its old age.
  void requeue(uint64_t id, uint64_t now_s);
  // Servers came or went. If the capacity shrinks, the head's promise is withdrawn.
  void set_capacity(uint64_t capacity_millionths);

  QueuePlan plan(uint64_t now_s);

  uint64_t used(uint32_t account) const;
  uint64_t used_by_user(uint32_t user_class, uint32_t user) const;
  double decayed_gpu_seconds(uint32_t account) const { return usage_[account].gpu_seconds(); }
  size_t waiting() const { return waiting_.size(); }
  size_t running() const { return running_.size(); }

 private:
  struct Entry {
    QueuedRequest request;
    uint64_t submitted_s = 0;
    uint64_t started_s = 0;
    uint64_t ends_by_s = 0;
    bool reclaimed = false;
  };
  // What is used, now or at a later time.
  struct Use {
    std::vector<uint64_t> by_account;
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> by_user;  // (class, user)
    uint64_t total = 0;
    void add(const QueuedRequest& request);
    void remove(const QueuedRequest& request);
  };
  struct Head {
    QueuedRequest request;
    uint64_t start_by_s = 0;
    Use then;  // what is in use at that time, if all leases last as long as they may
  };

  Use nothing() const { return Use{std::vector<uint64_t>(policy_.accounts.size()), {}, 0}; }
  Use use_at(uint64_t time_s) const;
  // Why the request does not fit beside what is used; nothing if it fits. A request that fits still
  // fits when less is used.
  std::optional<WaitReason> lacks(const Use& use, const QueuedRequest& request) const;
  bool inside_quota(const Use& use, const QueuedRequest& request) const;
  bool may_be_head(const Entry& entry, WaitReason reason, uint64_t now_s) const;
  bool overdue(const Entry& entry, uint64_t now_s) const;
  void sort(uint64_t now_s);
  // The time by which enough leases must have ended. Nothing if it does not fit even then.
  std::optional<uint64_t> earliest_start(const QueuedRequest& request, uint64_t now_s) const;
  std::vector<uint64_t> reclaim_for(const QueuedRequest& request, uint64_t now_s);
  void advance(uint64_t now_s);
  void start(Entry entry, uint64_t now_s);

  QueuePolicy policy_;
  uint64_t capacity_;
  std::vector<DecayedUsage> usage_;
  std::vector<uint64_t> floor_;  // the part of each account's quota that it never lends
  std::vector<Entry> waiting_;
  std::map<uint64_t, Entry> running_;
  Use use_ = nothing();
  std::optional<uint64_t> promised_;  // the head's id, until it starts
};

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// A server of the pool in a simulated world: the real book (lease/), with what tendrild does around
// it: reports, orders, claims, leases that end, admission without a scheduler. Its clock is the
// world's. What it does is the truth that checks.h compares with what the scheduler believes.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "lease/holds.h"
#include "lease/lease_book.h"
#include "pool/simulation/clockwork.h"
#include "wire/pool.h"

namespace tendril::pool::simulation {

class World;

struct FakeLease {
  wire::BookEntry entry;  // times in it are filled in when it is reported
  uint64_t client = 0;    // that claimed it
  std::string secret;
  int64_t granted_ns = 0, paused_ns = 0;
  // Work so far: from each start to its end; the last may lie in the future.
  int64_t busy_from_ns = 0, busy_until_ns = 0, busy_before_ns = 0;
  int64_t attached_ns = 0;
  struct Told {
    int64_t time_ns = 0;
    uint64_t term = 0;
    wire::NoticeKind kind = wire::NoticeKind::kWarning;
    std::string text;
    uint64_t in_s = 0;
  };
  std::vector<Told> told;  // by the scheduler
  int64_t reported_ns = 0;

  int64_t busy_ns(int64_t now_ns) const;
  int64_t idle_ns(int64_t now_ns) const;
};

struct FakeGpu {
  std::string model;
  uint64_t memory_bytes = 0;
};

class FakeServer {
 public:
  FakeServer(World* world, size_t index, std::vector<FakeGpu> gpus);

  size_t index() const { return index_; }
  const std::string& name() const { return name_; }
  const std::vector<FakeGpu>& gpus() const { return gpus_; }
  uint64_t usable_bytes(uint32_t gpu) const;
  bool alive() const { return alive_; }
  uint64_t boot() const { return boot_; }
  const std::map<uint64_t, FakeLease>& leases() const { return leases_; }
  const lease::LeaseBook& book() const { return *book_; }
  const FakeLease* find(uint64_t lease_id) const;
  bool admits_alone() const;
  uint64_t highest_term() const { return holds_->term(); }

  void start();
  void crash();
  // That process schedules now.
  void seek(size_t process);
  void wire_gone(uint64_t wire);
  void answered(uint64_t wire, const base::Status& status, const wire::PoolOrders& orders);
  bool has_wire_to(size_t process) const;

  // Its clients.
  base::Result<std::vector<wire::SliceGrant>> claim(uint64_t lease_id, const std::string& secret,
                                                    uint64_t client);
  base::Result<uint64_t> lease_directly(const wire::LeaseRequest& request, uint64_t client,
                                        const std::string& owner);
  void attach(uint64_t lease_id);
  void work(uint64_t lease_id, int64_t for_ns);
  void let_go(uint64_t lease_id, const std::string& why);

 private:
  struct Link {
    size_t process = 0;
    uint64_t wire = 0;
    uint64_t number = 0;
    bool waits = false;  // for the answer to a report
    bool facts_sent = false;
    std::deque<uint64_t> rest_of_full;
    bool full = false;
    std::set<uint64_t> changed;
    uint64_t ended_sent = 0;
    int64_t uses_ns = 0;
    std::vector<wire::OrderResult> results;
  };

  void try_to_connect(size_t process);
  void report(Link* link);
  wire::ServerFacts facts() const;
  wire::BookEntry entry(const FakeLease& lease) const;
  void changed(uint64_t lease_id);
  void tell(const FakeLease& lease, wire::NoticeKind kind, const std::string& text, uint64_t in_s);
  wire::OrderResult perform(const wire::Order& order, uint64_t term);
  base::Status hold(const wire::Order& order, uint64_t term, wire::OrderResult* result);
  base::Status perform_on(const wire::Order& order, uint64_t term, FakeLease* lease);
  FakeLease* of_order(const wire::Order& order);
  void end(uint64_t lease_id, const std::string& why);
  void expire();
  void expire_later();

  World* const world_;
  const size_t index_;
  const std::string name_;
  const std::vector<FakeGpu> gpus_;
  bool alive_ = false, draining_ = false;
  uint64_t boot_ = 0, lives_ = 0;
  uint64_t next_lease_ = 1, ended_count_ = 0;
  int64_t spoken_ns_ = 0;
  std::unique_ptr<lease::LeaseBook> book_;
  std::unique_ptr<lease::Holds> holds_;
  std::map<uint64_t, FakeLease> leases_;
  std::deque<wire::BookEntry> ended_;
  std::map<size_t, Link> links_;  // by process
  std::set<size_t> sought_;
};

}  // namespace tendril::pool::simulation

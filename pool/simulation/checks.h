// SPDX-License-Identifier: Apache-2.0
// The promises of a pool, compared with what the servers' books and the clients say. The first one
// that is broken ends a simulation. Truth remembers what the servers did, for the accounting.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "pool/simulation/fake_client.h"
#include "pool/simulation/fake_server.h"

namespace tendril::pool::simulation {

class World;

class Truth {
 public:
  explicit Truth(World* world) : world_(world) {}

  struct Ended {
    wire::BookEntry entry;
    int64_t time_ns = 0;
    bool crashed = false;  // with its server; its sums are not known to anybody
    bool acknowledged = false;
    bool claimed = false;  // it was somebody's, not only promised
  };
  using Key = std::tuple<std::string, uint64_t, uint64_t>;  // server, boot, lease

  void ended(const FakeServer& server, const wire::BookEntry& entry, bool claimed);
  void crashed(const FakeServer& server);
  void acknowledged(const FakeServer& server, const wire::BookEntry& entry);
  void ordered_to_end(const FakeServer& server, const FakeLease& lease, const wire::Order& order);
  void cancelled(const FakeServer& server, const FakeLease& lease);
  const std::map<Key, Ended>& all() const { return ended_; }
  int64_t crashed_ns(const std::string& server) const;
  // The last time that a part of that lease of the pool ended.
  int64_t part_ended_ns(uint64_t pool_lease_id) const;
  bool ended_lately(const FakeServer& server, uint64_t lease_id) const;
  // What ended in the last half minute: the scheduler may not know it yet.
  struct Late {
    int64_t time_ns = 0;
    size_t server = 0;
    wire::BookEntry entry;
  };
  const std::deque<Late>& ended_just_now() const { return just_now_; }

 private:
  void remember(const FakeServer& server, const wire::BookEntry& entry);

  World* const world_;
  std::deque<Late> just_now_;
  std::map<Key, Ended> ended_;
  std::map<std::string, int64_t> crashed_ns_;
  std::map<uint64_t, int64_t> part_ended_ns_;
};

class Checks {
 public:
  explicit Checks(World* world) : world_(world) {}

  const std::string& broken() const { return broken_; }
  void fail(const std::string& text);

  void heard(const FakeClient& client, const wire::News& news);
  void answered(const FakeClient& client, const base::Status& status,
                const wire::LeaseReply& reply);
  void lost_answer(const FakeClient& client, const base::Status& status,
                   const wire::LeaseReply& reply);
  void claim_failed(const FakeClient& client, const Part& part, const base::Status& status);
  // All servers and clients, once in a while.
  void sweep();
  uint64_t accounted() const { return accounted_; }
  // After everything has ended.
  void finish();
  // Logs what the scheduler thinks, for who reads why a promise was broken.
  void describe();

 private:
  struct Answer {
    uint64_t lease_id = 0, held_as = 0;
    int64_t time_ns = 0;
    std::vector<std::string> servers;
  };
  bool was_forgotten(const Answer& answer) const;
  void granted(const FakeClient& client, const wire::LeaseReply& reply);
  void parts(const FakeClient& client, const wire::LeaseReply& reply);
  void books();
  void gangs();
  void waits();
  void accounting();
  std::string differs(const Truth::Key& key, const Truth::Ended& ended,
                      const std::string& json) const;
  bool was_disturbed(int64_t within_ns) const;

  World* const world_;
  std::string broken_;
  uint64_t accounted_ = 0;
  std::map<std::string, Answer> answers_;  // by request key
  std::map<uint64_t, int64_t> partial_since_ns_;
};

}  // namespace tendril::pool::simulation

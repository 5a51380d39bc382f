// SPDX-License-Identifier: Apache-2.0
// A small world for tests of the scheduler: servers with a simple book, clients, and a store that
// remembers. A test scripts it; nothing here is random. pool/simulation has the large one.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pool/accounting/history.h"
#include "pool/scheduler/scheduler.h"

namespace tendril::pool {

class TestServer {
 public:
  TestServer(std::string name, uint32_t gpus, uint64_t boot = 7) : boot(boot) {
    facts.name = std::move(name);
    facts.server_id = "id of " + facts.name;
    facts.endpoint = facts.name + ":7433";
    facts.boot = boot;
    facts.product_version = "0.1.0";
    for (uint32_t i = 0; i < gpus; ++i) {
      wire::GpuRecord gpu;
      gpu.index = i;
      gpu.name = "NVIDIA H200";
      gpu.memory_total_bytes = gpu.memory_usable_bytes = uint64_t(100) << 30;
      gpu.compute_capability = 90;
      facts.gpus.push_back(gpu);
    }
  }

  // The next report: the whole book first, then what changed and what came of orders.
  wire::PoolReport report() {
    wire::PoolReport report;
    report.boot = boot;
    report.number = ++number;
    report.full = number == 1;
    if (report.full) report.facts.push_back(facts);
    for (const auto& [id, entry] : book) report.entries.push_back(entry);
    for (const wire::BookEntry& entry : ended) report.entries.push_back(entry);
    report.results = std::move(results);
    results.clear();
    for (const uint64_t lease : watched) {
      if (book.count(lease) != 0) report.counts.push_back({lease, 70, 7, 5, 30, 20, "shm"});
    }
    return report;
  }

  void obey(const wire::PoolOrders& orders) {
    while (!ended.empty() && ended.front().ended_number <= orders.ended_stored) {
      ended.erase(ended.begin());
    }
    if (orders.wants_full) number = 0;
    policy_revision = orders.policy_revision;
    watched = orders.watched;
    if (orders.peers_begin) peers.clear();
    for (const wire::PoolPeer& peer : orders.peers)
      peers[peer.name] = peer.endpoint + "/" + std::to_string(peer.passage_id.size());
    for (const wire::Order& order : orders.orders) obey(order);
  }

  void obey(const wire::Order& order) {
    const bool drains = order.kind == wire::OrderKind::kDrain;
    if (drains || order.kind == wire::OrderKind::kUndrain) {
      drained = drains;
    } else {
      seen.push_back(order);
    }
    wire::OrderResult result;
    result.order_id = order.order_id;
    wire::BookEntry* entry = find(order);
    if (order.kind == wire::OrderKind::kHold && refuses_holds) {
      result.code = base::Code::kRefused;
      result.text = "full";
    } else if (order.kind == wire::OrderKind::kHold) {
      if (entry == nullptr) entry = &book[next_lease];
      if (entry->lease_id == 0) {
        entry->lease_id = next_lease++;
        entry->pool_lease_id = order.pool_lease_id;
        entry->owner_id = order.owner_id;
        entry->owner_name = order.owner_name;
        entry->account = order.account;
        entry->user_class = order.user_class;
        entry->client = order.client;
        for (uint32_t gpu : order.gpus) {
          entry->slices.push_back({gpu, order.slice.share_millionths, uint64_t(1) << 30, false});
        }
      }
      result.lease_id = entry->lease_id;
    } else if (order.kind == wire::OrderKind::kCommit) {
      if (entry == nullptr || refuses_commits) {
        result.code = base::Code::kNotFound;
        result.text = "no such hold";
      } else {
        if (entry->phase == wire::LeasePhase::kHeld) entry->phase = wire::LeasePhase::kCommitted;
        result.lease_id = entry->lease_id;
        result.secret = "secret " + std::to_string(entry->lease_id);
      }
    } else if (order.kind == wire::OrderKind::kCancel) {
      if (entry != nullptr) book.erase(entry->lease_id);
    } else if (order.kind == wire::OrderKind::kEnd) {
      if (entry == nullptr) {
        result.code = base::Code::kNotFound;
      } else {
        end(entry->lease_id, order.text);
      }
    } else if (order.kind == wire::OrderKind::kPause && entry != nullptr) {
      entry->paused = true;
    } else if (order.kind == wire::OrderKind::kResume && entry != nullptr) {
      entry->paused = false;
    } else if (order.kind == wire::OrderKind::kPark && entry != nullptr) {
      entry->standing = wire::Standing::kParked;
      entry->stays_bytes.assign(entry->slices.size(), 0);
    } else if (order.kind == wire::OrderKind::kMayWake && entry != nullptr && entry->wants_wake) {
      entry->standing = wire::Standing::kReturning;
      entry->wants_wake = false;
    } else if (order.kind == wire::OrderKind::kChange && entry != nullptr &&
               (order.share_millionths != 0 || order.memory_bytes != 0) && refuses_changes) {
      result.code = base::Code::kRefused;
      result.text = "others have it";
    } else if (order.kind == wire::OrderKind::kChange && entry != nullptr) {
      for (wire::SliceGrant& slice : entry->slices) {
        if (order.share_millionths != 0) slice.share_millionths = order.share_millionths;
        if (order.memory_bytes != 0) slice.memory_bytes = order.memory_bytes;
      }
    }
    results.push_back(result);
  }

  wire::BookEntry* find(const wire::Order& order) {
    for (auto& [id, entry] : book) {
      if (order.pool_lease_id != 0 ? entry.pool_lease_id == order.pool_lease_id
                                   : id == order.lease_id) {
        return &entry;
      }
    }
    return nullptr;
  }

  // The lease with this number of the server's, by its client.
  void claim(uint64_t lease) { book.at(lease).phase = wire::LeasePhase::kClaimed; }
  void end(uint64_t lease, const std::string& why) {
    wire::BookEntry entry = book.at(lease);
    book.erase(lease);
    entry.phase = wire::LeasePhase::kEnded;
    entry.why = why;
    entry.ended_number = ++ended_count;
    ended.push_back(entry);
  }
  // As one that the server grants by itself.
  uint64_t grant(uint32_t gpu, uint32_t share_millionths, const std::string& owner) {
    wire::BookEntry entry;
    entry.lease_id = next_lease++;
    entry.phase = wire::LeasePhase::kClaimed;
    entry.owner_id = entry.owner_name = owner;
    entry.slices.push_back({gpu, share_millionths, uint64_t(1) << 30, false});
    book[entry.lease_id] = entry;
    return entry.lease_id;
  }
  void restart() {
    book.clear();
    results.clear();
    ended.clear();
    ended_count = number = 0;
    facts.boot = ++boot;
  }

  wire::ServerFacts facts;
  uint64_t boot;
  uint64_t number = 0, next_lease = 1, ended_count = 0, policy_revision = 0;
  std::map<uint64_t, wire::BookEntry> book;
  std::vector<wire::BookEntry> ended;
  std::vector<wire::OrderResult> results;
  std::vector<wire::Order> seen;  // all but those of draining
  std::vector<uint64_t> watched;
  bool drained = false;
  std::map<std::string, std::string> peers;  // endpoint and length of the id, by name
  bool refuses_holds = false, refuses_commits = false, refuses_changes = false;
  bool reachable = true;
  uint64_t connection = 0;
};

class TestWorld {
 public:
  TestWorld() { begin(1); }

  // Another scheduler with what the store has; all connections are new.
  void begin(uint64_t term) {
    SchedulerOptions options;
    options.term = term;
    scheduler = std::make_unique<Scheduler>(std::move(options));
    std::vector<std::pair<std::string, std::string>> records;
    for (const auto& [key, value] : store) {
      const bool is_pools = key.compare(0, 5, Scheduler::kStorePrefix) == 0;
      const bool is_historys = key.rfind(keys::kHistory, 0) == 0;
      if (is_pools || is_historys) records.emplace_back(key, value);
    }
    unwritten.clear();
    server_of.clear();
    for (auto& [name, server] : servers) {
      server->connection = 0;
      server->number = 0;
    }
    scheduler->recover(records, now);
  }

  TestServer& add(const std::string& name, uint32_t gpus) {
    servers[name] = std::make_unique<TestServer>(name, gpus);
    return *servers[name];
  }

  void connect(TestServer& server) {
    server.connection = next_connection++;
    server.number = 0;
    server_of[server.connection] = &server;
    scheduler->reported(server.connection, server.facts.name, server.report(), now);
  }
  void cut(TestServer& server) {
    if (server.connection == 0) return;
    scheduler->lost(server.connection, now);
    server_of.erase(server.connection);
    server.connection = 0;
  }

  uint64_t ask(const std::string& owner, uint32_t count, double share,
               wire::PoolWish wish = wire::PoolWish()) {
    wire::LeaseRequest request;
    request.count = count;
    request.slice.share_millionths = uint32_t(share * 1e6);
    request.wish = std::move(wish);
    return ask(owner, request);
  }
  uint64_t ask(const std::string& owner, const wire::LeaseRequest& request) {
    const uint64_t connection = next_connection++;
    scheduler->submitted(connection, who(owner), request, now);
    return connection;
  }
  std::string command(const std::string& verb, std::vector<std::string> arguments = {},
                      const std::string& body = "") {
    const uint64_t connection = next_connection++;
    Asker asker = who("admin");
    asker.sees_all = asker.rules_all = true;
    scheduler->command(connection, asker, {verb, std::move(arguments), body}, now);
    settle();
    auto found = commanded.find(connection);
    if (found == commanded.end()) return "no answer";
    return found->second.status.ok() ? found->second.json : found->second.status.message();
  }
  static Asker who(const std::string& name) {
    Asker asker;
    asker.id = asker.name = name;
    asker.role = "user";
    return asker;
  }

  // One round: the driver's work, and servers' next reports. True if anything happened.
  bool step() {
    Effects effects = scheduler->tick(now);
    again_ns = effects.again_ns;
    bool any = !effects.empty();
    for (Batch& batch : effects.writes) {
      unwritten.push_back(std::move(batch));
    }
    for (auto& event : effects.events) events.push_back(event.what + " " + event.object);
    for (auto& answer : effects.to_clients) answers[answer.connection].push_back(answer);
    for (auto& told : effects.news) news[told.connection].push_back(told.news);
    for (auto& answer : effects.to_commanders) commanded[answer.connection] = answer;
    for (auto& answer : effects.to_servers) {
      auto found = server_of.find(answer.connection);
      if (found == server_of.end()) continue;
      TestServer& server = *found->second;
      if (!answer.status.ok()) {
        refusals.push_back(answer.status.message());
        server.connection = 0;
        server_of.erase(found);
        continue;
      }
      if (!server.reachable) continue;
      server.obey(answer.orders);
      scheduler->reported(answer.connection, server.facts.name, server.report(), now);
    }
    if (store_works && !unwritten.empty()) {
      for (const Batch& batch : unwritten) {
        for (const Write& write : batch.writes) {
          if (write.value) {
            store[write.key] = *write.value;
          } else {
            store.erase(write.key);
          }
        }
        scheduler->stored(batch.number, base::Status(), now);
      }
      unwritten.clear();
    }
    return any;
  }
  void settle() {
    for (auto& [name, server] : servers) {
      if (server->reachable && server->connection == 0) connect(*server);
    }
    for (int i = 0; i < 50 && step(); ++i) {
    }
  }
  void pass(double seconds) {
    const uint64_t end_ns = now.monotonic_ns + uint64_t(seconds * 1e9);
    settle();
    while (now.monotonic_ns < end_ns) {
      const uint64_t step_ns = std::min<uint64_t>(end_ns - now.monotonic_ns, 500'000'000);
      now.monotonic_ns += step_ns;
      wall_rest_ns += step_ns;
      now.wall_s += int64_t(wall_rest_ns / 1'000'000'000);
      wall_rest_ns %= 1'000'000'000;
      for (auto& [name, server] : servers) {
        for (auto& [id, entry] : server->book) {
          entry.age_ns += step_ns;
          if (entry.idle_ns != wire::kIdleUnknown) entry.idle_ns += step_ns;
        }
      }
      settle();
    }
  }

  const Effects::ToClient* answer(uint64_t connection) const {
    auto found = answers.find(connection);
    return found == answers.end() ? nullptr : &found->second.back();
  }
  size_t held_on(const std::string& name) { return servers.at(name)->book.size(); }
  // The client of this answer claims all its parts.
  void claim(uint64_t connection) {
    const Effects::ToClient* given = answer(connection);
    ASSERT_NE(given, nullptr);
    ASSERT_TRUE(given->status.ok()) << given->status.message();
    for (const wire::LeasePart& part : given->reply.parts) {
      servers.at(part.server)->claim(part.lease_id);
    }
    pass(3);
  }

  // Asks, and claims what it is given.
  uint64_t start(const std::string& owner, uint32_t count, double share,
                 wire::PoolWish wish = wire::PoolWish()) {
    const uint64_t connection = ask(owner, count, share, std::move(wish));
    settle();
    claim(connection);
    return connection;
  }

  Now now{1'000'000'000'000, 1'700'000'000};
  uint64_t wall_rest_ns = 0, again_ns = 0;
  std::unique_ptr<Scheduler> scheduler;
  std::map<std::string, std::unique_ptr<TestServer>> servers;
  std::map<uint64_t, TestServer*> server_of;
  std::map<uint64_t, std::vector<Effects::ToClient>> answers;
  std::map<uint64_t, std::vector<wire::News>> news;
  std::map<uint64_t, Effects::ToCommander> commanded;
  std::vector<std::string> events, refusals;
  std::map<std::string, std::string> store;
  std::vector<Batch> unwritten;
  bool store_works = true;
  uint64_t next_connection = 1;
};

}  // namespace tendril::pool

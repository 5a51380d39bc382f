// SPDX-License-Identifier: Apache-2.0
// A pool with everything that can go wrong with it: servers, clients, processes of schedulers, the
// connections between them, a store, clocks, and administrators who change their minds. All of it
// follows from a seed. checks.h says at every step whether the pool kept its promises.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "pool/simulation/checks.h"
#include "pool/simulation/clockwork.h"
#include "pool/simulation/fake_client.h"
#include "pool/simulation/fake_process.h"
#include "pool/simulation/fake_server.h"
#include "pool/simulation/fake_store.h"
#include "pool/simulation/rule_checks.h"

namespace tendril::pool::simulation {

// Mean times between faults of a kind, in the whole world; 0: never.
struct Faults {
  int64_t server_crash_ns = 0;
  int64_t server_cut_ns = 0;
  int64_t server_wire_ns = 0;
  int64_t client_wire_ns = 0;
  int64_t lease_wire_ns = 0;  // between a program and a server
  int64_t process_death_ns = 0;
  int64_t process_stall_ns = 0;
  int64_t process_resign_ns = 0;
  int64_t wall_step_ns = 0;
  int64_t store_ns = 0;
  int64_t policy_ns = 0;
  int64_t drain_ns = 0;
  int64_t release_ns = 0;
  int64_t forget_ns = 0;
  int64_t maintenance_ns = 0;
  int64_t move_ns = 0;
  int64_t label_ns = 0;
};
// Each kind once in so long for every ten servers or every process.
Faults many_faults(size_t servers, int64_t every_ns);
// What administrators do, as often, and no fault beside it.
Faults only_commands(int64_t every_ns);

struct WorldOptions {
  uint64_t seed = 1;
  size_t servers = 20;
  size_t processes = 3;
  int64_t length_ns = 6 * kHour;  // then arrivals and faults stop, and all must end well
  double load = 1.1;              // of what all GPUs can serve
  Faults faults;
  size_t users = 40;
  int64_t mean_run_ns = 40 * kMinute;
  uint32_t news_ms = 5'000;  // SchedulerOptions::news_ms; long worlds take longer
};

struct Figures {
  uint64_t came = 0, granted = 0, granted_by_servers = 0, refused = 0, left = 0, requeued = 0;
  uint64_t notices = 0, gangs = 0, claims_failed = 0, ended_by_order = 0, faults = 0, commands = 0;
  uint64_t same_answers = 0, terms = 0, news = 0, reports = 0;
  int64_t waited_ns = 0, longest_wait_ns = 0;
  std::string longest_wait;  // who, and what it was told last
  uint64_t share_ns = 0;     // of what ended
};

class World {
 public:
  explicit World(const WorldOptions& options);
  ~World();

  // Runs it to its end, or to the first promise that was broken. Empty: none was.
  std::string run();

  const WorldOptions& options() const { return options_; }
  Clockwork& clock() { return clock_; }
  int64_t now_ns() const { return clock_.now_ns(); }
  int64_t wall_s(int64_t now_ns) const { return kWallStart + now_ns / kSecond; }
  Figures& figures() { return figures_; }
  Checks& checks() { return checks_; }
  RuleChecks& rules() { return rules_; }
  Truth& truth() { return truth_; }
  FakeStore& store() { return store_; }
  int64_t store_delay_ns();
  void log(const std::string& line);

  size_t server_count() const { return servers_.size(); }
  FakeServer& server(size_t index) { return *servers_[index]; }
  size_t server_of(const std::string& name) const;
  size_t process_count() const { return options_.processes; }
  FakeProcess& process(size_t index) { return *processes_[index]; }
  bool schedules(size_t process) const;
  std::vector<size_t> away() const;  // servers that do not reach the pool
  // The process that schedules now; of several, the one with the highest term. Null: none does.
  FakeProcess* scheduling();
  FakeClient* client(uint64_t id);
  const std::map<uint64_t, std::unique_ptr<FakeClient>>& clients() const { return clients_; }
  const std::string& user_name(size_t user) const { return users_[user].name; }
  // When something last went wrong that delays what the pool does.
  int64_t disturbed_ns() const { return disturbed_ns_; }
  void disturb(const std::string& what);
  // When a scheduler last began, stopped or stalled.
  int64_t scheduler_changed_ns() const { return scheduler_changed_ns_; }
  bool is_drained(const std::string& server) const { return drained_.count(server) != 0; }
  bool was_released(uint64_t lease) const { return released_.count(lease) != 0; }
  bool ends() const { return now_ns() >= options_.length_ns; }

  // Connections. 0: none could be made.
  uint64_t connect_server(size_t process, size_t server);
  uint64_t connect_client(uint64_t client);
  void end_wire(uint64_t wire, bool orderly);  // by the server or the client
  void break_wire(uint64_t wire);              // both ends notice, at different times
  void announce(size_t process);
  void process_stopped(size_t process);

  // What travels on them.
  void send_report(uint64_t wire, wire::PoolReport report);
  void submit(uint64_t wire, size_t user, const wire::LeaseRequest& request);
  void answer_server(size_t process, Effects::ToServer to);
  void answer_client(size_t process, Effects::ToClient to);
  void news(size_t process, Effects::NewsTo to);
  void command_answered(Effects::ToCommander to);
  void notice(uint64_t client, size_t server, const wire::Notice& notice);
  void part_gone(uint64_t client, size_t server, uint64_t lease_id, const std::string& why);

  // Clients that come and go.
  void come(Plan plan);
  void client_gone(const FakeClient& client);

  std::string log_text() const;

 private:
  static constexpr int64_t kWallStart = 1'790'000'000;  // a Monday in September 2026, 13:33 UTC
  struct User {
    std::string name;
    std::vector<std::string> groups;
  };
  struct Wire {
    size_t process = 0;
    bool of_client = false;
    uint64_t other = 0;  // a server's position or a client's number
    bool broken = false;
    int64_t delay_ns = 0, to_process_ns = 0, to_other_ns = 0;
  };

  uint64_t connect(size_t process, bool of_client, uint64_t other);
  void to_process(uint64_t wire, std::function<void(Scheduler*, Now)> action);
  void to_other(size_t process, uint64_t wire, std::function<void(const Wire&)> action);
  void tell_other_gone(const Wire& wire, uint64_t id, int64_t after_ns);
  void forget_soon();

  void live();
  bool is_writing();
  void make();
  void arrive();
  Plan plan();
  void start_faults();
  void repeat(int64_t mean_ns, void (World::*fault)());
  void calm_down();
  void sweep();

  void crash_server();
  void cut_server();
  void break_server_wire();
  void break_client_wire();
  void break_lease_wire();
  void kill_process();
  void stall_process();
  void resign_process();
  void step_wall();
  void trouble_store();
  void change_policy();
  void drain();
  void release();
  void forget();
  void maintain();
  void move();
  void label();
  void cut(size_t server, int64_t for_ns);
  void command(const std::string& verb, std::vector<std::string> arguments,
               const std::string& body);
  void apply(const std::string& text);

  const WorldOptions options_;
  Clockwork clock_;
  Figures figures_;
  Truth truth_;
  Checks checks_;
  RuleChecks rules_;
  FakeStore store_;
  std::vector<User> users_;
  std::vector<std::unique_ptr<FakeServer>> servers_;
  std::vector<std::unique_ptr<FakeProcess>> processes_;
  std::map<uint64_t, std::unique_ptr<FakeClient>> clients_;
  std::vector<uint64_t> gone_clients_;
  std::map<uint64_t, Wire> wires_;
  uint64_t next_wire_ = 1, next_client_ = 1, next_command_ = 1ull << 60;
  std::vector<int64_t> cut_until_ns_;  // by server
  int64_t disturbed_ns_ = 0, scheduler_changed_ns_ = 0;
  std::set<std::string> drained_;
  double mean_arrival_ns_ = 1e9;
  std::deque<std::string> log_;
  bool prints_log_ = false;
  int64_t told_ns_ = 0;  // a long world says now and then how far it is
  std::map<uint64_t, std::string> commands_;
  std::map<uint64_t, std::function<void()>> when_answered_, when_refused_;  // by command
  std::set<uint64_t> released_;  // leases that an administrator ended
};

// The policy of the world, in one of several variants.
std::string policy_text(uint64_t variant, uint64_t gpus, int64_t mean_run_ns);

}  // namespace tendril::pool::simulation

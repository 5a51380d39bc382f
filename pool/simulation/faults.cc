// SPDX-License-Identifier: Apache-2.0
// What goes wrong in a simulated world, what administrators do, and its policy.
#include <algorithm>

#include "pool/simulation/world.h"

namespace tendril::pool::simulation {

Faults many_faults(size_t servers, int64_t every_ns) {
  const int64_t by_server_ns = every_ns * 10 / static_cast<int64_t>(std::max<size_t>(servers, 1));
  Faults faults;
  faults.server_crash_ns = by_server_ns;
  faults.server_cut_ns = by_server_ns;
  faults.server_wire_ns = by_server_ns;
  faults.client_wire_ns = every_ns / 4;
  faults.lease_wire_ns = every_ns;
  faults.process_death_ns = every_ns;
  faults.process_stall_ns = every_ns;
  faults.process_resign_ns = every_ns * 2;
  faults.wall_step_ns = every_ns * 2;
  faults.store_ns = every_ns;
  faults.policy_ns = every_ns * 2;
  faults.drain_ns = every_ns;
  faults.release_ns = every_ns;
  return faults;
}

void World::repeat(int64_t mean_ns, void (World::*fault)()) {
  if (mean_ns == 0) return;
  clock_.in(clock_.wait(static_cast<double>(mean_ns)), [this, mean_ns, fault] {
    if (ends()) return;
    (this->*fault)();
    repeat(mean_ns, fault);
  });
}

void World::start_faults() {
  const Faults& faults = options_.faults;
  repeat(faults.server_crash_ns, &World::crash_server);
  repeat(faults.server_cut_ns, &World::cut_server);
  repeat(faults.server_wire_ns, &World::break_server_wire);
  repeat(faults.client_wire_ns, &World::break_client_wire);
  repeat(faults.lease_wire_ns, &World::break_lease_wire);
  repeat(faults.process_death_ns, &World::kill_process);
  repeat(faults.process_stall_ns, &World::stall_process);
  repeat(faults.process_resign_ns, &World::resign_process);
  repeat(faults.wall_step_ns, &World::step_wall);
  repeat(faults.store_ns, &World::trouble_store);
  repeat(faults.policy_ns, &World::change_policy);
  repeat(faults.drain_ns, &World::drain);
  repeat(faults.release_ns, &World::release);
}

void World::crash_server() {
  const size_t index = clock_.below(servers_.size());
  FakeServer* server = servers_[index].get();
  if (!server->alive()) return;
  disturb(server->name() + " crashes");
  server->crash();
  const int64_t down_ns = clock_.chance(0.3) ? clock_.between(kSecond / 2, 5 * kSecond)
                                             : clock_.between(0, 20 * kMinute);
  clock_.in(down_ns, [this, server] {
    if (server->alive()) return;
    log(server->name() + " starts");
    server->start();
  });
}

void World::cut_server() {
  const size_t index = clock_.below(servers_.size());
  const int64_t for_ns = clock_.between(kSecond, clock_.chance(0.2) ? kHour : 2 * kMinute);
  disturb("gpu" + std::to_string(index) + " is cut off for " + std::to_string(for_ns / kSecond) +
          " s");
  cut_until_ns_[index] = std::max(cut_until_ns_[index], now_ns() + for_ns);
  std::vector<uint64_t> its;
  for (const auto& [id, wire] : wires_) {
    if (!wire.of_client && wire.other == index) its.push_back(id);
  }
  for (const uint64_t id : its) break_wire(id);
}

void World::break_server_wire() {
  std::vector<uint64_t> found;
  for (const auto& [id, wire] : wires_) {
    if (!wire.of_client && !wire.broken) found.push_back(id);
  }
  if (found.empty()) return;
  disturb("a connection of a server breaks");
  break_wire(clock_.pick(found));
}

void World::break_client_wire() {
  std::vector<uint64_t> found;
  for (const auto& [id, wire] : wires_) {
    if (wire.of_client && !wire.broken) found.push_back(id);
  }
  if (found.empty()) return;
  disturb("a connection of a client breaks");
  break_wire(clock_.pick(found));
}

void World::break_lease_wire() {
  std::vector<std::pair<size_t, uint64_t>> found;
  for (size_t i = 0; i < servers_.size(); ++i) {
    for (const auto& [id, lease] : servers_[i]->leases()) {
      if (lease.client != 0) found.emplace_back(i, id);
    }
  }
  if (found.empty()) return;
  const auto [server, lease] = clock_.pick(found);
  disturb("lease " + std::to_string(lease) + " of " + servers_[server]->name() +
          " loses its connection");
  part_gone(servers_[server]->find(lease)->client, server, lease, "its connection broke");
  servers_[server]->let_go(lease, "its connection broke");
}

void World::kill_process() {
  const size_t index = clock_.below(processes_.size());
  FakeProcess* process =
      clock_.chance(0.7) && scheduling() ? scheduling() : processes_[index].get();
  if (!process->alive()) return;
  disturb("a scheduler's process dies");
  process->die();
  clock_.in(clock_.between(kSecond, 2 * kMinute), [process] { process->start(); });
}

void World::stall_process() {
  FakeProcess* process = scheduling();
  if (process == nullptr) return;
  const int64_t for_ns = clock_.between(kSecond, 40 * kSecond);
  disturb("the scheduler stalls for " + std::to_string(for_ns / kSecond) + " s");
  process->stall(for_ns);
}

void World::resign_process() {
  FakeProcess* process = scheduling();
  if (process == nullptr || process->stalled()) return;
  disturb("the scheduler resigns");
  process->resign();
}

void World::step_wall() {
  const int64_t by_s = clock_.between(-5400, 5400);
  disturb("a wall clock steps by " + std::to_string(by_s) + " s");
  processes_[clock_.below(processes_.size())]->step_wall(by_s);
}

void World::trouble_store() {
  if (store_.trouble() != FakeStore::Trouble::kNone) return;
  const auto trouble = static_cast<FakeStore::Trouble>(1 + clock_.below(4));
  const int64_t for_ns = clock_.between(kSecond, clock_.chance(0.2) ? 10 * kMinute : kMinute);
  static const char* const names[] = {"", "is away", "is slow", "loses answers", "is full"};
  disturb(std::string("the store ") + names[static_cast<size_t>(trouble)] + " for " +
          std::to_string(for_ns / kSecond) + " s");
  store_.set_trouble(trouble);
  clock_.in(for_ns, [this] {
    disturbed_ns_ = now_ns();
    store_.set_trouble(FakeStore::Trouble::kNone);
  });
}

// ---- administrators ----

void World::command(const std::string& verb, std::vector<std::string> arguments,
                    const std::string& body) {
  FakeProcess* process = scheduling();
  if (process == nullptr) return;
  const uint64_t id = next_command_++;
  std::string text = verb;
  for (const std::string& argument : arguments) text += " " + argument;
  log("command: " + text);
  commands_[id] = text;
  ++figures_.commands;
  Asker who;
  who.id = who.name = "root";
  who.role = "admin";
  who.sees_all = who.rules_all = true;
  wire::PoolCommand command{verb, std::move(arguments), body};
  process->event([id, who, command](Scheduler* scheduler, Now now) {
    scheduler->command(id, who, command, now);
  });
}

void World::command_answered(Effects::ToCommander to) {
  const auto found = commands_.find(to.connection);
  if (found == commands_.end()) return;
  log("answer to " + found->second + ": " +
      (to.status.ok() ? to.json.substr(0, 200) : to.status.message()));
  if (found->second == "apply") {
    if (!to.status.ok()) {
      checks_.fail("the policy was not applied: " + to.status.message());
    }
  }
  commands_.erase(found);
}

void World::apply(const std::string& text) {
  FakeProcess* process = scheduling();
  if (process == nullptr || process->stalled()) {
    clock_.in(5 * kSecond, [this, text] { apply(text); });
    return;
  }
  command("apply", {}, text);
}

void World::change_policy() {
  disturb("the policy changes");
  uint64_t gpus = 0;
  for (const auto& server : servers_) gpus += server->gpus().size();
  apply(policy_text(clock_.below(6), gpus));
}

void World::drain() {
  const std::string name = servers_[clock_.below(servers_.size())]->name();
  disturb(name + " drains");
  command("drain", {name, "maintenance"}, "");
  const int64_t for_ns = clock_.between(kMinute, kHour);
  clock_.in(for_ns, [this, name] { command("undrain", {name}, ""); });
}

void World::release() {
  std::vector<uint64_t> found;
  for (const auto& [id, client] : clients_) {
    if (client->state() == ClientState::kRunning && client->pool_lease_id() != 0) {
      found.push_back(client->pool_lease_id());
    }
  }
  if (found.empty()) return;
  disturb("an administrator ends a lease");
  const uint64_t lease = clock_.pick(found);
  released_.insert(lease);
  command("release", {std::to_string(lease), "by the administrator"}, "");
}

void World::calm_down() {
  log("the faults end");
  disturbed_ns_ = now_ns();
  for (auto& server : servers_) {
    if (!server->alive()) server->start();
  }
  for (auto& process : processes_) process->start();
  // What ends later than now does so by its own event, if it did not yet.
  clock_.in(20 * kMinute, [this] {
    for (auto& server : servers_) command("undrain", {server->name()}, "");
  });
}

namespace {

std::string user_classes_text(bool tight) {
  std::string text;
  text += R"(
[[user_class]]
name = "interactive"
priority = 100
gpu_classes = ["any"]
max_wall = "2h"
idle_timeout = "10m"
idle_unused_timeout = "5m"
idle_action = ["warn", "pause", "end"]
idle_grace = "2m"
)";
  text += tight ? "max_per_user = { gpus = 2.0, leases = 3, pending = 8 }\n"
                : "max_per_user = { gpus = 4.0, leases = 6, pending = 12 }\n";
  text += R"([[user_class]]
name = "batch"
priority = 10
gpu_classes = ["top", "any"]
max_wall = "6h"
preempts = ["scavenger"]
[[user_class]]
name = "scavenger"
priority = 0
gpu_classes = ["top", "any"]
over_quota = "only"
max_wall = "12h"
preempt_mode = ["warn", "shrink", "requeue", "end"]
grace_time = "120s"
preempt_exempt_time = "10m"
usage_factor = 0.2

[[assignment]]
match = 'group = "students"'
account = "teaching"
user_classes = ["interactive"]
[[assignment]]
match = 'group = "vision"'
account = "vision"
user_classes = ["batch", "interactive", "scavenger"]
[[assignment]]
match = "true"
account = "nlp"
user_classes = ["batch", "interactive", "scavenger"]
)";
  return text;
}

}  // namespace

std::string policy_text(uint64_t variant, uint64_t gpus) {
  const auto part = [&](double of) {
    return std::to_string(
        std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(gpus) * of)));
  };
  const bool tight = variant % 2 == 1;
  const bool moved = variant % 3 == 1;
  std::string text = R"([pool]
name = "lab"
fair_share_half_life = "1d"
longest_wait = "12h"

[[gpu_class]]
name = "top"
match = 'model ~ "H200" or model ~ "H100"'
usage_weight = 3.0
[[gpu_class]]
name = "any"
match = "true"

[[account]]
name = "research"
[[account]]
name = "vision"
parent = "research"
)";
  text += "quota = { top = " + part(moved ? 0.1 : 0.2) + ", any = " + part(0.1) + " }\n";
  text += "limit = { top = " + part(tight ? 0.3 : 0.5) + ", any = " + part(0.4) + " }\n";
  text += R"(over_quota_weight = 2
[[account]]
name = "nlp"
parent = "research"
)";
  text += "quota = { top = " + part(moved ? 0.3 : 0.2) + ", any = " + part(0.1) + " }\n";
  text += "[[account]]\nname = \"teaching\"\nquota = { any = " + part(0.1) + " }\n";
  text += "limit = { any = " + part(tight ? 0.3 : 0.5) + " }\n";
  text += user_classes_text(tight);
  if (variant % 2 == 0) {
    text += R"(
[[schedule]]
when = "Mon-Fri 08:00-18:00"
user_class.scavenger.max_per_user.gpus = 1.0
)";
  }
  return text;
}

}  // namespace tendril::pool::simulation

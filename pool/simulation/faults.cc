// SPDX-License-Identifier: Apache-2.0
// What goes wrong in a simulated world. administrators.cc has what people do to it.
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
  faults.forget_ns = every_ns * 2;
  faults.maintenance_ns = every_ns * 2;
  faults.move_ns = every_ns * 2;
  faults.label_ns = every_ns;
  return faults;
}

Faults only_commands(int64_t every_ns) {
  Faults faults;
  faults.policy_ns = every_ns * 4;
  faults.release_ns = every_ns;
  faults.maintenance_ns = every_ns * 4;
  faults.move_ns = every_ns * 4;
  faults.label_ns = every_ns;
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
  repeat(faults.forget_ns, &World::forget);
  repeat(faults.maintenance_ns, &World::maintain);
  repeat(faults.move_ns, &World::move);
  repeat(faults.label_ns, &World::label);
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
  cut(index, for_ns);
}

void World::cut(size_t index, int64_t for_ns) {
  disturb("gpu" + std::to_string(index) + " is cut off for " + std::to_string(for_ns / kSecond) +
          " s");
  cut_until_ns_[index] = std::max(cut_until_ns_[index], now_ns() + for_ns);
  std::vector<uint64_t> its;
  for (const auto& [id, wire] : wires_) {
    if (!wire.of_client && wire.other == index) its.push_back(id);
  }
  for (const uint64_t id : its) break_wire(id);
  clock_.in(for_ns, [this] { rules_.servers_changed(); });
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
  scheduler_changed_ns_ = now_ns() + for_ns;
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
  rules_.clock_stepped();
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
    drained_.clear();
    rules_.servers_changed();
  });
}

}  // namespace tendril::pool::simulation

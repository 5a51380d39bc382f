// SPDX-License-Identifier: Apache-2.0
// See world.h. Here: how the world is made and runs, its connections and what travels on them.
// faults.cc has what goes wrong.
#include "pool/simulation/world.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace tendril::pool::simulation {

World::World(const WorldOptions& options)
    : options_(options), clock_(options.seed), truth_(this), checks_(this), rules_(this) {
  prints_log_ = getenv("TENDRIL_SIMULATION_LOG") != nullptr;
  if (options.length_ns >= kDay) store_.thin_seconds();
  make();
}

World::~World() = default;

void World::make() {
  cut_until_ns_.resize(options_.servers);
  for (size_t i = 0; i < options_.processes; ++i) {
    processes_.push_back(std::make_unique<FakeProcess>(this, i));
  }
  uint64_t gpus = 0;
  const uint64_t gib = 1ull << 30;
  const std::vector<FakeGpu> models = {
      {"NVIDIA H200", 140 * gib}, {"NVIDIA H100 80GB HBM3", 80 * gib}, {"NVIDIA A40", 45 * gib}};
  for (size_t i = 0; i < options_.servers; ++i) {
    const size_t count = 1 + clock_.below(8);
    std::vector<FakeGpu> has;
    const FakeGpu& usual = clock_.pick(models);
    for (size_t gpu = 0; gpu < count; ++gpu) {
      has.push_back(clock_.chance(0.1) ? clock_.pick(models) : usual);
    }
    gpus += count;
    servers_.push_back(std::make_unique<FakeServer>(this, i, std::move(has)));
  }
  const std::vector<std::string> groups = {"vision", "nlp", "students"};
  for (size_t i = 0; i < options_.users; ++i) {
    users_.push_back({"user" + std::to_string(i), {groups[i % 3]}});
  }
  // On average a request has 1.9 slices of 0.6 GPUs.
  mean_arrival_ns_ =
      static_cast<double>(options_.mean_run_ns) * 1.1 / (static_cast<double>(gpus) * options_.load);
  for (auto& process : processes_) process->start();
  clock_.in(15 * kSecond, [this, gpus] { apply(policy_text(0, gpus, options_.mean_run_ns)); });
  clock_.in(30 * kSecond, [this] { arrive(); });
  start_faults();
  sweep();
}

std::string World::run() {
  live();
  if (!checks_.broken().empty()) checks_.describe();
  return checks_.broken();
}

// Sums of usage are on the way to the store.
bool World::is_writing() {
  FakeProcess* process = scheduling();
  return process != nullptr && process->scheduler()->counts().batches_unstored != 0;
}

void World::live() {
  while (checks_.broken().empty() && clock_.step(options_.length_ns)) forget_soon();
  if (!checks_.broken().empty()) return;
  calm_down();
  const int64_t limit_ns = options_.length_ns + 5 * kDay;
  int64_t idle_since_ns = INT64_MAX;
  while (checks_.broken().empty() && clock_.step(limit_ns)) {
    forget_soon();
    if (!clients_.empty() || now_ns() < options_.length_ns + 30 * kMinute) {
      idle_since_ns = INT64_MAX;
    } else if (idle_since_ns == INT64_MAX) {
      idle_since_ns = now_ns();
    } else if (now_ns() - idle_since_ns > (is_writing() ? 10 : 5) * kMinute) {
      break;
    }
  }
  if (!checks_.broken().empty()) return;
  checks_.finish();
}

void World::sweep() {
  checks_.sweep();
  if (options_.length_ns > kDay && now_ns() / (6 * kHour) != told_ns_ / (6 * kHour)) {
    printf("day %.2f: %zu clients, %llu granted\n", static_cast<double>(now_ns()) / kDay,
           clients_.size(), static_cast<unsigned long long>(figures_.granted));
    fflush(stdout);
    told_ns_ = now_ns();
  }
  const int64_t tens = static_cast<int64_t>(servers_.size()) / 10;
  clock_.in(10 * kSecond * std::max<int64_t>(tens, 1), [this] { sweep(); });
}

void World::log(const std::string& line) {
  char time[40];
  snprintf(time, sizeof time, "%12.3f ", static_cast<double>(now_ns()) / 1e9);
  log_.push_back(time + line);
  if (prints_log_) fprintf(stderr, "%s\n", log_.back().c_str());
  if (log_.size() > 400) log_.pop_front();
}

std::string World::log_text() const {
  std::string text;
  for (const std::string& line : log_) text += line + "\n";
  return text;
}

void World::disturb(const std::string& what) {
  disturbed_ns_ = now_ns();
  ++figures_.faults;
  log("fault: " + what);
}

int64_t World::store_delay_ns() {
  return store_.trouble() == FakeStore::Trouble::kSlow
             ? clock_.between(kSecond, 6 * kSecond)
             : clock_.between(kMillisecond, 5 * kMillisecond);
}

size_t World::server_of(const std::string& name) const {
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (servers_[i]->name() == name) return i;
  }
  return 0;
}

bool World::schedules(size_t process) const {
  return processes_[process]->alive() && processes_[process]->schedules();
}

FakeProcess* World::scheduling() {
  FakeProcess* newest = nullptr;
  for (auto& process : processes_) {
    if (!process->schedules()) continue;
    if (newest == nullptr || process->term() > newest->term()) newest = process.get();
  }
  return newest;
}

FakeClient* World::client(uint64_t id) {
  const auto found = clients_.find(id);
  return found == clients_.end() ? nullptr : found->second.get();
}

// ---- connections ----

uint64_t World::connect(size_t process, bool of_client, uint64_t other) {
  if (!schedules(process)) return 0;
  const uint64_t id = next_wire_++;
  const int64_t delay_ns = clock_.chance(0.03)
                               ? clock_.between(100 * kMillisecond, 3 * kSecond)
                               : clock_.between(kMillisecond / 10, 30 * kMillisecond);
  wires_[id] = Wire{process, of_client, other, false, delay_ns, 0, 0};
  return id;
}

uint64_t World::connect_server(size_t process, size_t server) {
  if (now_ns() < cut_until_ns_[server]) return 0;
  return connect(process, false, server);
}

uint64_t World::connect_client(uint64_t client) {
  std::vector<size_t> found;
  for (size_t i = 0; i < processes_.size(); ++i) {
    if (schedules(i)) found.push_back(i);
  }
  return found.empty() ? 0 : connect(clock_.pick(found), true, client);
}

void World::to_process(uint64_t id, std::function<void(Scheduler*, Now)> action) {
  const auto found = wires_.find(id);
  if (found == wires_.end() || found->second.broken) return;
  Wire& wire = found->second;
  wire.to_process_ns = std::max(wire.to_process_ns + 1, now_ns() + wire.delay_ns);
  clock_.at(wire.to_process_ns, [this, id, action = std::move(action)] {
    const auto at = wires_.find(id);
    if (at == wires_.end() || at->second.broken) return;
    processes_[at->second.process]->event(action);
  });
}

void World::to_other(size_t process, uint64_t id, std::function<void(const Wire&)> action) {
  const auto found = wires_.find(id);
  if (found == wires_.end() || found->second.broken || found->second.process != process) return;
  Wire& wire = found->second;
  wire.to_other_ns = std::max(wire.to_other_ns + 1, now_ns() + wire.delay_ns);
  clock_.at(wire.to_other_ns, [this, id, action = std::move(action)] {
    const auto at = wires_.find(id);
    if (at == wires_.end() || at->second.broken) return;
    const Wire copy = at->second;
    action(copy);
  });
}

void World::tell_other_gone(const Wire& wire, uint64_t id, int64_t after_ns) {
  clock_.in(after_ns, [this, wire, id] {
    if (!wire.of_client) return servers_[wire.other]->wire_gone(id);
    FakeClient* who = client(wire.other);
    if (who != nullptr) who->wire_gone(id);
  });
}

// A part of the simulation, not of the pool: an event that the scheduler hears of.
void World::end_wire(uint64_t id, bool orderly) {
  const auto found = wires_.find(id);
  if (found == wires_.end()) return;
  const Wire wire = found->second;
  if (wire.broken) return;
  wires_.erase(found);
  const int64_t after_ns =
      std::max(wire.to_process_ns + 1, now_ns() + wire.delay_ns + (orderly ? 0 : kSecond));
  clock_.at(after_ns, [this, wire, id, orderly] {
    processes_[wire.process]->event([wire, id, orderly](Scheduler* scheduler, Now now) {
      wire.of_client ? scheduler->left(id, orderly, now) : scheduler->lost(id, now);
    });
  });
}

void World::break_wire(uint64_t id) {
  const auto found = wires_.find(id);
  if (found == wires_.end() || found->second.broken) return;
  found->second.broken = true;
  const Wire wire = found->second;
  if (!wire.of_client) rules_.servers_changed();
  clock_.in(clock_.between(0, 15 * kSecond), [this, wire, id] {
    if (wires_.erase(id) == 0) return;  // the process has stopped since
    processes_[wire.process]->event([wire, id](Scheduler* scheduler, Now now) {
      wire.of_client ? scheduler->left(id, false, now) : scheduler->lost(id, now);
    });
  });
  tell_other_gone(wire, id, clock_.between(0, 15 * kSecond));
}

void World::announce(size_t process) {
  ++figures_.terms;
  scheduler_changed_ns_ = now_ns();
  for (auto& server : servers_) server->seek(process);
}

void World::process_stopped(size_t process) {
  disturb("pool" + std::to_string(process) + " no longer schedules");
  scheduler_changed_ns_ = now_ns();
  const int64_t most_ns = clock_.chance(0.2) ? 15 * kSecond : 100 * kMillisecond;
  for (auto at = wires_.begin(); at != wires_.end();) {
    const auto wire = at++;
    if (wire->second.process != process) continue;
    if (!wire->second.broken)
      tell_other_gone(wire->second, wire->first, clock_.between(0, most_ns));
    wires_.erase(wire);
  }
}

// ---- what travels ----

void World::send_report(uint64_t wire, wire::PoolReport report) {
  ++figures_.reports;
  const auto found = wires_.find(wire);
  if (found == wires_.end()) return;
  const std::string name = servers_[found->second.other]->name();
  to_process(wire, [wire, name, report = std::move(report)](Scheduler* scheduler, Now now) {
    scheduler->reported(wire, name, report, now);
  });
}

void World::submit(uint64_t wire, size_t user, const wire::LeaseRequest& request) {
  Asker who;
  who.id = who.name = users_[user].name;
  who.role = "user";
  who.groups = users_[user].groups;
  who.host = "host" + std::to_string(user % 7);
  to_process(wire, [wire, who, request](Scheduler* scheduler, Now now) {
    scheduler->submitted(wire, who, request, now);
  });
}

void World::answer_server(size_t process, Effects::ToServer to) {
  to_other(process, to.connection, [this, to](const Wire& wire) {
    servers_[wire.other]->answered(to.connection, to.status, to.orders);
  });
}

void World::answer_client(size_t process, Effects::ToClient to) {
  to_other(process, to.connection, [this, to](const Wire& wire) {
    FakeClient* who = client(wire.other);
    if (who != nullptr) who->answered(to.connection, to.status, to.reply);
  });
}

void World::news(size_t process, Effects::NewsTo to) {
  ++figures_.news;
  to_other(process, to.connection, [this, to](const Wire& wire) {
    FakeClient* who = client(wire.other);
    if (who != nullptr) who->heard(to.connection, to.news);
  });
}

void World::notice(uint64_t id, size_t server, const wire::Notice& notice) {
  clock_.in(clock_.between(kMillisecond, 50 * kMillisecond), [this, id, server, notice] {
    FakeClient* who = client(id);
    if (who != nullptr) who->noticed(server, notice);
  });
}

void World::part_gone(uint64_t id, size_t server, uint64_t lease_id, const std::string& why) {
  clock_.in(clock_.between(kMillisecond, 20 * kSecond), [this, id, server, lease_id, why] {
    FakeClient* who = client(id);
    if (who != nullptr) who->part_gone(server, lease_id, why);
  });
}

// ---- clients ----

void World::arrive() {
  if (ends()) return;
  // Half of them come in the middle of the day.
  const int64_t hour = (now_ns() / kHour) % 24;
  const double busy = hour < 8 ? 1.5 : 0.75;
  come(plan());
  if (clock_.chance(0.01)) {
    for (uint64_t more = clock_.below(20); more != 0; --more) come(plan());
  }
  clock_.in(clock_.wait(mean_arrival_ns_ / busy), [this] { arrive(); });
}

void World::come(Plan plan) {
  ++figures_.came;
  const uint64_t id = next_client_++;
  clients_[id] = std::make_unique<FakeClient>(this, id, std::move(plan));
  clients_[id]->seek();
}

void World::client_gone(const FakeClient& client) { gone_clients_.push_back(client.id()); }

void World::forget_soon() {
  for (const uint64_t id : gone_clients_) clients_.erase(id);
  gone_clients_.clear();
}

Plan World::plan() {
  static const std::vector<uint32_t> shares = {50'000,  100'000, 250'000,   333'333,
                                               500'000, 750'000, 1'000'000, 1'000'000};
  Plan plan;
  plan.user = clock_.below(users_.size());
  wire::LeaseRequest& request = plan.request;
  request.count = clock_.chance(0.7) ? 1 : static_cast<uint32_t>(1 + clock_.below(6));
  if (clock_.chance(0.02)) request.count = static_cast<uint32_t>(8 + clock_.below(9));
  request.slice.share_millionths = clock_.pick(shares);
  if (clock_.chance(0.2)) request.slice.memory_bytes = (1 + clock_.below(30)) << 30;
  request.slice.packed = request.slice.share_millionths < 1'000'000 && clock_.chance(0.1);
  request.client.host = "host" + std::to_string(plan.user % 7);
  request.client.user = users_[plan.user].name;
  request.client.program = "python";
  wire::PoolWish& wish = request.wish;
  wish.apis = {{"cuda", 77}};
  wish.requeues = clock_.chance(0.3);
  if (clock_.chance(0.1)) wish.refuses_wait = true;
  if (clock_.chance(0.1)) wish.filter = "memory >= 60G";
  if (clock_.chance(0.1)) wish.filter = "model ~ \"H200\" or label.rack = \"1\"";
  if (clock_.chance(0.05)) wish.filter = "label.room = cellar";
  if (clock_.chance(0.2)) wish.layout = static_cast<wire::Layout>(clock_.below(4));
  const std::string& group = users_[plan.user].groups[0];
  if (group != "students") {
    static const std::vector<std::string> classes = {"batch", "interactive", "scavenger", ""};
    wish.user_class = clock_.pick(classes);
  }
  const double mean_ns = static_cast<double>(options_.mean_run_ns);
  plan.run_ns = std::min(clock_.wait(mean_ns), 20 * options_.mean_run_ns);
  if (clock_.chance(0.6)) {
    wish.longest_s = static_cast<uint64_t>(plan.run_ns / kSecond) + 30 + clock_.below(7200);
    if (clock_.chance(0.1)) wish.longest_s = wish.longest_s / 2 + 1;
  }
  plan.attach_after_ns =
      clock_.chance(0.03) ? kNever : clock_.between(100 * kMillisecond, 20 * kSecond);
  if (clock_.chance(0.15)) {
    plan.rest_after_ns = clock_.wait(mean_ns / 2);
    plan.rest_ns = clock_.wait(mean_ns);
  }
  if (clock_.chance(0.15)) plan.patience_ns = clock_.wait(static_cast<double>(kHour));
  plan.crashes_waiting = clock_.chance(0.03);
  plan.crashes_at_answer = clock_.chance(0.02);
  plan.loses_answer = clock_.chance(0.05);
  plan.asks_servers = clock_.chance(0.2);
  return plan;
}

}  // namespace tendril::pool::simulation

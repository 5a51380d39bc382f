// SPDX-License-Identifier: Apache-2.0
// What administrators do in a simulated world, and the policies that they apply.
#include <algorithm>
#include <memory>

#include "pool/simulation/world.h"

namespace tendril::pool::simulation {

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
  auto& whens = to.status.ok() ? when_answered_ : when_refused_;
  if (const auto then = whens.find(to.connection); then != whens.end()) then->second();
  when_answered_.erase(to.connection);
  when_refused_.erase(to.connection);
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
  apply(policy_text(clock_.below(6), gpus, options_.mean_run_ns));
}

void World::drain() {
  const std::string name = servers_[clock_.below(servers_.size())]->name();
  disturb(name + " drains");
  rules_.servers_changed();
  // A scheduler that forgot the server refuses.
  drained_.insert(name);
  when_refused_[next_command_] = [this, name] {
    drained_.erase(name);
    rules_.servers_changed();
  };
  command("drain", {name, "maintenance"}, "");
  const int64_t for_ns = clock_.between(kMinute, kHour);
  clock_.in(for_ns, [this, name] {
    command("undrain", {name}, "");
    drained_.erase(name);
    rules_.servers_changed();
  });
}

void World::release() {
  const std::vector<size_t> away = this->away();
  std::vector<uint64_t> found, unreached;
  for (const auto& [id, client] : clients_) {
    if (client->state() != ClientState::kRunning || client->pool_lease_id() == 0) continue;
    found.push_back(client->pool_lease_id());
    for (const Part& part : client->parts()) {
      if (std::find(away.begin(), away.end(), part.server) == away.end()) continue;
      unreached.push_back(client->pool_lease_id());
      break;
    }
  }
  if (!unreached.empty() && clock_.chance(0.5)) found = std::move(unreached);
  if (found.empty()) return;
  disturb("an administrator ends a lease");
  const uint64_t lease = clock_.pick(found);
  released_.insert(lease);
  command("release", {std::to_string(lease), "by the administrator"}, "");
}

std::vector<size_t> World::away() const {
  std::vector<size_t> found;
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (!servers_[i]->alive() || now_ns() < cut_until_ns_[i]) found.push_back(i);
  }
  return found;
}

// A server that does not answer is given up. It may run on, and come back some day.
void World::forget() {
  std::vector<size_t> found = away();
  if (found.empty()) {
    found.push_back(clock_.below(servers_.size()));
    cut(found[0], clock_.between(2 * kMinute, 20 * kMinute));
  }
  const size_t index = clock_.pick(found);
  clock_.in(clock_.between(kSecond, kMinute), [this, index] {
    const std::string name = servers_[index]->name();
    if (servers_[index]->alive() && now_ns() >= cut_until_ns_[index]) return;
    disturb("an administrator forgets " + name);
    rules_.forgotten(name);
    drained_.erase(name);
    command("forget", {name}, "");
  });
}

// A command may die with its scheduler. So a window counts when it was answered.
void World::maintain() {
  const std::string name = servers_[clock_.below(servers_.size())]->name();
  FakeProcess* process = scheduling();
  if (process == nullptr || process->stalled()) return;
  const int64_t in_s = 60 * clock_.between(5, 90), for_s = 60 * clock_.between(5, 60);
  disturb("maintenance of " + name + " in " + std::to_string(in_s) + " s");
  const int64_t from_s = process->now().wall_s + in_s;
  const std::string from = "+" + std::to_string(in_s) + "s";
  const std::string to = "+" + std::to_string(in_s + for_s) + "s";
  // It may be called off before it was answered: a slow store answers late.
  const auto called_off = std::make_shared<bool>(false);
  when_answered_[next_command_] = [this, name, from_s, for_s, called_off] {
    if (!*called_off) rules_.set_maintenance(name, from_s, from_s + for_s);
  };
  command("maintenance", {name, from, to, "fans"}, "");
  if (!clock_.chance(0.3)) return;
  clock_.in(clock_.between(0, in_s * kSecond), [this, name, called_off] {
    *called_off = true;
    rules_.set_maintenance(name, 0, 0);
    command("maintenance", {name, "none"}, "");
  });
}

// It is refused where there is no such quota to move.
void World::move() {
  disturb("quota moves");
  const bool there = clock_.chance(0.5);
  std::vector<std::string> words = {there ? "vision" : "nlp", there ? "nlp" : "vision",
                                    clock_.chance(0.5) ? "top=1" : "any=0.5"};
  if (clock_.chance(0.5)) {
    words.push_back("at");
    words.push_back("+" + std::to_string(clock_.between(1, 60)) + "m");
  }
  command("move", std::move(words), "");
}

void World::label() {
  const std::string name = servers_[clock_.below(servers_.size())]->name();
  disturb(name + " gets a label");
  rules_.servers_changed();
  command("label", {name, clock_.chance(0.7) ? "room=cellar" : "room="}, "");
}

namespace {

std::string user_classes_text(bool tight, int64_t mean_run_ns) {
  const auto runs = [&](double times) {
    const auto minutes = static_cast<double>(mean_run_ns) / kMinute * times;
    return "max_wall = \"" + std::to_string(static_cast<int64_t>(minutes)) + "m\"\n";
  };
  std::string text;
  text += R"(
[[user_class]]
name = "interactive"
priority = 100
gpu_classes = ["any"]
idle_timeout = "10m"
idle_unused_timeout = "5m"
idle_action = ["warn", "pause", "end"]
idle_grace = "2m"
)";
  text += runs(1.5);
  text += tight ? "max_per_user = { gpus = 2.0, leases = 3, pending = 8 }\n"
                : "max_per_user = { gpus = 4.0, leases = 6, pending = 12 }\n";
  text += R"([[user_class]]
name = "batch"
priority = 10
gpu_classes = ["top", "any"]
preempts = ["scavenger"]
)";
  text += runs(3) + R"([[user_class]]
name = "scavenger"
priority = 0
gpu_classes = ["top", "any"]
over_quota = "only"
preempt_mode = ["warn", "shrink", "requeue", "end"]
grace_time = "120s"
preempt_exempt_time = "10m"
usage_factor = 0.2
)";
  text += runs(4.5) + R"(
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

std::string policy_text(uint64_t variant, uint64_t gpus, int64_t mean_run_ns) {
  const auto part = [&](double of) {
    return std::to_string(
        std::max<uint64_t>(1, static_cast<uint64_t>(static_cast<double>(gpus) * of)));
  };
  const bool tight = variant % 2 == 1;
  const bool moved = variant % 3 == 1;
  std::string text = R"([pool]
name = "lab"
fair_share_half_life = "1d"
pause_limit = "4m"
)";
  text += "longest_wait = \"" + std::to_string(mean_run_ns * 3 / 2 / kMinute) + "m\"\n";
  text += R"(
[groups]
students = ["user0", "user3"]

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
  text += "lending_limit = { top = " + part(0.1) + ", any = 0.5 }\n";
  text += "[[account]]\nname = \"teaching\"\nquota = { any = " + part(0.1) + " }\n";
  text += "limit = { any = " + part(tight ? 0.3 : 0.5) + " }\n";
  text += "lending_limit = { any = " + part(0.05) + " }\n";
  text += "max_per_user = { gpus = 3, leases = 5 }\n";
  text += user_classes_text(tight, mean_run_ns);
  text += "\n[[reservation]]\nname = \"ml101\"\ngpus = { any = " + part(0.05) + " }\n";
  text += "when = \"Mon-Sun 14:00-15:00,17:00-19:00\"\naccounts = [\"teaching\"]\n";
  text += R"(
[[schedule]]
name = "evening"
when = "Mon-Sun 14:30-16:00,18:00-20:00"
user_class.batch.max_per_user.gpus = 3.0
user_class.interactive.max_per_user.leases = 4
account.vision.quota.any = 0.5
)";
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

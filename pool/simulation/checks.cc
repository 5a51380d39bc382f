// SPDX-License-Identifier: Apache-2.0
// See checks.h.
#include "pool/simulation/checks.h"

#include <algorithm>
#include <cstdlib>

#include "pool/simulation/history_checks.h"
#include "pool/simulation/world.h"

namespace tendril::pool::simulation {
namespace {

std::string text(uint64_t number) { return std::to_string(number); }

// Servers know a lease of the pool by this number and by which attempt it was.
uint64_t number_of(uint64_t pool_lease_id) { return pool_lease_id & ((uint64_t(1) << 48) - 1); }

// A whole number of a record; UINT64_MAX: there is none.
uint64_t number_in(const std::string& json, const std::string& key) {
  const size_t at = json.find("\"" + key + "\":");
  if (at == std::string::npos) return UINT64_MAX;
  return strtoull(json.c_str() + at + key.size() + 3, nullptr, 10);
}

constexpr int64_t kToleranceNs = 90 * kSecond;  // for what an interrupted step leaves behind

}  // namespace

// ---- truth ----

void Truth::remember(const FakeServer& server, const wire::BookEntry& entry) {
  constexpr int64_t kJustNowNs = 30 * kSecond;
  const int64_t now_ns = world_->now_ns();
  while (!just_now_.empty() && now_ns - just_now_.front().time_ns > kJustNowNs)
    just_now_.pop_front();
  just_now_.push_back({now_ns, server.index(), entry});
}

void Truth::ended(const FakeServer& server, const wire::BookEntry& entry, bool claimed) {
  remember(server, entry);
  ended_[{server.name(), server.boot(), entry.lease_id}] = {entry, world_->now_ns(), false, false,
                                                            claimed};
  part_ended_ns_[entry.pool_lease_id] = world_->now_ns();
  uint64_t share = 0;
  for (const wire::SliceGrant& slice : entry.slices) share += slice.share_millionths;
  world_->figures().share_ns += entry.age_ns / 1'000'000 * share;
}

void Truth::crashed(const FakeServer& server) {
  crashed_ns_[server.name()] = world_->now_ns();
  for (auto at = ended_.lower_bound({server.name(), server.boot(), 0});
       at != ended_.end() && std::get<0>(at->first) == server.name() &&
       std::get<1>(at->first) == server.boot();
       ++at) {
    if (!at->second.acknowledged) at->second.crashed = true;
  }
  for (const auto& [id, lease] : server.leases()) {
    if (lease.entry.phase == wire::LeasePhase::kHeld) continue;
    remember(server, lease.entry);
    ended_[{server.name(), server.boot(), id}] = {lease.entry, world_->now_ns(), true, false,
                                                  lease.client != 0};
    part_ended_ns_[lease.entry.pool_lease_id] = world_->now_ns();
  }
}

void Truth::acknowledged(const FakeServer& server, const wire::BookEntry& entry) {
  const auto found = ended_.find({server.name(), server.boot(), entry.lease_id});
  if (found != ended_.end()) found->second.acknowledged = true;
}

void Truth::ordered_to_end(const FakeServer& server, const FakeLease& lease,
                           const wire::Order& order) {
  ++world_->figures().ended_by_order;
  world_->log(server.name() + " ends lease " + text(lease.entry.lease_id) + " (" +
              text(lease.entry.pool_lease_id) + "): " + order.text);
  if (order.text.find("administrator") != std::string::npos) return;
  world_->rules().ended(server, lease, order);
}

// A lease that its client has and uses is not to be taken back.
void Truth::cancelled(const FakeServer& server, const FakeLease& lease) {
  const FakeClient* client = world_->client(lease.client);
  if (client == nullptr || !client->runs_whole()) return;
  if (world_->was_released(number_of(lease.entry.pool_lease_id))) return;
  for (const Part& part : client->parts()) {
    if (world_->rules().was_forgotten(world_->server(part.server).name(), lease.granted_ns)) return;
  }
  world_->checks().fail("lease " + text(lease.entry.pool_lease_id) + " on " + server.name() +
                        " was taken back from client " + text(client->id()) + ", which uses it");
}

int64_t Truth::crashed_ns(const std::string& server) const {
  const auto found = crashed_ns_.find(server);
  return found == crashed_ns_.end() ? INT64_MIN / 2 : found->second;
}

int64_t Truth::part_ended_ns(uint64_t pool_lease_id) const {
  const auto found = part_ended_ns_.find(pool_lease_id);
  return found == part_ended_ns_.end() ? INT64_MIN / 2 : found->second;
}

bool Truth::ended_lately(const FakeServer& server, uint64_t lease_id) const {
  const auto found = ended_.find({server.name(), server.boot(), lease_id});
  return found != ended_.end() && world_->now_ns() - found->second.time_ns < kToleranceNs;
}

// ---- checks ----

void Checks::fail(const std::string& what) {
  if (!broken_.empty()) return;
  broken_ = what;
  world_->log("BROKEN: " + what);
}

bool Checks::was_disturbed(int64_t within_ns) const {
  return world_->now_ns() - world_->disturbed_ns() < within_ns;
}

void Checks::heard(const FakeClient& client, const wire::News& news) {
  if (news.place > news.of) fail("place " + text(news.place) + " of " + text(news.of));
}

void Checks::answered(const FakeClient& client, const base::Status& status,
                      const wire::LeaseReply& reply) {
  Figures& figures = world_->figures();
  if (!status.ok()) {
    world_->log("client " + text(client.id()) + " hears: " + status.message());
    if (status.code() == base::Code::kRefused || status.code() == base::Code::kInvalid) {
      ++figures.refused;
    }
    return;
  }
  granted(client, reply);
  ++figures.granted;
  if (reply.parts.size() > 1) ++figures.gangs;
  const int64_t waited_ns = world_->now_ns() - client.asked_ns();
  figures.waited_ns += waited_ns;
  if (waited_ns <= figures.longest_wait_ns) return;
  figures.longest_wait_ns = waited_ns;
  figures.longest_wait = "client " + text(client.id()) + ", " + client.last_news().reason;
}

void Checks::lost_answer(const FakeClient& client, const base::Status& status,
                         const wire::LeaseReply& reply) {
  if (status.ok()) granted(client, reply);
}

void Checks::granted(const FakeClient& client, const wire::LeaseReply& reply) {
  const std::string& key = client.plan().request.wish.request_key;
  const auto before = answers_.find(key);
  if (before != answers_.end()) {
    ++world_->figures().same_answers;
    const int64_t ended_ns = world_->truth().part_ended_ns(before->second.held_as);
    if (before->second.lease_id != reply.lease_id && ended_ns < before->second.time_ns &&
        !was_forgotten(before->second)) {
      fail("client " + text(client.id()) + " asked twice and got lease " +
           text(before->second.lease_id) + ", then lease " + text(reply.lease_id));
    }
  }
  Answer answer{reply.lease_id, 0, world_->now_ns(), {}};
  for (const wire::LeasePart& part : reply.parts) {
    const FakeLease* lease = world_->server(world_->server_of(part.server)).find(part.lease_id);
    if (lease != nullptr) answer.held_as = lease->entry.pool_lease_id;
    answer.servers.push_back(part.server);
  }
  answers_[key] = answer;
  parts(client, reply);
  world_->rules().granted(client, reply);
}

bool Checks::was_forgotten(const Answer& answer) const {
  return std::any_of(answer.servers.begin(), answer.servers.end(), [&](const std::string& name) {
    return world_->rules().was_forgotten(name, answer.time_ns);
  });
}

void Checks::parts(const FakeClient& client, const wire::LeaseReply& reply) {
  const wire::LeaseRequest& request = client.plan().request;
  std::set<std::pair<std::string, uint32_t>> gpus;
  for (const wire::LeasePart& part : reply.parts) {
    const FakeServer& server = world_->server(world_->server_of(part.server));
    for (const wire::SliceGrant& slice : part.slices) {
      gpus.emplace(part.server, slice.gpu_index);
      if (request.slice.share_millionths > slice.share_millionths) {
        fail("lease " + text(reply.lease_id) + " has a smaller share than was asked for");
      }
    }
    if (world_->now_ns() - world_->truth().crashed_ns(server.name()) < kToleranceNs) continue;
    const FakeLease* lease = server.find(part.lease_id);
    if (lease == nullptr && world_->truth().ended_lately(server, part.lease_id)) continue;
    if (lease == nullptr || number_of(lease->entry.pool_lease_id) != reply.lease_id ||
        lease->entry.phase == wire::LeasePhase::kHeld) {
      fail("the answer names lease " + text(part.lease_id) + " on " + part.server +
           ", which that server has not committed");
    }
  }
  if (gpus.size() != request.count) {
    fail("lease " + text(reply.lease_id) + " has " + text(gpus.size()) + " GPUs instead of " +
         text(request.count));
  }
  if (request.wish.layout == wire::Layout::kOneServer && reply.parts.size() != 1) {
    fail("lease " + text(reply.lease_id) + " is not on one server");
  }
}

void Checks::claim_failed(const FakeClient& client, const Part& part, const base::Status& status) {
  ++world_->figures().claims_failed;
  const FakeServer& server = world_->server(part.server);
  const int64_t now_ns = world_->now_ns();
  if (now_ns - world_->truth().crashed_ns(server.name()) < kToleranceNs) return;
  if (world_->truth().ended_lately(server, part.lease_id)) return;
  fail("client " + text(client.id()) + " could not claim lease " + text(part.lease_id) + " on " +
       server.name() + ": " + status.message());
}

void Checks::sweep() {
  world_->rules().sweep();
  books();
  gangs();
  waits();
}

// No GPU is promised twice: summed again from the leases themselves.
void Checks::books() {
  for (size_t i = 0; i < world_->server_count(); ++i) {
    const FakeServer& server = world_->server(i);
    std::map<uint32_t, std::pair<uint64_t, uint64_t>> given;
    for (const auto& [id, lease] : server.leases()) {
      for (const wire::SliceGrant& slice : lease.entry.slices) {
        given[slice.gpu_index].first += slice.share_millionths;
        given[slice.gpu_index].second += slice.memory_bytes;
      }
    }
    for (const auto& [gpu, sums] : given) {
      if (sums.first > 1'000'000 || sums.second > server.gpus()[gpu].memory_bytes) {
        fail(server.name() + " promised GPU " + text(gpu) + " twice");
      }
    }
  }
}

// A lease of which a part is gone does not stay.
void Checks::gangs() {
  std::map<uint64_t, size_t> slices;
  std::map<uint64_t, uint64_t> holder;
  for (size_t i = 0; i < world_->server_count(); ++i) {
    for (const auto& [id, lease] : world_->server(i).leases()) {
      const uint64_t pool_id = lease.entry.pool_lease_id;
      if (pool_id == 0 || lease.entry.phase != wire::LeasePhase::kClaimed) continue;
      slices[pool_id] += lease.entry.slices.size();
      holder[pool_id] = lease.client;
    }
  }
  std::map<uint64_t, int64_t> partial;
  for (const auto& [id, count] : slices) {
    const FakeClient* client = world_->client(holder[id]);
    if (client != nullptr && client->plan().request.count == count) continue;
    const auto since = partial_since_ns_.find(id);
    partial[id] = since == partial_since_ns_.end() ? world_->now_ns() : since->second;
    if (world_->now_ns() - partial[id] > 3 * kMinute) {
      fail("lease " + text(id) + " is there in part only");
    }
  }
  partial_since_ns_ = std::move(partial);
}

void Checks::waits() {
  const int64_t now_ns = world_->now_ns();
  if (was_disturbed(2 * kMinute)) return;
  for (const auto& [id, client] : world_->clients()) {
    if (client->state() != ClientState::kWaiting || now_ns - client->asked_ns() < 2 * kMinute) {
      continue;
    }
    if (now_ns - client->heard_ns() > kMinute) {
      fail("client " + text(id) + " waits and was told nothing for a minute");
    }
  }
}

void Checks::describe() {
  FakeProcess* process = world_->scheduling();
  if (process == nullptr) return;
  Asker who;
  who.id = who.name = "root";
  who.role = "admin";
  who.sees_all = who.rules_all = true;
  for (const char* verb : {"status", "queue"}) {
    process->scheduler()->command(1ull << 61, who, wire::PoolCommand{verb, {}, ""}, process->now());
    for (const auto& answer : process->scheduler()->tick(process->now()).to_commanders) {
      world_->log(std::string(verb) + ": " + answer.json);
    }
  }
}

void Checks::finish() {
  for (const auto& [id, client] : world_->clients()) {
    return fail("client " + text(id) + " never ended; it is in state " +
                text(static_cast<uint64_t>(client->state())) +
                ", was told: " + client->last_news().queue + ", " + client->last_news().reason +
                ", " + client->last_news().start);
  }
  for (size_t i = 0; i < world_->server_count(); ++i) {
    if (!world_->server(i).leases().empty()) {
      return fail(world_->server(i).name() + " still has a lease");
    }
  }
  FakeProcess* process = world_->scheduling();
  if (process == nullptr) return fail("nobody schedules");
  const Scheduler::Counts counts = process->scheduler()->counts();
  if (counts.leases != 0 || counts.waiting != 0 || counts.servers_silent != 0 ||
      counts.batches_unstored != 0 || counts.share_given_millionths != 0) {
    return fail("the scheduler still knows " + text(counts.leases) + " leases, " +
                text(counts.waiting) + " requests, " + text(counts.servers_silent) +
                " silent servers, " + text(counts.batches_unstored) + " batches, " +
                text(counts.share_given_millionths) + " millionths given");
  }
  for (const char* prefix : {"pool/request/", "pool/grant/"}) {
    const auto left = world_->store().read(prefix);
    if (!left.empty()) return fail("the store still has " + left.front().first);
  }
  accounting();
}

// What a record has of a lease that is not what its server said. Each record names whose it is, so
// sums by owner, account, class and server are as exact.
std::string Checks::differs(const Truth::Key& key, const Truth::Ended& ended,
                            const std::string& json) const {
  const wire::BookEntry& entry = ended.entry;
  if (ended.crashed) return "";
  for (const auto& [what, value] : {std::pair{"owner_id", &entry.owner_id},
                                    {"account", &entry.account},
                                    {"user_class", &entry.user_class}}) {
    if (entry.pool_lease_id == 0) continue;
    // Who was in an account or a class that a later policy has no more, is in another one since.
    if (what != std::string("owner_id") && !world_->rules().policy_has(*value)) continue;
    if (json.find("\"" + std::string(what) + "\":\"" + *value + "\"") != std::string::npos)
      continue;
    return ": not " + std::string(what) + " " + *value + ": " + json;
  }
  // Nobody asked a server that was forgotten for its last sums, unless it came back with them.
  const int64_t began_ns = ended.time_ns - static_cast<int64_t>(entry.age_ns);
  if (json.find("\"exact\":true") == std::string::npos &&
      world_->rules().was_forgotten(std::get<0>(key), began_ns))
    return "";
  for (const auto& [what, value_ns] : {std::pair{"used_ns", entry.used_ns},
                                       {"held_ns", entry.age_ns},
                                       {"idle_ns", entry.idle_total_ns}}) {
    if (number_in(json, what) != value_ns) {
      return ": not " + std::string(what) + " " + text(value_ns) + ": " + json;
    }
  }
  return "";
}

// Each lease that was somebody's has one record, with the sums that its server counted. A server
// that crashed may have taken its last sums with it.
void Checks::accounting() {
  struct Record {
    size_t count = 0;
    std::string json;
  };
  std::map<Truth::Key, Record> recorded;
  for (const auto& [key, json] : world_->store().read("used/")) {
    // used/SERVER-BOOT-LEASE-POOL'S LEASE
    const size_t pool_at = key.rfind('-');
    const size_t lease_at = key.rfind('-', pool_at - 1);
    const size_t boot_at = key.rfind('-', lease_at - 1);
    const size_t used_at = json.find("\"used_ns\":");
    if (boot_at == std::string::npos || lease_at == boot_at || used_at == std::string::npos) {
      return fail("the accounting has " + key + ": " + json);
    }
    auto& record =
        recorded[{key.substr(5, boot_at - 5), strtoull(key.c_str() + boot_at + 1, nullptr, 16),
                  strtoull(key.c_str() + lease_at + 1, nullptr, 10)}];
    ++record.count;
    record.json = json;
  }
  for (const auto& [key, ended] : world_->truth().all()) {
    const auto& [server, boot, lease] = key;
    const std::string name = "lease " + text(lease) + " (" + text(ended.entry.pool_lease_id) +
                             ") of " + server + " in boot " + text(boot);
    const auto found = recorded.find(key);
    const size_t count = found == recorded.end() ? 0 : found->second.count;
    if (count > 1) return fail("the accounting has " + text(count) + " records of " + name);
    if (count == 0) {
      if (ended.crashed || !ended.claimed) continue;
      // Nothing tells it from an attempt that was given up.
      const int64_t granted_ns = ended.time_ns - static_cast<int64_t>(ended.entry.age_ns);
      if (!ended.entry.was_attached && world_->rules().was_forgotten(server, granted_ns)) continue;
      return fail("the accounting has nothing of " + name + ", which ended at " +
                  text(static_cast<uint64_t>(ended.time_ns / kSecond)) + ": " + ended.entry.why);
    }
    ++accounted_;
    const std::string wrong = differs(key, ended, found->second.json);
    if (!wrong.empty()) return fail("the accounting says of " + name + wrong);
    recorded.erase(found);
  }
  // A new scheduler does not know the number of a lease whose server crashed before it.
  std::erase_if(recorded, [](const auto& item) { return std::get<2>(item.first) == 0; });
  if (const std::string differs = history_differs(world_->store()); !differs.empty())
    return fail("the history: " + differs);
  if (!recorded.empty()) {
    return fail("the accounting has lease " + text(std::get<2>(recorded.begin()->first)) + " of " +
                std::get<0>(recorded.begin()->first) + " in boot " +
                text(std::get<1>(recorded.begin()->first)) + ", which never was");
  }
}

}  // namespace tendril::pool::simulation

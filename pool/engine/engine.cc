// SPDX-License-Identifier: Apache-2.0
// Keeps the state in step with what the scheduler tells. It decides nothing.
#include "pool/engine/engine.h"

#include <algorithm>
#include <bit>

#include "pool/engine/state.h"

namespace tendril::pool {

namespace {

int64_t seconds_of(uint64_t seconds) {
  return seconds >= static_cast<uint64_t>(kNever) ? kNever : static_cast<int64_t>(seconds);
}

// Where a position of one policy is in another one.
template <typename Record>
uint32_t moved(uint32_t position, const std::vector<Record>& before,
               const std::vector<Record>& after) {
  if (position >= before.size()) return kNoClass;
  if (position < after.size() && after[position].name == before[position].name) return position;
  for (uint32_t i = 0; i < after.size(); ++i)
    if (after[i].name == before[position].name) return i;
  return kNoClass;
}

}  // namespace

const char* wait_reason_name(WaitReason reason) {
  switch (reason) {
    case WaitReason::kResources:
      return "Resources";
    case WaitReason::kPriority:
      return "Priority";
    case WaitReason::kQuota:
      return "Quota";
    case WaitReason::kUserLimit:
      return "UserLimit";
    case WaitReason::kReservation:
      return "Reservation";
    case WaitReason::kSchedule:
      return "Schedule";
    case WaitReason::kFragmented:
      return "Fragmented";
    case WaitReason::kNeverFits:
      return "NeverFits";
    case WaitReason::kServersDown:
      return "ServersDown";
    case WaitReason::kAccount:
      return "Account";
  }
  return "unknown";
}

std::string reason_text(WaitReason reason, const std::string& numbers) {
  return std::string(wait_reason_name(reason)) + ": " + numbers;
}

Engine::State::State() {
  room.set_inside([this](uint64_t id, uint64_t reservation) {
    const auto found = running.find(id);
    return found != running.end() && may_use(*found->second, reservation);
  });
  set_policy(default_policy(), 0, 0);
}

void Engine::State::set_policy(const PoolPolicy& policy, int64_t wall_s, int64_t now_s) {
  advance(now_s);
  std::vector<Promise> promised;
  promised.swap(promises_);
  for (const Booking& booking : bookings_) room.drop_claims(booking.number, true);
  bookings_.clear();
  const PoolPolicy before = this->policy();
  std::vector<std::unique_ptr<Entry>> all;
  for (auto& [id, entry] : waiting) all.push_back(std::move(entry));
  waiting.clear();
  lanes_.clear();
  by_age_.clear();
  foretold_.clear();
  pending_of_class_.clear();
  pending_of_account_.clear();
  std::vector<DecayedUsage> usage(policy.accounts.size());
  std::vector<Durations> lasted(policy.user_classes.size());
  for (uint32_t i = 0; i < usage_.size(); ++i)
    if (const uint32_t to = moved(i, before.accounts, policy.accounts); to != kNoClass)
      usage[to] = usage_[i];
  for (uint32_t i = 0; i < lasted_.size(); ++i)
    if (const uint32_t to = moved(i, before.user_classes, policy.user_classes); to != kNoClass)
      lasted[to] = lasted_[i];
  usage_ = std::move(usage);
  lasted_ = std::move(lasted);
  ledger.set_policy(policy);
  rates_.assign(policy.accounts.size(), 0);
  for (auto& [id, entry] : running) {
    entry->charged = false;
    remap(*entry, before, policy);
    entry->charge =
        charge_of(*entry, moved(entry->charge.gpu_class, before.gpu_classes, policy.gpu_classes));
    entry->charge.amount = amount_of(*room.slices_of(id));
    count(*entry, true);
  }
  for (auto& entry : all) {
    remap(*entry, before, policy);
    queue(std::move(entry));
  }
  for (uint32_t i = 0; i < policy.reservations.size(); ++i) {
    const Reservation& each = policy.reservations[i];
    if (each.to_s <= wall_s) continue;
    Booking booking;
    booking.number = i;
    booking.from_s = each.from_s - wall_s + now_s;
    booking.to_s = each.to_s == kNever ? kNever : each.to_s - wall_s + now_s;
    bookings_.push_back(booking);
  }
  for (Promise& promise : promised) {
    promise.gpu_class = moved(promise.gpu_class, before.gpu_classes, policy.gpu_classes);
    room.drop_claims(promise.id, false);
    if (still_good(promise)) keep_promise(std::move(promise));
  }
  failures_.clear();
  room_changes_ = 0;
  room.gained();
  dirty_ = true;
}

// What the new policy makes of a promise. It holds if it may.
bool Engine::State::still_good(Promise& promise) {
  const auto found = waiting.find(promise.id);
  if (found == waiting.end() || found->second->gone || promise.gpu_class == kNoClass) return false;
  promise.charge = charge_of(*found->second, promise.gpu_class);
  promise.charge.amount = amount_of(promise.slices);
  promise.then = then_of(promise);
  return fits_beside_promises(promise) &&
         room.free_by(promise.slices, found->second->ask.packed, promise.at_s);
}

void Engine::State::remap(Entry& entry, const PoolPolicy& before, const PoolPolicy& after) const {
  entry.ask.account = moved(entry.ask.account, before.accounts, after.accounts);
  entry.ask.user_class = moved(entry.ask.user_class, before.user_classes, after.user_classes);
  std::vector<uint32_t> classes;
  for (uint32_t gpu_class : entry.ask.gpu_classes)
    if (const uint32_t to = moved(gpu_class, before.gpu_classes, after.gpu_classes); to != kNoClass)
      classes.push_back(to);
  entry.ask.gpu_classes = std::move(classes);
}

// What follows from the request and the policy.
void Engine::State::derive(Entry& entry) {
  const PoolPolicy& policy = this->policy();
  entry.gone = entry.ask.account >= policy.accounts.size() ||
               entry.ask.user_class >= policy.user_classes.size();
  entry.user = ledger.user_number(entry.ask.user);
  entry.most_s = entry.ask.most_s;
  if (entry.gone) return;
  const UserClass& of = policy.user_classes[entry.ask.user_class];
  if (entry.most_s == kNever) entry.most_s = seconds_of(of.default_wall_s);
  entry.most_s = std::max<int64_t>(1, std::min(entry.most_s, seconds_of(of.max_wall_s)));
  const Ask& ask = entry.ask;
  std::string shape = std::to_string(ask.slices) + " " + std::to_string(ask.share_millionths) +
                      " " + std::to_string(ask.memory_bytes) + " " + std::to_string(ask.packed) +
                      " " + std::to_string(static_cast<int>(ask.spread)) + " " +
                      std::to_string(of.into_maintenance) + " ";
  if (ask.filter) shape += ask.filter_text;
  if (!bookings_.empty() || !policy.reservations.empty())
    shape += "\n" + std::to_string(ask.account) + "\n" + ask.user;
  entry.shape = shapes_.emplace(shape, static_cast<uint32_t>(shapes_.size())).first->second;
}

Charge Engine::State::charge_of(const Entry& entry, uint32_t gpu_class) const {
  return Charge{entry.ask.account, entry.ask.user_class, gpu_class, entry.user,
                room.amount_of(entry.ask, gpu_class)};
}

uint64_t Engine::State::amount_of(const std::vector<PlacedSlice>& slices) const {
  uint64_t sum = 0;
  for (const PlacedSlice& slice : slices) sum += room.amount_of(slice);
  return sum;
}

int32_t Engine::State::priority(const Entry& entry) const {
  if (entry.gone) return std::numeric_limits<int32_t>::min() + 1;
  const UserClass& of = policy().user_classes[entry.ask.user_class];
  return of.priority + std::clamp(entry.ask.priority, -1000, std::max(of.max_priority, 0));
}

bool Engine::State::late(const Entry& entry, int64_t now_s) const {
  return !entry.gone && now_s - entry.ask.submitted_s >= seconds_of(policy().longest_wait_s);
}

bool Engine::State::may_use(const Entry& entry, uint64_t reservation) const {
  if (reservation >= policy().reservations.size()) return false;
  const Reservation& of = policy().reservations[reservation];
  if (std::find(of.users.begin(), of.users.end(), entry.ask.user) != of.users.end()) return true;
  for (uint32_t account = entry.ask.account; account < policy().accounts.size();
       account = policy().accounts[account].parent)
    if (std::find(of.accounts.begin(), of.accounts.end(), account) != of.accounts.end())
      return true;
  return false;
}

void Engine::State::queue(std::unique_ptr<Entry> entry) {
  derive(*entry);
  entry->fresh = true;
  fresh_.push_back(entry->ask.id);
  lanes_[{entry->ask.account, entry->ask.user_class}].insert(
      {-priority(*entry), entry->ask.submitted_s, entry->ask.id});
  by_age_.insert({entry->ask.submitted_s, entry->ask.id});
  ++pending_of_class_[{entry->ask.user_class, entry->user}];
  ++pending_of_account_[{entry->ask.account, entry->user}];
  waiting[entry->ask.id] = std::move(entry);
}

void Engine::State::unqueue(const Entry& entry) {
  const auto lane = lanes_.find({entry.ask.account, entry.ask.user_class});
  lane->second.erase({-priority(entry), entry.ask.submitted_s, entry.ask.id});
  if (lane->second.empty()) lanes_.erase(lane);
  by_age_.erase({entry.ask.submitted_s, entry.ask.id});
  foretold_.erase(entry.ask.id);
  const auto less = [](auto& counts, uint32_t of, uint32_t user) {
    const auto found = counts.find({of, user});
    if (--found->second == 0) counts.erase(found);
  };
  less(pending_of_class_, entry.ask.user_class, entry.user);
  less(pending_of_account_, entry.ask.account, entry.user);
}

base::Status Engine::State::submit(const Ask& ask, int64_t now_s) {
  const auto invalid = [](const std::string& text) {
    return base::Status(base::Code::kInvalid, text);
  };
  if (ask.slices == 0 || ask.slices > kMostSlices)
    return invalid("a request has from 1 to " + std::to_string(kMostSlices) + " slices, not " +
                   std::to_string(ask.slices));
  if (ask.share_millionths > kWholeGpu || (ask.share_millionths == 0 && ask.memory_bytes == 0))
    return invalid("a slice's share is " + std::to_string(ask.share_millionths) +
                   " millionths; it must be from 1 to 1000000, or 0 with an amount of memory");
  if (waiting.count(ask.id) != 0 || running.count(ask.id) != 0)
    return invalid("request " + std::to_string(ask.id) + " waits or runs already");
  prepare(now_s);
  auto entry = std::make_unique<Entry>();
  entry->ask = ask;
  derive(*entry);
  if (!ask.accepted) {
    if (entry->gone) return invalid("the policy has no such account or class of use");
    const auto pending = [](const auto& counts, uint32_t of, uint32_t user) {
      const auto found = counts.find({of, user});
      return found == counts.end() ? 0 : found->second;
    };
    const UserClass& of = policy().user_classes[ask.user_class];
    const Account& account = policy().accounts[ask.account];
    const uint64_t in_class = pending(pending_of_class_, ask.user_class, entry->user);
    const uint64_t in_account = pending(pending_of_account_, ask.account, entry->user);
    if (in_class >= of.max_per_user.pending || in_account >= account.max_per_user.pending)
      return base::Status(
          base::Code::kRefused,
          reason_text(WaitReason::kUserLimit,
                      ask.user + " has " + std::to_string(std::max(in_class, in_account)) +
                          " requests waiting, and " +
                          (in_class >= of.max_per_user.pending ? "class " + of.name
                                                               : "account " + account.name) +
                          " allows no more; wait until one has started, or withdraw one"));
  }
  entry->answers = room.answers_of(ask);
  if (!entry->gone)
    if (base::Status status = never_fits(*entry, now_s); !status) return status;
  if (!entry->gone) learn(*entry);
  queue(std::move(entry));
  return {};
}

// Places are chosen for the sizes that are asked for. Often at first, then now and then, because
// it takes milliseconds; the past fades.
void Engine::State::learn(const Entry& entry) {
  constexpr uint32_t kEvery = 500;
  constexpr double kKept = 0.9;
  if (entry.ask.gpu_classes.empty()) return;
  Request request;
  request.slices = entry.ask.slices;
  request.share_millionths =
      static_cast<uint32_t>(room.amount_of(entry.ask, entry.ask.gpu_classes[0]) / entry.ask.slices);
  if (request.share_millionths == 0) return;
  demand_.add(request);
  ++asked_;
  if (asked_ % kEvery != 0 && (asked_ >= kEvery || !std::has_single_bit(asked_))) return;
  room.learn(demand_);
  if (asked_ % kEvery == 0) demand_.fade(kKept);
}

bool Engine::State::withdraw(uint64_t id) {
  const auto found = waiting.find(id);
  if (found == waiting.end()) return false;
  if (promise_of(id) != nullptr) {
    drop_promise(id);
    dirty_ = true;
  }
  unqueue(*found->second);
  waiting.erase(found);
  return true;
}

void Engine::State::adopt(const Ask& ask, const std::vector<PlacedSlice>& slices,
                          int64_t started_s) {
  if (running.count(ask.id) != 0) return;
  withdraw(ask.id);
  auto entry = std::make_unique<Entry>();
  entry->ask = ask;
  derive(*entry);
  entry->started_s = started_s;
  entry->ends_by_s = entry->most_s == kNever ? kNever : started_s + entry->most_s;
  uint32_t gpu_class = kNoClass;
  for (const PlacedSlice& slice : slices)
    if (gpu_class == kNoClass) gpu_class = room.class_of(slice.server, slice.gpu);
  room.hold(ask.id, slices, ask.packed, entry->ends_by_s);
  entry->charge = charge_of(*entry, gpu_class);
  entry->charge.amount = amount_of(slices);
  count(*entry, true);
  running[ask.id] = std::move(entry);
  dirty_ = true;
}

void Engine::State::resize(uint64_t id, const std::vector<PlacedSlice>& slices) {
  const auto found = running.find(id);
  if (found == running.end()) return;
  Entry& entry = *found->second;
  count(entry, false);
  room.release(id);
  room.hold(id, slices, entry.ask.packed, entry.ends_by_s);
  entry.charge.amount = amount_of(slices);
  count(entry, true);
  dirty_ = true;
}

// Its place is looked at as if it were not there. It is past the check of maintenance, because it
// runs already and ends when it must.
bool Engine::State::grow(uint64_t id, const std::vector<PlacedSlice>& slices, int64_t now_s,
                         std::string* why) {
  const auto found = running.find(id);
  if (found == running.end()) return false;
  advance(now_s);
  Entry& entry = *found->second;
  const std::vector<PlacedSlice> before = *room.slices_of(id);
  Charge grown = entry.charge;
  grown.amount = amount_of(slices);
  const bool counts = entry.charged;
  count(entry, false);
  room.release(id);
  const std::function<bool(uint64_t)> may_use = [&](uint64_t reservation) {
    return this->may_use(entry, reservation);
  };
  Seeker seeker = seeker_for(entry, now_s);
  seeker.lasts_s =
      entry.ends_by_s == kNever ? kNever : std::max<int64_t>(entry.ends_by_s - now_s, 0);
  seeker.may_use = &may_use;
  seeker.past_maintenance = true;
  why->clear();
  if (counts && is_over(grown))
    *why = "a limit of its user or account";
  else if (!room.has_room(slices, entry.ask.packed))
    *why = "others who were given what it had";
  else if (!room.in_time(seeker, slices, now_s) ||
           (counts && delays_a_promise(entry, grown, entry.ends_by_s)))
    *why = "others to whom it is promised or reserved";
  if (why->empty()) entry.charge = grown;
  room.hold(id, why->empty() ? slices : before, entry.ask.packed, entry.ends_by_s);
  count(entry, true);
  dirty_ = dirty_ || why->empty();
  return why->empty();
}

void Engine::State::ended(uint64_t id, int64_t now_s) {
  if (withdraw(id)) return;
  const auto found = running.find(id);
  if (found == running.end()) return;
  advance(now_s);
  Entry& entry = *found->second;
  if (entry.charged && entry.most_s != kNever)
    lasted_[entry.ask.user_class].add(now_s - entry.started_s, entry.most_s);
  count(entry, false);
  room.release(id);
  running.erase(found);
  dirty_ = true;
}

// A server that fails a request again and again is avoided for longer each time. Else one that is
// too slow to answer would keep taking the request's turn.
void Engine::State::avoid(Entry& entry, uint32_t server, int64_t now_s) {
  constexpr int64_t kAvoid_s = 20, kForget_s = 600;
  constexpr uint32_t kDoublings = 5;
  std::erase_if(entry.avoided,
                [now_s](const Avoided& each) { return each.until_s + kForget_s <= now_s; });
  if (server == kNoServer) return;
  auto known = std::find_if(entry.avoided.begin(), entry.avoided.end(),
                            [server](const Avoided& each) { return each.server == server; });
  if (known == entry.avoided.end()) known = entry.avoided.insert(known, Avoided{server, 0, 0});
  known->until_s = now_s + (kAvoid_s << std::min(known->times, kDoublings));
  ++known->times;
}

void Engine::State::failed(uint64_t id, uint32_t server, int64_t now_s) {
  const auto found = running.find(id);
  if (found == running.end()) return;
  advance(now_s);
  std::unique_ptr<Entry> entry = std::move(found->second);
  count(*entry, false);
  room.release(id);
  running.erase(found);
  entry->reclaimed = false;
  avoid(*entry, server, now_s);
  entry->answers = room.answers_of(entry->ask);
  queue(std::move(entry));
  dirty_ = true;
}

void Engine::State::count(Entry& entry, bool more) {
  if (more == entry.charged) return;
  const Charge& charge = entry.charge;
  if (more && (charge.account >= policy().accounts.size() ||
               charge.user_class >= policy().user_classes.size() ||
               charge.gpu_class >= policy().gpu_classes.size()))
    return;
  entry.charged = more;
  const auto change = [&](Ledger::Use& use) {
    if (more)
      ledger.add(use, charge);
    else
      ledger.remove(use, charge);
  };
  change(ledger.use());
  for (Promise& promise : promises_)
    if (entry.ends_by_s > promise.at_s) change(promise.then);
  set_rate(charge, more ? 1 : -1);
}

void Engine::State::set_end(Entry& entry, int64_t ends_by_s) {
  for (Promise& promise : promises_) {
    if (!entry.charged) continue;
    if (entry.ends_by_s > promise.at_s && ends_by_s <= promise.at_s)
      ledger.remove(promise.then, entry.charge);
    if (entry.ends_by_s <= promise.at_s && ends_by_s > promise.at_s)
      ledger.add(promise.then, entry.charge);
  }
  entry.ends_by_s = ends_by_s;
  room.set_end(entry.ask.id, ends_by_s);
}

void Engine::State::set_rate(const Charge& charge, double sign) {
  const double weighted = static_cast<double>(charge.amount) / kWholeGpu *
                          policy().gpu_classes[charge.gpu_class].usage_weight *
                          policy().user_classes[charge.user_class].usage_factor;
  for (uint32_t account = charge.account; account != kNoAccount;
       account = policy().accounts[account].parent)
    rates_[account] = std::max(0.0, rates_[account] + sign * weighted);
}

void Engine::State::advance(int64_t now_s) {
  for (size_t account = 0; account < usage_.size(); ++account)
    usage_[account].advance(now_s, rates_[account], policy().fair_share_half_life_s);
}

double Engine::State::gpu_seconds(uint32_t account) const {
  return account < usage_.size() ? usage_[account].gpu_seconds() : 0;
}

std::vector<UsageRecord> Engine::State::usage() const {
  std::vector<UsageRecord> records;
  for (size_t i = 0; i < usage_.size(); ++i)
    records.push_back(UsageRecord{policy().accounts[i].name, usage_[i].gpu_seconds()});
  return records;
}

std::vector<DurationRecord> Engine::State::durations() const {
  std::vector<DurationRecord> records;
  for (size_t i = 0; i < lasted_.size(); ++i)
    records.push_back(DurationRecord{policy().user_classes[i].name, lasted_[i].counts()});
  return records;
}

void Engine::State::restore(const std::vector<UsageRecord>& usage,
                            const std::vector<DurationRecord>& durations, int64_t now_s) {
  for (const UsageRecord& record : usage)
    if (const auto account = policy().account(record.account))
      usage_[*account].restore(record.gpu_seconds, now_s);
  for (const DurationRecord& record : durations)
    if (const auto user_class = policy().user_class(record.user_class))
      lasted_[*user_class].restore(record.tenths);
  dirty_ = true;
}

Engine::Engine() : state_(std::make_unique<State>()) {}
Engine::~Engine() = default;

void Engine::set_policy(const PoolPolicy& policy, int64_t wall_s, int64_t now_s) {
  state_->set_policy(policy, wall_s, now_s);
}

base::Result<uint32_t> Engine::add_server(const EngineServer& server) {
  state_->servers_changed();
  return state_->room.add(server);
}
base::Status Engine::update_server(uint32_t server, const EngineServer& what) {
  state_->servers_changed();
  return state_->room.update(server, what);
}
void Engine::set_state(uint32_t server, ServerState state) {
  state_->servers_changed();
  state_->room.set_state(server, state);
}
void Engine::set_maintenance(uint32_t server, std::vector<Interval> windows) {
  state_->servers_changed();
  state_->room.set_maintenance(server, std::move(windows));
}
void Engine::remove_server(uint32_t server) {
  state_->servers_changed();
  state_->room.remove(server);
}

base::Status Engine::submit(const Ask& ask, int64_t now_s) { return state_->submit(ask, now_s); }
void Engine::withdraw(uint64_t id) { state_->withdraw(id); }
void Engine::adopt(const Ask& ask, const std::vector<PlacedSlice>& slices, int64_t started_s) {
  state_->adopt(ask, slices, started_s);
}
void Engine::resize(uint64_t id, const std::vector<PlacedSlice>& slices) {
  state_->resize(id, slices);
}
bool Engine::grow(uint64_t id, const std::vector<PlacedSlice>& slices, int64_t now_s,
                  std::string* why) {
  return state_->grow(id, slices, now_s, why);
}
std::map<uint64_t, std::string> Engine::beyond_limits(const std::vector<EngineGrowth>& all) const {
  return state_->beyond_limits(all);
}
void Engine::ended(uint64_t id, int64_t now_s) { state_->ended(id, now_s); }
void Engine::failed(uint64_t id, uint32_t server, int64_t now_s) {
  state_->failed(id, server, now_s);
}
EnginePlan Engine::plan(int64_t now_s) { return state_->plan(now_s); }
std::vector<EngineWaiting> Engine::waiting(int64_t now_s) { return state_->explain(now_s); }

uint64_t Engine::used(uint32_t account, uint32_t gpu_class) const {
  return state_->ledger.held(state_->ledger.use(), account, gpu_class);
}
uint64_t Engine::lent(uint32_t account, uint32_t gpu_class) const {
  return state_->ledger.lent(account, gpu_class);
}
uint32_t Engine::leases_on(uint32_t server, uint32_t gpu) const {
  return static_cast<uint32_t>(state_->room.holders(server, gpu).size());
}
uint64_t Engine::used_by_user(uint32_t user_class, const std::string& user) const {
  return state_->ledger.of_class_user(user_class, state_->ledger.user_number(user)).gpus;
}
uint64_t Engine::capacity(uint32_t gpu_class) const { return state_->room.capacity(gpu_class); }
uint64_t Engine::unused(uint32_t gpu_class) const { return state_->room.unused(gpu_class); }
double Engine::decayed_gpu_seconds(uint32_t account) const { return state_->gpu_seconds(account); }
double Engine::entitlement(uint32_t account) const { return state_->ledger.entitlement(account); }
size_t Engine::waiting_count() const { return state_->waiting.size(); }
size_t Engine::running_count() const { return state_->running.size(); }
std::vector<UsageRecord> Engine::usage() const { return state_->usage(); }
std::vector<DurationRecord> Engine::durations() const { return state_->durations(); }
void Engine::restore(const std::vector<UsageRecord>& usage,
                     const std::vector<DurationRecord>& durations, int64_t now_s) {
  state_->restore(usage, durations, now_s);
}

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// See fake_server.h.
#include "pool/simulation/fake_server.h"

#include <algorithm>

#include "pool/simulation/world.h"

namespace tendril::pool::simulation {
namespace {

using base::Code;
using base::Status;

constexpr uint64_t kContextBytes = 500ull << 20;
constexpr const char* kTakenBack = "the scheduler took it back";
constexpr size_t kEntriesOfReport = 8;  // few, so that long books are common
constexpr int64_t kUseEveryNs = 10 * kSecond;
constexpr int64_t kSampleEveryNs = 5 * kSecond;  // simulated days cost less so

}  // namespace

int64_t FakeLease::busy_ns(int64_t now_ns) const {
  return busy_before_ns + std::max<int64_t>(0, std::min(now_ns, busy_until_ns) - busy_from_ns);
}

int64_t FakeLease::idle_ns(int64_t now_ns) const {
  return now_ns - std::min(now_ns, std::max(granted_ns, busy_until_ns));
}

FakeServer::FakeServer(World* world, size_t index, std::vector<FakeGpu> gpus)
    : world_(world), index_(index), name_("gpu" + std::to_string(index)), gpus_(std::move(gpus)) {
  start();
}

void FakeServer::start() {
  alive_ = true;
  draining_ = false;
  ++lives_;
  boot_ = index_ * 1'000'000 + lives_;
  next_lease_ = 1;
  ended_count_ = 0;
  spoken_ns_ = world_->now_ns();
  std::vector<lease::GpuCapacity> capacities;
  for (const FakeGpu& gpu : gpus_) {
    capacities.push_back({gpu.memory_bytes - kContextBytes, kContextBytes, 0, 132});
  }
  world_->rules().servers_changed();
  book_ = std::make_unique<lease::LeaseBook>(name_, capacities);
  holds_ = std::make_unique<lease::Holds>(book_.get());
  for (size_t process = 0; process < world_->process_count(); ++process) seek(process);
}

void FakeServer::crash() {
  alive_ = false;
  world_->rules().servers_changed();
  for (auto& [id, lease] : leases_) {
    if (lease.client != 0) world_->part_gone(lease.client, index_, id, "the server is gone");
  }
  world_->truth().crashed(*this);
  leases_.clear();
  ended_.clear();
  for (auto& [process, link] : links_) {
    if (link.wire != 0) world_->end_wire(link.wire, false);
  }
  links_.clear();
  sought_.clear();
}

const FakeLease* FakeServer::find(uint64_t lease_id) const {
  const auto found = leases_.find(lease_id);
  return found == leases_.end() ? nullptr : &found->second;
}

uint64_t FakeServer::usable_bytes(uint32_t gpu) const {
  return gpus_[gpu].memory_bytes - kContextBytes;
}

bool FakeServer::admits_alone() const {
  return alive_ && !draining_ && world_->now_ns() - spoken_ns_ > 10 * kSecond;
}

bool FakeServer::has_wire_to(size_t process) const {
  const auto found = links_.find(process);
  return found != links_.end() && found->second.wire != 0;
}

void FakeServer::seek(size_t process) {
  if (!alive_ || has_wire_to(process) || !sought_.insert(process).second) return;
  world_->clock().in(world_->clock().between(0, 2 * kSecond), [this, process, life = lives_] {
    if (life == lives_) try_to_connect(process);
  });
}

void FakeServer::try_to_connect(size_t process) {
  sought_.erase(process);
  if (!alive_ || has_wire_to(process)) return;
  if (!world_->schedules(process)) return;  // World calls seek() when it does
  const uint64_t wire = world_->connect_server(process, index_);
  if (wire == 0) return seek(process);
  Link& link = links_[process];
  link = Link{};
  link.process = process;
  link.wire = wire;
  report(&link);
}

void FakeServer::wire_gone(uint64_t wire) {
  for (auto at = links_.begin(); at != links_.end(); ++at) {
    if (at->second.wire != wire) continue;
    const size_t process = at->first;
    links_.erase(at);
    return seek(process);
  }
}

wire::ServerFacts FakeServer::facts() const {
  wire::ServerFacts facts;
  facts.name = name_;
  facts.endpoint = name_ + ":7433";
  facts.server_id = std::string(15, 's') + static_cast<char>(index_);
  facts.boot = boot_;
  facts.product_version = wire::product_version();
  facts.driver_version = 13000;
  facts.apis = {{"cuda", 77}};
  facts.transports = {"tcp", "shm"};
  facts.labels = {"rack=" + std::to_string(index_ / 8)};
  facts.draining = draining_;
  for (size_t i = 0; i < gpus_.size(); ++i) {
    wire::GpuRecord gpu;
    gpu.index = static_cast<uint32_t>(i);
    gpu.name = gpus_[i].model;
    gpu.uuid = std::string(14, 'u') + static_cast<char>(index_) + static_cast<char>(i);
    gpu.memory_total_bytes = gpus_[i].memory_bytes;
    gpu.compute_capability = 90;
    lease::describe(book_->room(gpu.index), &gpu);
    facts.gpus.push_back(std::move(gpu));
  }
  return facts;
}

wire::BookEntry FakeServer::entry(const FakeLease& lease) const {
  const int64_t now_ns = world_->now_ns();
  wire::BookEntry entry = lease.entry;
  entry.age_ns = static_cast<uint64_t>(now_ns - lease.granted_ns);
  entry.idle_ns = static_cast<uint64_t>(lease.idle_ns(now_ns));
  entry.used_ns = static_cast<uint64_t>(lease.busy_ns(now_ns));
  entry.idle_total_ns = entry.age_ns - entry.used_ns;
  return entry;
}

void FakeServer::report(Link* link) {
  wire::PoolReport report;
  report.boot = boot_;
  report.number = ++link->number;
  report.newest_term = holds_->term();
  const bool starts_full = link->number == 1 || link->full;
  if (starts_full) {
    link->full = true;
    link->rest_of_full.clear();
    for (const auto& [id, lease] : leases_) link->rest_of_full.push_back(id);
    link->changed.clear();
    link->ended_sent = 0;
    link->facts_sent = false;
  }
  report.full = starts_full || !link->rest_of_full.empty();
  link->full = false;
  if (!link->facts_sent) report.facts.push_back(facts());
  link->facts_sent = true;
  while (!link->rest_of_full.empty() && report.entries.size() < kEntriesOfReport) {
    FakeLease* lease = const_cast<FakeLease*>(find(link->rest_of_full.front()));
    link->rest_of_full.pop_front();
    if (lease != nullptr) report.entries.push_back(entry(*lease));
  }
  report.more = report.full && !link->rest_of_full.empty();
  if (!report.more) {
    const int64_t now_ns = world_->now_ns();
    for (auto& [id, lease] : leases_) {
      if (link->changed.count(id) == 0 && now_ns - lease.reported_ns < kUseEveryNs) continue;
      lease.reported_ns = now_ns;
      report.entries.push_back(entry(lease));
    }
    link->changed.clear();
    const bool says_uses = now_ns - link->uses_ns >= kSampleEveryNs;
    if (says_uses) link->uses_ns = now_ns;
    for (auto& [id, lease] : leases_) {
      if (!says_uses || lease.reported_ns == now_ns ||
          lease.entry.phase != wire::LeasePhase::kClaimed)
        continue;
      const wire::BookEntry use = entry(lease);
      report.uses.push_back({id, use.age_ns, use.idle_ns, use.idle_total_ns, use.used_ns,
                             use.waited_ns, use.memory_used_bytes});
    }
    for (const wire::BookEntry& ended : ended_) {
      if (ended.ended_number <= link->ended_sent) continue;
      link->ended_sent = ended.ended_number;
      report.entries.push_back(ended);
    }
  }
  report.results = std::move(link->results);
  link->results.clear();
  link->waits = true;
  world_->send_report(link->wire, std::move(report));
}

void FakeServer::answered(uint64_t wire, const Status& status, const wire::PoolOrders& orders) {
  const auto found = std::find_if(links_.begin(), links_.end(),
                                  [&](const auto& item) { return item.second.wire == wire; });
  if (found == links_.end()) return;
  Link& link = found->second;
  link.waits = false;
  if (!status.ok() || !holds_->hear(orders.term).ok()) {
    world_->end_wire(wire, true);
    links_.erase(found);
    return;
  }
  spoken_ns_ = world_->now_ns();
  while (!ended_.empty() && ended_.front().ended_number <= orders.ended_stored) {
    world_->truth().acknowledged(*this, ended_.front());
    ended_.pop_front();
  }
  if (orders.wants_full) link.full = true;
  for (const wire::Order& order : orders.orders) {
    link.results.push_back(perform(order, orders.term));
  }
  const size_t process = found->first;
  world_->clock().in(world_->clock().between(kMillisecond / 10, 5 * kMillisecond),
                     [this, process, wire, life = lives_] {
                       if (life != lives_ || !alive_) return;
                       const auto at = links_.find(process);
                       if (at != links_.end() && at->second.wire == wire) report(&at->second);
                     });
}

FakeLease* FakeServer::of_order(const wire::Order& order) {
  for (auto& [id, lease] : leases_) {
    if (order.pool_lease_id != 0 ? lease.entry.pool_lease_id == order.pool_lease_id
                                 : id == order.lease_id) {
      return &lease;
    }
  }
  return nullptr;
}

wire::OrderResult FakeServer::perform(const wire::Order& order, uint64_t term) {
  wire::OrderResult result;
  result.order_id = order.order_id;
  Status status;
  FakeLease* lease = of_order(order);
  if (lease != nullptr) result.lease_id = lease->entry.lease_id;
  switch (order.kind) {
    case wire::OrderKind::kHold:
      status = hold(order, term, &result);
      break;
    case wire::OrderKind::kDrain:
    case wire::OrderKind::kUndrain:
      draining_ = order.kind == wire::OrderKind::kDrain;
      for (auto& [process, link] : links_) link.facts_sent = false;
      break;
    case wire::OrderKind::kCommit:
      status = holds_->commit(static_cast<uint64_t>(world_->now_ns()), term, order.pool_lease_id);
      if (!status.ok() || lease == nullptr) break;
      if (lease->entry.phase == wire::LeasePhase::kHeld) {
        lease->entry.phase = wire::LeasePhase::kCommitted;
        lease->granted_ns = world_->now_ns();
        changed(lease->entry.lease_id);
        expire_later();
      }
      result.secret = lease->secret;
      break;
    case wire::OrderKind::kCancel:
      status = holds_->cancel(term, order.pool_lease_id);
      if (lease != nullptr) {
        world_->truth().cancelled(*this, *lease);
        tell(*lease, wire::NoticeKind::kEnded, kTakenBack, 0);
        end(lease->entry.lease_id, kTakenBack);
        status = Status();
      }
      break;
    default:
      if (lease == nullptr) {
        status = Status(Code::kNotFound, "no such lease");
      } else {
        status = perform_on(order, term, lease);
      }
  }
  result.code = status.code();
  result.text = status.message();
  return result;
}

Status FakeServer::hold(const wire::Order& order, uint64_t term, wire::OrderResult* result) {
  if (draining_) return Status(Code::kRefused, name_ + " drains");
  std::vector<wire::SliceGrant> slices;
  for (const uint32_t gpu : order.gpus) {
    slices.push_back(
        {gpu, order.slice.share_millionths, order.slice.memory_bytes, order.slice.packed});
  }
  bool is_new = false;
  auto held = holds_->hold(static_cast<uint64_t>(world_->now_ns()), term, order.pool_lease_id,
                           next_lease_, slices, &is_new);
  if (!held.ok()) return held.status();
  result->lease_id = held->lease_id;
  if (is_new) {
    ++next_lease_;
    FakeLease& lease = leases_[held->lease_id];
    lease.granted_ns = world_->now_ns();
    lease.secret = name_ + "/" + std::to_string(held->lease_id);
    lease.entry.lease_id = held->lease_id;
    lease.entry.pool_lease_id = order.pool_lease_id;
    lease.entry.owner_id = order.owner_id;
    lease.entry.owner_name = order.owner_name;
    lease.entry.account = order.account;
    lease.entry.user_class = order.user_class;
    lease.entry.client = order.client;
    lease.entry.slices = held->slices;
    lease.entry.terms = order.terms;
    changed(held->lease_id);
  }
  expire_later();
  return Status();
}

Status FakeServer::perform_on(const wire::Order& order, uint64_t term, FakeLease* lease) {
  const uint64_t id = lease->entry.lease_id;
  if (order.kind != wire::OrderKind::kEnd)
    lease->told.push_back({world_->now_ns(), term, order.notice, order.text, order.in_s});
  switch (order.kind) {
    case wire::OrderKind::kEnd:
      world_->truth().ordered_to_end(*this, *lease, order);
      tell(*lease, wire::NoticeKind::kEnded, order.text, 0);
      end(id, order.text);
      return Status();
    case wire::OrderKind::kChange: {
      if (order.share_millionths == 0 && order.memory_bytes == 0) return Status();
      auto slices = book_->change(id, order.share_millionths, order.memory_bytes);
      if (!slices.ok()) return slices.status();
      lease->entry.slices = slices.take();
      holds_->changed(lease->entry.pool_lease_id, lease->entry.slices);
      changed(id);
      tell(*lease, order.notice, order.text, order.in_s);
      return Status();
    }
    case wire::OrderKind::kPause:
    case wire::OrderKind::kResume: {
      const bool paused = order.kind == wire::OrderKind::kPause;
      if (lease->entry.paused == paused) return Status();
      lease->entry.paused = paused;
      lease->paused_ns = world_->now_ns();
      changed(id);
      tell(*lease, paused ? wire::NoticeKind::kPaused : wire::NoticeKind::kResumed, order.text, 0);
      return Status();
    }
    case wire::OrderKind::kPark:
    case wire::OrderKind::kWake: {
      const wire::Standing standing =
          order.kind == wire::OrderKind::kPark ? wire::Standing::kParked : wire::Standing::kGranted;
      if (lease->entry.standing == standing) return Status();
      lease->entry.standing = standing;
      lease->entry.stays_bytes.assign(lease->entry.slices.size(), 0);
      changed(id);
      return Status();
    }
    case wire::OrderKind::kAskToWake:
      return Status();
    case wire::OrderKind::kMayWake: {
      if (!lease->entry.wants_wake) return Status();
      lease->entry.wants_wake = false;
      lease->entry.standing = wire::Standing::kGranted;
      changed(id);
      return Status();
    }
    case wire::OrderKind::kNotice:
      world_->rules().told(*this, *lease, order);
      tell(*lease, order.notice, order.text, order.in_s);
      return Status();
    default:
      return Status(Code::kUnsupported, "no such order");
  }
}

void FakeServer::tell(const FakeLease& lease, wire::NoticeKind kind, const std::string& text,
                      uint64_t in_s) {
  if (lease.client == 0) return;
  world_->notice(lease.client, index_, {lease.entry.lease_id, kind, text, in_s});
}

void FakeServer::changed(uint64_t lease_id) {
  for (auto& [process, link] : links_) link.changed.insert(lease_id);
}

void FakeServer::end(uint64_t lease_id, const std::string& why) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return;
  FakeLease& lease = found->second;
  const bool was_lease = lease.entry.phase != wire::LeasePhase::kHeld;
  if (lease.entry.pool_lease_id != 0) holds_->release(lease.entry.pool_lease_id, why);
  book_->release(lease_id);
  wire::BookEntry last = entry(lease);
  last.phase = wire::LeasePhase::kEnded;
  last.why = why;
  if (was_lease || why != kTakenBack) last.ended_number = ++ended_count_;
  if (last.ended_number != 0) world_->truth().ended(*this, last, lease.client != 0);
  // The scheduler that cancels a hold knows that it is gone.
  if (was_lease || why != kTakenBack) ended_.push_back(std::move(last));
  leases_.erase(found);
}

void FakeServer::expire_later() {
  const uint64_t next = holds_->next_expiry_ns();
  if (next == lease::Holds::kNever) return;
  world_->clock().at(static_cast<int64_t>(next), [this, life = lives_] {
    if (life == lives_ && alive_) expire();
  });
}

void FakeServer::expire() {
  for (const lease::Hold& hold : holds_->expire(static_cast<uint64_t>(world_->now_ns()))) {
    end(hold.lease_id, hold.state == lease::HoldState::kHeld ? "not committed" : "not claimed");
  }
  expire_later();  // another one was claimed since this was planned
}

base::Result<std::vector<wire::SliceGrant>> FakeServer::claim(uint64_t lease_id,
                                                              const std::string& secret,
                                                              uint64_t client) {
  const auto found = leases_.find(lease_id);
  if (!alive_ || found == leases_.end()) return Status(Code::kNotFound, "no such lease");
  FakeLease& lease = found->second;
  if (lease.secret != secret) return Status(Code::kRefused, "wrong secret");
  auto claimed = holds_->claim(lease.entry.pool_lease_id);
  if (!claimed.ok()) return claimed.status();
  lease.entry.phase = wire::LeasePhase::kClaimed;
  lease.client = client;
  changed(lease_id);
  return lease.entry.slices;
}

base::Result<uint64_t> FakeServer::lease_directly(const wire::LeaseRequest& request,
                                                  uint64_t client, const std::string& owner) {
  if (!admits_alone()) return Status(Code::kRefused, "ask the pool");
  auto granted = book_->grant(next_lease_, request);
  if (!granted.ok()) return granted.status();
  const uint64_t id = next_lease_++;
  FakeLease& lease = leases_[id];
  lease.granted_ns = world_->now_ns();
  lease.client = client;
  lease.entry.lease_id = id;
  lease.entry.phase = wire::LeasePhase::kClaimed;
  lease.entry.owner_id = lease.entry.owner_name = owner;
  lease.entry.client = request.client;
  lease.entry.slices = granted.take();
  lease.entry.terms = request.terms;
  changed(id);
  return id;
}

void FakeServer::attach(uint64_t lease_id) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return;
  if (!found->second.entry.was_attached) found->second.attached_ns = world_->now_ns();
  found->second.entry.was_attached = true;
  found->second.entry.processes = 1;
  changed(lease_id);
}

void FakeServer::work(uint64_t lease_id, int64_t for_ns) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end()) return;
  FakeLease& lease = found->second;
  const int64_t now_ns = world_->now_ns();
  lease.busy_before_ns = lease.busy_ns(now_ns);
  lease.busy_from_ns = now_ns;
  lease.busy_until_ns = now_ns + for_ns;
  changed(lease_id);
}

void FakeServer::let_go(uint64_t lease_id, const std::string& why) {
  if (alive_) end(lease_id, why);
}

}  // namespace tendril::pool::simulation

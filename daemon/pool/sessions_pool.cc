// SPDX-License-Identifier: Apache-2.0
// What a server does for its pool: it carries orders out, reports what it holds and what ended, and
// gives leases to those who claim them. The rules of holds are lease/holds.h's. A scheduler is
// checked like any peer. See sessions.h.
#include <time.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/text.h"
#include "config/quantity.h"
#include "daemon/log.h"
#include "daemon/sessions.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

constexpr uint64_t kSecondNs = 1'000'000'000;
// Orders come again only if their results were lost on the way, so the last ones are enough.
constexpr size_t kResultsMax = 2048;
// Without a scheduler that stores them, the oldest are lost in the end.
constexpr size_t kEndedMax = 65'536;
constexpr uint64_t kSettlesNs = 2 * kSecondNs;  // less is no idle time
// A pause ends by itself after that, whatever becomes of the scheduler.
constexpr uint64_t kPauseS = 300, kPauseMostS = 3600;
constexpr size_t kNameMax = 256;
constexpr char kTakenBack[] = "the pool took it back";

Status no_such_lease() {
  return Status(Code::kNotFound, "the lease is not on this server, or has ended");
}

bool is_about_lease(wire::OrderKind kind) {
  return kind == wire::OrderKind::kEnd || kind == wire::OrderKind::kChange ||
         kind == wire::OrderKind::kPause || kind == wire::OrderKind::kResume ||
         kind == wire::OrderKind::kNotice || kind == wire::OrderKind::kPark ||
         kind == wire::OrderKind::kWake || kind == wire::OrderKind::kAskToWake ||
         kind == wire::OrderKind::kMayWake;
}

std::vector<wire::SliceGrant> slices_of(const wire::Order& order) {
  std::vector<wire::SliceGrant> slices;
  for (const uint32_t gpu : order.gpus) {
    wire::SliceGrant slice;
    slice.gpu_index = gpu;
    slice.share_millionths = order.slice.share_millionths;
    slice.memory_bytes = order.slice.memory_bytes;
    slice.packed = order.slice.packed;
    slices.push_back(slice);
  }
  return slices;
}

uint64_t share_of(const std::vector<wire::SliceGrant>& slices) {
  uint64_t sum = 0;
  for (const wire::SliceGrant& slice : slices) sum += slice.share_millionths;
  return sum;
}

std::string name_of(uint64_t term, const wire::Order& order) {
  return base::format("order %llu of term %llu", static_cast<unsigned long long>(order.order_id),
                      static_cast<unsigned long long>(term));
}

// The user that the pool names, as the pool proved it.
access::Principal owner_of_order(const wire::Order& order) {
  access::Principal owner;
  owner.id = base::printable(order.owner_id, kNameMax);
  owner.name = base::printable(order.owner_name, kNameMax);
  owner.role = access::Role::kUser;
  owner.proof = access::Proof::kPool;
  owner.from = "the pool";
  return owner;
}

}  // namespace

void Sessions::serve_pool(std::unique_ptr<EndedFile> file) {
  std::lock_guard<std::mutex> hold(mutex_);
  keeps_records_ = true;
  ended_file_ = std::move(file);
  if (ended_file_ == nullptr) return;
  for (wire::BookEntry& entry : ended_file_->take()) {
    if (ended_.size() >= kEndedMax) break;
    // Numbers of leases stay different, so that a scheduler never takes one for another.
    next_id_ = std::max(next_id_, entry.lease_id + 1);
    entry.ended_number = ++ended_count_;
    ended_.push_back(std::move(entry));
  }
  if (!ended_.empty())
    log(Level::kInfo, "%zu leases that ended earlier are told to the pool", ended_.size());
  ended_file_->begin(ended_);
}

Status Sessions::hear(uint64_t term) {
  std::lock_guard<std::mutex> hold(mutex_);
  Status heard = holds_.hear(term);
  if (heard.ok()) heard_ns_ = base::now_ns();
  return heard;
}

uint64_t Sessions::newest_term() {
  std::lock_guard<std::mutex> hold(mutex_);
  return holds_.term();
}

wire::OrderResult Sessions::obey(uint64_t term, const wire::Order& order) {
  std::lock_guard<std::mutex> hold(mutex_);
  for (const auto& [of_term, result] : results_) {
    if (of_term == term && result.order_id == order.order_id) return result;
  }
  wire::OrderResult result;
  result.order_id = order.order_id;
  const Status done = carry_out(term, order, &result);
  result.code = done.code();
  result.text = done.message();
  if (!done.ok()) {
    log(Level::kInfo, "order %llu of the pool's term %llu was not carried out: %s",
        static_cast<unsigned long long>(order.order_id), static_cast<unsigned long long>(term),
        done.message().c_str());
  }
  results_.emplace_back(term, result);
  if (results_.size() > kResultsMax) results_.pop_front();
  return result;
}

Status Sessions::carry_out(uint64_t term, const wire::Order& order, wire::OrderResult* result) {
  const Status heard = holds_.hear(term);
  if (!heard.ok()) return heard;
  if (is_about_lease(order.kind)) {
    auto lease = ordered_lease(order);
    if (!lease.ok()) return lease.status();
    result->lease_id = (*lease)->id;
    const std::string text = base::printable(order.text, wire::kPoolTextBytesMax);
    if (order.kind == wire::OrderKind::kEnd)
      end_for_pool(*lease, text.empty() ? "the pool ended it" : text, name_of(term, order));
    else if (order.kind == wire::OrderKind::kNotice)
      tell(**lease, order.notice, text, order.in_s);
    else if (order.kind == wire::OrderKind::kPark)
      return park_as_ordered(*lease, text);
    else if (order.kind == wire::OrderKind::kWake)
      want_wake(*lease, true);
    else if (order.kind == wire::OrderKind::kAskToWake)
      (*lease)->moving.asks = true;
    else if (order.kind == wire::OrderKind::kMayWake)
      may_wake(*lease);
    else if (order.kind != wire::OrderKind::kChange)
      pause(*lease, order.kind == wire::OrderKind::kPause, order.in_s, text);
    else
      return change_as_ordered(order);
    return Status();
  }
  switch (order.kind) {
    case wire::OrderKind::kHold:
      return hold(term, order, result);
    case wire::OrderKind::kCommit:
      return commit(term, order, result);
    case wire::OrderKind::kCancel:
      return cancel(term, order);
    case wire::OrderKind::kDrain:
    case wire::OrderKind::kUndrain:
      return Status();  // daemon/pool/pool_standing.h knows
    default:
      return Status(Code::kUnsupported,
                    "this server does not know the order; it is older than "
                    "the scheduler. Install one version on both");
  }
}

base::Result<Sessions::Lease*> Sessions::ordered_lease(const wire::Order& order) {
  uint64_t lease_id = order.lease_id;
  if (order.pool_lease_id != 0) {
    const lease::Hold* const held = holds_.find(order.pool_lease_id);
    if (held == nullptr) return no_such_lease();
    lease_id = held->lease_id;
  }
  const auto found = leases_.find(lease_id);
  if (found == leases_.end() || found->second->ending) return no_such_lease();
  return found->second.get();
}

Status Sessions::hold(uint64_t term, const wire::Order& order, wire::OrderResult* result) {
  const uint64_t now_ns = base::now_ns();
  expire_holds();
  if (holds_.find(order.pool_lease_id) == nullptr) return hold_new(term, order, result);
  bool is_new = false;
  auto held = holds_.hold(now_ns, term, order.pool_lease_id, 0, slices_of(order), &is_new,
                          uint64_t{order.expires_ms} * 1'000'000);
  if (!held.ok()) return held.status();
  result->lease_id = held->lease_id;
  return Status();
}

Status Sessions::hold_new(uint64_t term, const wire::Order& order, wire::OrderResult* result) {
  if (draining_) {
    return Status(Code::kRefused,
                  "this server is about to end and takes no new leases; use another one");
  }
  Status valid = lease::LeaseBook::check(order.terms);
  if (!valid.ok()) return valid;
  auto lease = std::make_unique<Lease>();
  const uint64_t now_ns = base::now_ns();
  lease->id = next_id_++;
  lease->owner = owner_of_order(order);
  lease->client = cleaned(order.client, lease->owner);
  lease->began_ns = now_ns;
  lease->idle = lease::IdleWatch(now_ns);
  lease->pool_lease_id = order.pool_lease_id;
  lease->account = base::printable(order.account, wire::kPoolNameBytesMax);
  lease->user_class = base::printable(order.user_class, wire::kPoolNameBytesMax);
  lease->phase = wire::LeasePhase::kHeld;
  if (!make_secret(&lease->secret))
    return Status(Code::kExhausted, "the kernel gives no random bytes");
  auto accounting = SharedPage<wire::AccountingPage>::create("tendril-accounting");
  if (!accounting.ok()) return accounting.status();
  lease->accounting = std::make_unique<SharedPage<wire::AccountingPage>>(accounting.take());
  bool is_new = false;
  auto held = holds_.hold(now_ns, term, order.pool_lease_id, lease->id, slices_of(order), &is_new,
                          uint64_t{order.expires_ms} * 1'000'000);
  if (!held.ok()) return held.status();
  lease->slices = held->slices;
  publish_memory(*lease);
  // This server's own limits hold too. The pool has decided about the priority.
  const access::Decision limits = count_lease(lease.get(), share_of(lease->slices));
  if (!limits.allowed) {
    ++counters_.leases_refused;
    holds_.release(order.pool_lease_id, "a limit of this server refused it");
    return limits.status();
  }
  lease->terms = access::granted_terms(guard_->limits_of(lease->owner), order.terms);
  result->lease_id = lease->id;
  leases_[lease->id] = std::move(lease);
  tell_room();
  return Status();
}

Status Sessions::commit(uint64_t term, const wire::Order& order, wire::OrderResult* result) {
  const lease::Hold* const before = holds_.find(order.pool_lease_id);
  const uint64_t lease_id = before == nullptr ? 0 : before->lease_id;
  const Status committed = holds_.commit(base::now_ns(), term, order.pool_lease_id,
                                         uint64_t{order.unclaimed_ms} * 1'000'000);
  const auto found = leases_.find(lease_id);
  if (!committed.ok()) {
    if (found != leases_.end())
      end_for_pool(found->second.get(), committed.message(), name_of(term, order));
    return committed;
  }
  if (found == leases_.end() || found->second->ending) return no_such_lease();
  Lease& lease = *found->second;
  result->lease_id = lease.id;
  result->secret = lease.secret;
  if (lease.phase != wire::LeasePhase::kHeld) return Status();
  lease.phase = wire::LeasePhase::kCommitted;
  ++counters_.leases_granted;
  arbiter_->open(lease.id, lease.slices, lease.terms);
  lease.expecting = !lease.slices[0].packed;
  if (lease.expecting) pool_->expect(lease.slices[0].gpu_index);
  log(Level::kInfo, "lease %llu: %zu slices for %s, by the pool as %llu",
      static_cast<unsigned long long>(lease.id), lease.slices.size(), who(lease.client).c_str(),
      static_cast<unsigned long long>(lease.pool_lease_id));
  return Status();
}

Status Sessions::cancel(uint64_t term, const wire::Order& order) {
  const lease::Hold* const held = holds_.find(order.pool_lease_id);
  const uint64_t lease_id = held == nullptr ? 0 : held->lease_id;
  const Status cancelled = holds_.cancel(term, order.pool_lease_id);
  const auto found = leases_.find(lease_id);
  // What is claimed ends like any lease, when its workers have.
  if (found != leases_.end() && !found->second->ending)
    end_for_pool(found->second.get(), kTakenBack, name_of(term, order));
  return found == leases_.end() ? cancelled : Status();
}

Status Sessions::change_as_ordered(const wire::Order& order) {
  auto found = ordered_lease(order);
  if (!found.ok()) return found.status();
  Lease& lease = **found;
  const wire::LeaseTerms terms = order.sets_terms ? order.terms : lease.terms;
  Status changed = lease::LeaseBook::check(terms);
  if (changed.ok() && lease.phase != wire::LeasePhase::kHeld)
    changed = refit(&lease, order.share_millionths, order.memory_bytes, terms);
  if (!changed.ok()) return changed;
  const std::string text = base::printable(order.text, wire::kPoolTextBytesMax);
  if (!text.empty()) tell(lease, order.notice, text, order.in_s);
  return Status();
}

void Sessions::may_wake(Lease* lease) {
  lease->moving.asks = false;
  if (lease->moving.wished_ns != 0) want_wake(lease, true);
}

void Sessions::pause(Lease* lease, bool paused, uint64_t longest_s, const std::string& text) {
  if (lease->phase == wire::LeasePhase::kHeld) return;
  longest_s = longest_s == 0 ? kPauseS : std::min(longest_s, kPauseMostS);
  if (paused) lease->paused_until_ns = base::now_ns() + longest_s * kSecondNs;
  if (lease->paused == paused) return;
  lease->paused = paused;
  set_gate(*lease);
  log(Level::kInfo, "lease %llu is %s", static_cast<unsigned long long>(lease->id),
      paused ? "paused" : "resumed");
  const char* const otherwise = paused ? "its programs get no time on the GPU for a while"
                                       : "its programs get time on the GPU again";
  tell(*lease, paused ? wire::NoticeKind::kPaused : wire::NoticeKind::kResumed,
       text.empty() ? otherwise : text, paused ? longest_s : 0);
}

void Sessions::resume_overdue() {
  const uint64_t now_ns = base::now_ns();
  for (const auto& [id, lease] : leases_) {
    if (lease->paused && now_ns >= lease->paused_until_ns) pause(lease.get(), false, 0, "");
  }
}

void Sessions::expire_holds() {
  for (const lease::Hold& expired : holds_.expire(base::now_ns())) {
    const auto found = leases_.find(expired.lease_id);
    if (found == leases_.end()) continue;
    const bool held = expired.state == lease::HoldState::kHeld;
    end_for_pool(found->second.get(),
                 held ? "nobody committed it in time" : "nobody claimed it in time", "no order");
  }
}

// May destroy *lease.
void Sessions::end_for_pool(Lease* lease, const std::string& why, const std::string& by) {
  access::Principal pool;
  pool.name = pool.id = "pool";
  pool.role = access::Role::kServer;
  pool.proof = access::Proof::kPool;
  pool.from = by;
  // What was only held was nobody's lease yet.
  if (lease->phase != wire::LeasePhase::kHeld) {
    guard_->note(
        pool, "end", "lease " + std::to_string(lease->id), {true, "pool-order", why},
        {{"owner", lease->owner.id}, {"pool_lease", std::to_string(lease->pool_lease_id)}});
  }
  end_lease(lease, why);
}

// ---- holders ----

void Sessions::when_noticed(uint64_t lease_id, Teller teller) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = leases_.find(lease_id);
  if (found != leases_.end()) found->second->teller = std::move(teller);
}

void Sessions::tell(const Lease& lease, wire::NoticeKind kind, const std::string& text,
                    uint64_t in_s, bool memory) {
  if (!lease.teller) return;
  wire::Notice notice;
  notice.lease_id = lease.id;
  notice.kind = kind;
  notice.text = text.substr(0, wire::kPoolTextBytesMax);
  notice.in_s = in_s;
  notice.memory = memory;
  lease.teller(notice);
}

base::Result<wire::LeaseReply> Sessions::claim(const wire::ClaimRequest& request,
                                               access::Decision* limits) {
  Hold hold(mutex_);
  auto found = leases_.find(request.lease_id);
  // A lease that no pool granted is claimed only again, after a cut.
  const bool known = found != leases_.end() && !found->second->ending &&
                     (found->second->pool_lease_id != 0 || found->second->holder != 0);
  if (!known || !base::equal_in_constant_time(found->second->secret, request.secret)) {
    *limits = {false, "lease-secret",
               "the lease " + std::to_string(request.lease_id) +
                   " cannot be claimed here: it ended because nobody claimed it in time, or the "
                   "server was restarted; ask the pool again"};
    return limits->status();
  }
  if (found->second->phase == wire::LeasePhase::kClaimed && found->second->holder != 0) {
    wire::LeaseReply again = reply_of(*found->second);
    again.secret.clear();
    return again;
  }
  auto claimed = holds_.claim(found->second->pool_lease_id);
  if (!claimed.ok()) return claimed.status();
  found->second->phase = wire::LeasePhase::kClaimed;
  // The promised memory must be free before anybody uses it.
  const base::Deadline deadline(kComingFreeMs);
  while (is_trimming(claimed->slices) && !deadline.passed()) {
    freed_.wait_for(hold, std::chrono::milliseconds(deadline.left_ms()));
    found = leases_.find(request.lease_id);
    if (found == leases_.end() || found->second->ending)
      return Status(Code::kRefused, "the lease ended while it was being claimed");
  }
  wire::LeaseReply reply = reply_of(*found->second);
  reply.secret.clear();
  return reply;
}

// ---- reports ----

wire::BookEntry Sessions::entry_of(const Lease& lease) {
  const uint64_t now_ns = base::now_ns();
  wire::BookEntry entry;
  entry.lease_id = lease.id;
  entry.pool_lease_id = lease.pool_lease_id;
  entry.phase = lease.phase;
  entry.owner_id = lease.owner.id.substr(0, wire::kPoolTextBytesMax);
  entry.owner_name = lease.owner.name.substr(0, wire::kPoolTextBytesMax);
  entry.account = lease.account;
  entry.user_class = lease.user_class;
  entry.client = lease.client;
  entry.slices = lease.slices;
  entry.terms = lease.terms;
  entry.paused = lease.paused;
  entry.processes = static_cast<uint32_t>(lease.sessions.size());
  entry.was_attached = lease.idle.was_attached() || !lease.sessions.empty();
  entry.age_ns = now_ns - lease.began_ns;
  const uint64_t idle_ns = lease.idle.idle_ns(now_ns);
  entry.idle_ns = idle_ns < kSettlesNs ? 0 : idle_ns;
  if (!lease.idle.known()) entry.idle_ns = wire::kIdleUnknown;
  entry.idle_total_ns = lease.idle.idle_total_ns();
  // Who has a whole GPU, or a packed slice, takes no turns: it has its share while it is not idle.
  const uint64_t active_ns = entry.was_attached && lease.idle.known()
                                 ? entry.age_ns - std::min(entry.age_ns, entry.idle_total_ns)
                                 : 0;
  const std::vector<wire::SliceUse> uses = arbiter_->use_of(lease.id);
  for (size_t slice = 0; slice < lease.slices.size(); ++slice) {
    const bool measured = slice < uses.size() && uses[slice].measured;
    if (measured) entry.waited_ns += uses[slice].waited_ns;
    entry.used_ns += measured ? uses[slice].used_ns
                              : active_ns / 1'000'000 * lease.slices[slice].share_millionths;
  }
  entry.standing = parking_.standing(lease.id);
  entry.wants_wake = entry.standing == wire::Standing::kParked && lease.moving.wished_ns != 0;
  for (uint32_t slice = 0; slice < lease.slices.size(); ++slice) {
    const uint64_t charged = wire::bytes_in_use(*lease.accounting->get(), slice);
    entry.memory_used_bytes += charged;
    if (entry.standing == wire::Standing::kParked)
      entry.stays_bytes.push_back(charged - std::min(charged, parked_bytes(lease, slice)));
  }
  return entry;
}

// The last entry of a lease, before the arbiter forgets what it used.
void Sessions::keep_record(const Lease& lease) {
  // The scheduler that cancels a hold knows that it is gone.
  if (!keeps_records_ || (lease.phase == wire::LeasePhase::kHeld && lease.why == kTakenBack))
    return;
  wire::BookEntry entry = entry_of(lease);
  entry.phase = wire::LeasePhase::kEnded;
  entry.why = lease.why.substr(0, wire::kPoolTextBytesMax);
  entry.ended_number = ++ended_count_;
  entry.ended_s = time(nullptr);
  if (ended_file_ != nullptr) ended_file_->add(entry);
  ended_.push_back(std::move(entry));
  if (ended_.size() <= kEndedMax) return;
  log(Level::kWarning,
      "no scheduler stores the records of ended leases; that of lease %llu is lost",
      static_cast<unsigned long long>(ended_.front().lease_id));
  ended_.pop_front();
}

std::vector<wire::BookEntry> Sessions::book() {
  std::lock_guard<std::mutex> hold(mutex_);
  std::vector<wire::BookEntry> entries(ended_.begin(), ended_.end());
  for (const auto& [id, lease] : leases_) entries.push_back(entry_of(*lease));
  return entries;
}

std::vector<wire::LeaseCounts> Sessions::counts(const std::vector<uint64_t>& lease_ids) {
  std::lock_guard<std::mutex> hold(mutex_);
  std::vector<wire::LeaseCounts> all;
  for (const uint64_t id : lease_ids) {
    const auto lease = leases_.find(id);
    if (lease == leases_.end()) continue;
    wire::LeaseCounts counts;
    counts.lease_id = id;
    counts.links = record_of(*lease->second, nullptr).links.substr(0, wire::kPoolTextBytesMax);
    for (const auto& [tally, session_id] : lease->second->sessions) {
      const auto session = sessions_.find(session_id);
      if (session == sessions_.end()) continue;
      const wire::SessionRecord record = record_of(*session->second);
      counts.calls += record.calls;
      counts.round_trips += record.replies;
      counts.awaited_ns += record.awaited_ns;
      counts.bytes_in += record.bytes_in;
      counts.bytes_out += record.bytes_out;
    }
    all.push_back(std::move(counts));
  }
  return all;
}

void Sessions::stored(uint64_t ended_number) {
  std::lock_guard<std::mutex> hold(mutex_);
  const size_t before = ended_.size();
  while (!ended_.empty() && ended_.front().ended_number <= ended_number) ended_.pop_front();
  if (ended_file_ != nullptr && ended_.size() != before)
    ended_file_->stored(ended_number, ended_.empty());
}

// ---- the server's own end ----

void Sessions::drain() {
  std::lock_guard<std::mutex> hold(mutex_);
  draining_ = true;
}

bool Sessions::is_draining() {
  std::lock_guard<std::mutex> hold(mutex_);
  return draining_;
}

size_t Sessions::lease_count() {
  std::lock_guard<std::mutex> hold(mutex_);
  return leases_.size();
}

}  // namespace tendril::daemon

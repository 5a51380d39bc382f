// SPDX-License-Identifier: Apache-2.0
// Parks leases and wakes them. The states and who goes first are lease/parking.h's; workers copy
// (worker/cuda/parking). What is here: orders to workers, their answers, deaths meanwhile, and who
// is parked so that another one can wake. See sessions.h.
#include <string.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "config/quantity.h"
#include "daemon/containment/host_memory.h"
#include "daemon/log.h"
#include "daemon/sessions.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;
using lease::Standing;

// For work that was submitted to end. Then so many bytes must be copied within each such time.
constexpr int kParkMs = 20'000;
constexpr uint64_t kParkLeastBytes = uint64_t{64} << 20;
// How long a request waits for its answer while no bytes move.
constexpr int kWakeMs = 30'000;
// A lease that could not be parked is not tried again for so long.
constexpr uint64_t kTryAgainNs = 60'000'000'000;
// Of the machine's memory, for everything else.
constexpr uint64_t kHostReserveBytes = uint64_t{1} << 30;

bool is_closed(Standing standing) {
  return standing == Standing::kParking || standing == Standing::kParked ||
         standing == Standing::kWaking;
}

std::string seconds_text(uint64_t span_ns) {
  const uint64_t tenths = span_ns / 100'000'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

void Sessions::keep_parked(uint64_t host_budget_bytes, uint64_t idle_ns, const std::string& folder,
                           uint64_t file_budget_bytes) {
  std::lock_guard<std::mutex> hold(mutex_);
  parking_.allow(host_budget_bytes, file_budget_bytes);
  park_folder_ = folder;
  park_idle_ns_ = idle_ns;
}

uint64_t Sessions::parked_bytes(const Lease& lease, uint32_t slice) {
  const wire::AccountingPage& page = *lease.accounting->get();
  uint64_t sum = 0;
  for (uint32_t tally = 0; tally < kDaemonTally; ++tally) {
    sum += std::min(page.parked_bytes[slice][tally].load(std::memory_order_relaxed),
                    wire::bytes_in_use(page, slice, tally));
  }
  return sum;
}

uint64_t Sessions::parked_bytes(const Lease& lease) {
  uint64_t sum = 0;
  for (uint32_t slice = 0; slice < lease.slices.size(); ++slice) sum += parked_bytes(lease, slice);
  return sum;
}

// A paused lease gets no turns, and one whose memory is away neither.
void Sessions::set_gate(const Lease& lease) {
  arbiter_->pause(lease.id, lease.paused || is_closed(parking_.standing(lease.id)));
}

void Sessions::order_workers(const Lease& lease, wire::WorkerMessageKind kind) {
  wire::WorkerMessage message = {};
  message.kind = kind;
  message.reserved = lease.moving.number;
  for (const auto& [tally, id] : lease.sessions) {
    const std::shared_ptr<Session> session = find_session(id);
    if (session == nullptr || session->worker == nullptr) continue;
    const auto file = lease.moving.files.find(id);
    const bool has_file =
        kind == wire::WorkerMessageKind::kPark && file != lease.moving.files.end();
    const int fd = has_file ? file->second.get() : -1;
    const Status sent = session->worker->send(message, has_file ? &fd : nullptr, has_file ? 1 : 0);
    if (!sent.ok()) end_session(session, sent.message().c_str());
  }
}

// What its programs have on its GPUs.
uint64_t Sessions::programs_bytes(const Lease& lease) const {
  uint64_t bytes = 0;
  const wire::AccountingPage& page = *lease.accounting->get();
  for (uint32_t slice = 0; slice < lease.slices.size(); ++slice)
    bytes += wire::bytes_in_use(page, slice) - wire::bytes_in_use(page, slice, kDaemonTally);
  return bytes;
}

// Room for so many parked bytes of the lease, in the budget and in the machine's memory. Copies
// that others keep only to be quick go first.
Status Sessions::make_host_room(const Lease& lease, uint64_t bytes) {
  const uint64_t kept = parking_.kept_bytes(lease.id);
  const uint64_t wanted = bytes - std::min(bytes, kept) + kHostReserveBytes;
  const uint64_t free = host_memory().available_bytes;
  uint64_t available = free - std::min(free, parking_.host_coming_bytes());
  const uint64_t more = wanted - std::min(wanted, available);
  for (const uint64_t other : parking_.to_forget(lease.id, bytes, more)) {
    available += parking_.kept_bytes(other);
    forget_copies(leases_.at(other).get());
  }
  if (wanted <= available) return Status();
  return Status(Code::kRefused,
                "lease " + std::to_string(lease.id) + " has " + config::format_size(bytes) +
                    " on its GPUs, and this server has " + config::format_size(available) +
                    " of host memory left, so it cannot be parked; end or wake "
                    "another lease");
}

void Sessions::forget_copies(Lease* lease) {
  if (parking_.forget(lease->id) != 0) order_to_forget(lease);
}

Status Sessions::begin_in_memory(Lease* lease, uint64_t bytes) {
  const Status room = make_host_room(*lease, bytes);
  return room.ok() ? parking_.begin(base::now_ns(), lease->id, bytes) : room;
}

uint64_t Sessions::session_bytes(const Lease& lease, uint32_t tally) {
  uint64_t bytes = 0;
  for (uint32_t slice = 0; slice < lease.slices.size(); ++slice)
    bytes += wire::bytes_in_use(*lease.accounting->get(), slice, tally);
  return bytes;
}

// Each session has a file of its own, which has no name and ends with its last descriptor.
void Sessions::make_park_files(const Lease& lease) {
  std::vector<uint64_t> sessions, sizes;
  for (const auto& [tally, id] : lease.sessions) {
    sessions.push_back(id);
    sizes.push_back(session_bytes(lease, tally));
  }
  park_files_.make(park_folder_, sizes,
                   [this, sessions, id = lease.id, number = lease.moving.number](auto made) {
                     std::lock_guard<std::mutex> hold(mutex_);
                     take_park_files(id, number, sessions, std::move(made));
                   });
}

void Sessions::take_park_files(uint64_t lease_id, uint32_t number,
                               const std::vector<uint64_t>& sessions,
                               base::Result<ParkFiles::Files> made) {
  const auto found = leases_.find(lease_id);
  if (found == leases_.end() || found->second->moving.number != number ||
      parking_.standing(lease_id) != Standing::kParking)
    return;
  Lease* const lease = found->second.get();
  if (!made.ok()) return fail_park(lease, made.status().message());
  for (size_t i = 0; i < sessions.size(); ++i)
    lease->moving.files[sessions[i]] = std::move((*made)[i]);
  order_park(lease);
}

// A worker that writes more than it has on its GPUs does what no worker of ours does.
void Sessions::end_writers_beyond(const Lease& lease) {
  for (const auto& [tally, id] : lease.sessions) {
    const auto file = lease.moving.files.find(id);
    struct stat found = {};
    if (file == lease.moving.files.end() || fstat(file->second.get(), &found) != 0) continue;
    const std::shared_ptr<Session> session = find_session(id);
    if (static_cast<uint64_t>(found.st_size) > session_bytes(lease, tally) && session != nullptr)
      end_session(session, "its worker wrote more to its file than it had on its GPUs");
  }
}

// Its workers may have the memory until all have answered.
void Sessions::order_to_forget(Lease* lease) {
  for (const auto& [tally, id] : lease->sessions) lease->moving.forgetting.insert(id);
  order_workers(*lease, wire::WorkerMessageKind::kForget);
}

// The lease may be parked soon. Then it need only be released.
void Sessions::copy_ahead(Lease* lease, uint64_t now_ns) {
  if (lease->moving.ahead_of_ns == lease->idle.worked_ns()) return;
  lease->moving.ahead_of_ns = lease->idle.worked_ns();
  const uint64_t bytes = programs_bytes(*lease), kept = parking_.kept_bytes(lease->id);
  const uint64_t free = host_memory().available_bytes;
  const uint64_t available = free - std::min(free, parking_.host_coming_bytes());
  const uint64_t wanted = bytes - std::min(bytes, kept) + 2 * kHostReserveBytes;
  if (!lease->moving.forgetting.empty() || wanted > available ||
      !parking_.copy_ahead(now_ns, lease->id, bytes))
    return;
  if (groups_ != nullptr) groups_->add_memory(lease->id, std::max(bytes, kept));
  order_workers(*lease, wire::WorkerMessageKind::kCopyAhead);
}

Status Sessions::begin_park(Lease* lease, const std::string& why) {
  const std::string who = "lease " + std::to_string(lease->id);
  if (lease->phase != wire::LeasePhase::kClaimed)
    return Status(Code::kRefused, who + " cannot be parked: nobody has claimed it yet");
  for (const auto& [tally, id] : lease->sessions) {
    const std::shared_ptr<Session> session = find_session(id);
    if (session == nullptr || !session->started || session->ending || session->client_gone) {
      return Status(Code::kRefused,
                    who +
                        " cannot be parked now: a program of it is starting or ending; try "
                        "again in a moment");
    }
  }
  const uint64_t bytes = programs_bytes(*lease);
  const uint64_t kept = parking_.kept_bytes(lease->id);
  lease->moving.files.clear();
  Status begun = begin_in_memory(lease, bytes);
  if (!begun.ok() && !park_folder_.empty() && book_.may_park(lease->id).ok() &&
      parking_.standing(lease->id) == Standing::kGranted)
    begun = parking_.begin(base::now_ns(), lease->id, bytes, true);
  if (!begun.ok()) return begun;
  if (groups_ != nullptr) groups_->add_memory(lease->id, std::max(bytes, kept));
  ++lease->moving.number;
  lease->moving.bytes = lease->moving.copied_bytes = 0;
  lease->moving.why = why;
  lease->moving.failure.clear();
  lease->moving.sessions.clear();
  for (const auto& [tally, id] : lease->sessions) lease->moving.sessions.insert(id);
  set_gate(*lease);
  if (parking_.find(lease->id)->in_file)
    make_park_files(*lease);
  else
    order_park(lease);
  return Status();
}

void Sessions::order_park(Lease* lease) {
  order_workers(*lease, wire::WorkerMessageKind::kPark);
  lease->moving.from_bytes = moved_bytes(*lease);
  watch_park(lease, 0);
  if (lease->moving.sessions.empty()) finish_park(lease);
}

uint64_t Sessions::moved_bytes(const Lease& lease) {
  uint64_t sum = 0;
  for (uint32_t tally = 0; tally < kDaemonTally; ++tally)
    sum += lease.accounting->get()->moved_bytes[tally].load(std::memory_order_relaxed);
  return sum;
}

// Ends a park whose bytes do not move: so many had been copied so far. A worker that says more than
// it has is not believed.
void Sessions::watch_park(Lease* lease, uint64_t copied) {
  loop_->after(kParkMs, [this, copied, id = lease->id, number = lease->moving.number] {
    std::lock_guard<std::mutex> hold(mutex_);
    const auto found = leases_.find(id);
    if (found == leases_.end() || found->second->moving.number != number ||
        parking_.standing(id) != Standing::kParking)
      return;
    Lease* const lease = found->second.get();
    const uint64_t all = parking_.find(id)->host_bytes;
    const uint64_t now = std::min(all, moved_bytes(*lease) - lease->moving.from_bytes);
    if (now > copied && now - copied >= std::min(kParkLeastBytes, all - copied))
      return watch_park(lease, now);
    const std::string span = std::to_string(kParkMs / 1000) + " s";
    fail_park(lease, now == 0 ? "its work did not end within " + span
                              : "less than " + config::format_size(kParkLeastBytes) +
                                    " of its memory were copied within " + span);
  });
}

// The order that comes again has the same result.
Status Sessions::park_as_ordered(Lease* lease, const std::string& why) {
  if (parking_.standing(lease->id) != Standing::kGranted) return Status();
  return begin_park(lease, why);
}

// Its pool counts no share of a parked lease, so it may have given it to the same user.
bool Sessions::must_ask(const Lease& lease) const {
  const Standing standing = parking_.standing(lease.id);
  const bool asleep =
      standing == Standing::kParking || (standing == Standing::kParked && lease.moving.asks);
  return asleep && lease.pool_lease_id != 0 && heard_ns_ != 0 &&
         base::now_ns() - heard_ns_ < uint64_t{wire::kServerSilentMs} * 1'000'000;
}

void Sessions::want_wake(Lease* lease, bool agreed) {
  uint64_t wished_ns = lease->moving.wished_ns;
  if (wished_ns == 0) wished_ns = base::now_ns();
  if (!agreed && must_ask(*lease)) {
    lease->moving.wished_ns = wished_ns;
    return;
  }
  lease->moving.wished_ns = 0;
  parking_.ask(wished_ns, lease->id, lease->terms.priority);
  wake_ready();
}

// What runs here never depends on a scheduler.
void Sessions::wake_without_pool() {
  for (const auto& [id, lease] : leases_) {
    if (lease->moving.wished_ns != 0 && !must_ask(*lease)) want_wake(lease.get(), true);
  }
}

// Every worker has answered.
void Sessions::finish_park(Lease* lease) {
  std::vector<uint64_t> stays;
  uint64_t stay_bytes = 0;
  for (uint32_t slice = 0; slice < lease->slices.size(); ++slice) {
    const uint64_t charged = wire::bytes_in_use(*lease->accounting->get(), slice);
    stays.push_back(charged - std::min(charged, parked_bytes(*lease, slice)));
    stay_bytes += stays.back();
  }
  const uint64_t began_ns = parking_.find(lease->id)->since_ns, now_ns = base::now_ns();
  lease->moving.asks = true;  // until the pool says that it need not
  parking_.parked(now_ns, lease->id, lease->moving.bytes, stays);
  const bool in_file = parking_.find(lease->id)->in_file;
  if (groups_ != nullptr)
    groups_->add_memory(lease->id, in_file ? 0 : parking_.find(lease->id)->host_bytes);
  const std::string text = config::format_size(lease->moving.bytes) +
                           " of its GPU memory went to " +
                           (in_file ? "a file on the server, " : "the server's host memory, ") +
                           config::format_size(stay_bytes) + " stays" +
                           (lease->moving.why.empty() ? "" : "; " + lease->moving.why);
  log(Level::kInfo, "lease %llu is parked after %s: %s; %s were copied for that",
      static_cast<unsigned long long>(lease->id), seconds_text(now_ns - began_ns).c_str(),
      text.c_str(), config::format_size(lease->moving.copied_bytes).c_str());
  ++counters_.parks;
  counters_.parked_moved_bytes +=
      std::min(lease->moving.copied_bytes, parking_.find(lease->id)->host_bytes);
  tell(*lease, wire::NoticeKind::kPaused, "it is parked: " + text, 0, true);
  wake_ready();
}

void Sessions::fail_park(Lease* lease, const std::string& why) {
  if (parking_.standing(lease->id) != Standing::kParking) return;
  ++counters_.parks_refused;
  const uint64_t now_ns = base::now_ns();
  parking_.failed(now_ns, lease->id);
  lease->moving.wished_ns = 0;
  lease->moving.files.clear();
  lease->moving.sessions.clear();
  lease->moving.failure = why;
  lease->moving.not_before_ns = now_ns + kTryAgainNs;
  log(Level::kInfo, "lease %llu was not parked: %s", static_cast<unsigned long long>(lease->id),
      why.c_str());
  order_workers(*lease, wire::WorkerMessageKind::kWake);
  order_to_forget(lease);
  set_gate(*lease);
  freed_.notify_all();
}

// Those with room go on. For the others, leases that are idle make room.
void Sessions::wake_ready() {
  for (const uint64_t id : parking_.grant(base::now_ns())) {
    Lease& lease = *leases_.at(id);
    lease.moving.sessions.clear();
    for (const auto& [tally, session] : lease.sessions) lease.moving.sessions.insert(session);
    set_gate(lease);
    order_workers(lease, wire::WorkerMessageKind::kWake);
    if (lease.moving.sessions.empty()) finish_wake(&lease);
  }
  make_room();
  tell_room();
  freed_.notify_all();
}

void Sessions::finish_wake(Lease* lease) {
  const lease::Parking::Parked& parked = *parking_.find(lease->id);
  const uint64_t before_ns = parked.waited_ns;
  counters_.parked_moved_bytes += parked.host_bytes;
  ++counters_.wakes;
  const uint64_t now_ns = base::now_ns();
  parking_.returned(now_ns, lease->id);
  // Otherwise its idle time before the park would count on, and it would be the next to make room.
  lease->idle.begins(now_ns);
  lease->moving.files.clear();
  counters_.wake_waited_ns += parked.waited_ns - before_ns;
  const std::string text =
      "its GPU memory is back after " + seconds_text(parked.waited_ns - before_ns);
  log(Level::kInfo, "lease %llu: %s", static_cast<unsigned long long>(lease->id), text.c_str());
  tell(*lease, wire::NoticeKind::kResumed, text, 0, true);
  freed_.notify_all();
}

// One lot at a time: what is parking now may suffice.
void Sessions::make_room() {
  const uint64_t now_ns = base::now_ns();
  std::vector<uint64_t> waking;
  for (const auto& [id, lease] : leases_) {
    const Standing standing = parking_.standing(id);
    if (standing == Standing::kParking) return;
    if (standing == Standing::kWaking && !lease->ending) waking.push_back(id);
  }
  if (waking.empty()) return;
  std::vector<lease::Parking::Idle> idle;
  for (const auto& [id, lease] : leases_) {
    const uint64_t least_ns =
        park_idle_ns_ == 0 ? kPressureIdleNs : std::min(kPressureIdleNs, park_idle_ns_);
    if (!may_be_parked(*lease, now_ns, least_ns)) continue;
    lease::Parking::Idle one{id, lease->idle.idle_ns(now_ns), 0, lease->slices, {}};
    for (uint32_t slice = 0; slice < lease->slices.size(); ++slice) {
      const uint64_t own = (*lease->accounting)->used_bytes[slice][kDaemonTally];
      const uint64_t quota = lease->slices[slice].memory_bytes;
      one.leaves_bytes.push_back(quota - std::min(quota, own));
    }
    idle.push_back(std::move(one));
  }
  for (const uint64_t id : waking) {
    bool began = false;
    for (const uint64_t other : parking_.make_room_for(id, idle)) {
      Lease* const lease = leases_.at(other).get();
      const Status begun = begin_park(lease, "lease " + std::to_string(id) + " wakes");
      began |= begun.ok();
      if (begun.ok()) continue;
      lease->moving.not_before_ns = now_ns + kTryAgainNs;
      log(Level::kInfo, "%s", begun.message().c_str());
    }
    if (began) return;
  }
}

// Another one may want its place at any moment.
bool Sessions::is_beside_parked(const Lease& lease) const {
  for (const auto& [id, other] : leases_) {
    if (id == lease.id || !is_closed(parking_.standing(id))) continue;
    for (const wire::SliceGrant& slice : other->slices) {
      for (const wire::SliceGrant& own : lease.slices)
        if (slice.gpu_index == own.gpu_index) return true;
    }
  }
  return false;
}

bool Sessions::may_be_parked(const Lease& lease, uint64_t now_ns, uint64_t idle_ns) const {
  return !lease.ending && lease.phase == wire::LeasePhase::kClaimed &&
         now_ns >= lease.moving.not_before_ns && !lease.slices.empty() && !lease.slices[0].packed &&
         lease.idle.known() && lease.idle.idle_ns(now_ns) >= idle_ns &&
         parking_.standing(lease.id) == Standing::kGranted;
}

// Supervisor's thread, now and then.
void Sessions::park_idle() {
  const uint64_t now_ns = base::now_ns();
  wake_without_pool();
  make_room();
  for (const auto& [id, lease] : leases_) end_writers_beyond(*lease);
  if (host_memory().available_bytes < kHostReserveBytes) {
    for (const uint64_t id : parking_.to_forget(0, 0, UINT64_MAX))
      forget_copies(leases_.at(id).get());
  }
  if (park_idle_ns_ == 0) return;
  for (const auto& [id, lease] : leases_) {
    const uint64_t ahead_ns = is_beside_parked(*lease) ? kPressureIdleNs : park_idle_ns_ / 2;
    if (may_be_parked(*lease, now_ns, std::min(ahead_ns, park_idle_ns_ / 2)))
      copy_ahead(lease.get(), now_ns);
    if (!may_be_parked(*lease, now_ns, park_idle_ns_)) continue;
    const Status begun =
        begin_park(lease.get(),
                   "it did nothing for " + config::format_duration(park_idle_ns_ / 1'000'000'000));
    if (begun.ok()) continue;
    lease->moving.not_before_ns = now_ns + kTryAgainNs;
    log(Level::kInfo, "%s", begun.message().c_str());
  }
}

void Sessions::forgot_copies(Lease* lease, uint64_t session_id) {
  if (lease->moving.forgetting.erase(session_id) == 0 || !lease->moving.forgetting.empty()) return;
  if (groups_ != nullptr && parking_.standing(lease->id) == Standing::kGranted)
    groups_->add_memory(lease->id, parking_.kept_bytes(lease->id));
}

// Answers of workers. One that answers what nobody asked is not heard.
void Sessions::worker_moved(Session* session, const wire::WorkerRequest& request) {
  const auto found = leases_.find(session->lease_id);
  if (found == leases_.end() || found->second->ending) return;
  Lease* const lease = found->second.get();
  const Standing standing = parking_.standing(lease->id);
  if (request.kind == wire::WorkerRequestKind::kForgot) return forgot_copies(lease, session->id);
  if (request.reserved != lease->moving.number) return;
  switch (request.kind) {
    case wire::WorkerRequestKind::kParked: {
      if (standing != Standing::kParking || lease->moving.sessions.erase(session->id) == 0) return;
      lease->moving.bytes += std::min(request.record.bytes, UINT64_MAX - lease->moving.bytes);
      uint64_t copied;
      memcpy(&copied, request.record.content, sizeof copied);
      lease->moving.copied_bytes += std::min(copied, request.record.bytes);
      if (lease->moving.sessions.empty()) finish_park(lease);
      break;
    }
    case wire::WorkerRequestKind::kStays: {
      const char* const text = reinterpret_cast<const char*>(request.record.content);
      fail_park(lease, printable(std::string(text, strnlen(text, wire::kExportContentBytes)), 64));
      break;
    }
    case wire::WorkerRequestKind::kWantsWake:
      want_wake(lease);
      break;
    case wire::WorkerRequestKind::kReturned:
      if (standing != Standing::kReturning || lease->moving.sessions.erase(session->id) == 0)
        return;
      if (lease->moving.sessions.empty()) finish_wake(lease);
      break;
    default:
      break;
  }
}

// The session is over, and nobody waits for its answer.
void Sessions::forget_move(Lease* lease, uint64_t session_id) {
  forgot_copies(lease, session_id);
  if (lease->moving.sessions.erase(session_id) == 0 || !lease->moving.sessions.empty()) return;
  const Standing standing = parking_.standing(lease->id);
  if (standing == Standing::kParking) finish_park(lease);
  if (standing == Standing::kReturning) finish_wake(lease);
}

wire::ParkReply Sessions::describe_park(const Lease& lease) const {
  wire::ParkReply reply;
  reply.standing = parking_.standing(lease.id);
  reply.why = lease.moving.failure;
  for (uint32_t slice = 0; slice < lease.slices.size(); ++slice) {
    const uint64_t charged = wire::bytes_in_use(*lease.accounting->get(), slice);
    const uint64_t parked = std::min(charged, parked_bytes(lease, slice));
    reply.parked_bytes += parked;
    reply.stays_bytes += charged - parked;
  }
  return reply;
}

base::Result<wire::ParkReply> Sessions::park(const wire::ParkRequest& request,
                                             const std::string& why) {
  Hold hold(mutex_);
  const int patience_ms = request.wake ? kWakeMs : kParkMs + 1000;
  base::Deadline deadline(patience_ms);
  uint64_t moved = 0;
  for (bool begun = false;;) {
    const auto found = leases_.find(request.lease_id);
    if (found == leases_.end() || found->second->ending) {
      return Status(Code::kNotFound,
                    "there is no lease " + std::to_string(request.lease_id) + " on this server");
    }
    Lease* const lease = found->second.get();
    if (!begun && request.wake) {
      want_wake(lease);
    } else if (!begun) {
      Status started = begin_park(lease, why);
      if (!started.ok()) return started;
    }
    begun = true;
    if (moved_bytes(*lease) != moved) deadline = base::Deadline(patience_ms);
    moved = moved_bytes(*lease);
    const Standing standing = parking_.standing(lease->id);
    const bool there =
        request.wake ? standing == Standing::kGranted : standing != Standing::kParking;
    if (there && !request.wake && standing == Standing::kGranted &&
        !lease->moving.failure.empty()) {
      return Status(Code::kRefused, "lease " + std::to_string(lease->id) +
                                        " was not parked: " + lease->moving.failure);
    }
    if (there || deadline.passed()) return describe_park(*lease);
    freed_.wait_for(hold, std::chrono::milliseconds(std::min(deadline.left_ms(), 100)));
  }
}

Status Sessions::begin_move(const wire::ParkRequest& request, const std::string& why) {
  std::lock_guard<std::mutex> hold(mutex_);
  const auto found = leases_.find(request.lease_id);
  if (found == leases_.end() || found->second->ending) {
    return Status(Code::kNotFound,
                  "there is no lease " + std::to_string(request.lease_id) + " on this server");
  }
  if (!request.wake) return begin_park(found->second.get(), why);
  want_wake(found->second.get());
  return Status();
}

// A program that attaches needs the lease's slices. True: it has them, or will have them soon.
bool Sessions::wakes_for_seat(Lease* lease) {
  if (!is_closed(parking_.standing(lease->id))) return true;
  want_wake(lease);
  return !is_closed(parking_.standing(lease->id));
}

}  // namespace tendril::daemon

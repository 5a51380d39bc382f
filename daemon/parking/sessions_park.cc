// SPDX-License-Identifier: Apache-2.0
// Parks leases and wakes them. The states and who goes first are lease/parking.h's; workers copy
// (worker/cuda/parking). What is here: orders to workers, their answers, deaths meanwhile, and who
// is parked so that another one can wake. See sessions.h.
#include <string.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "base/clock.h"
#include "config/quantity.h"
#include "daemon/log.h"
#include "daemon/sessions.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;
using lease::Standing;

// For work that was submitted to end. Then bytes must move within each such time.
constexpr int kParkMs = 20'000;
// How long a request waits for its answer while no bytes move.
constexpr int kWakeMs = 30'000;
// A lease that could not be parked is not tried again for so long.
constexpr uint64_t kTryAgainNs = 60'000'000'000;
// Of the machine's memory, for everything else.
constexpr uint64_t kHostReserveBytes = uint64_t{1} << 30;

// Of this machine; UINT64_MAX: it does not say.
uint64_t host_available_bytes() {
  std::ifstream lines("/proc/meminfo");
  std::string name;
  uint64_t kilobytes = 0;
  for (std::string rest; lines >> name >> kilobytes && std::getline(lines, rest);) {
    if (name == "MemAvailable:") return kilobytes << 10;
  }
  return UINT64_MAX;
}

bool is_closed(Standing standing) {
  return standing == Standing::kParking || standing == Standing::kParked ||
         standing == Standing::kWaking;
}

std::string seconds_text(uint64_t span_ns) {
  const uint64_t tenths = span_ns / 100'000'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

void Sessions::keep_parked(uint64_t host_budget_bytes, uint64_t idle_ns) {
  std::lock_guard<std::mutex> hold(mutex_);
  parking_.allow(host_budget_bytes);
  park_idle_ns_ = idle_ns;
}

uint64_t Sessions::parked_bytes(const Lease& lease, uint32_t slice) {
  const wire::AccountingPage& page = *lease.accounting->get();
  uint64_t sum = 0;
  for (uint32_t tally = 0; tally < kDaemonTally; ++tally) {
    sum += std::min(page.parked_bytes[slice][tally].load(std::memory_order_relaxed),
                    bytes_in_use(page, slice, tally));
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
    const Status sent = session->worker->send(message, nullptr, 0);
    if (!sent.ok()) end_session(session, sent.message().c_str());
  }
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
  uint64_t bytes = 0;
  const wire::AccountingPage& page = *lease->accounting->get();
  for (uint32_t slice = 0; slice < lease->slices.size(); ++slice)
    bytes += bytes_in_use(page, slice) - bytes_in_use(page, slice, kDaemonTally);
  const uint64_t free = host_available_bytes();
  const uint64_t available = free - std::min(free, parking_.host_coming_bytes());
  if (bytes > available - std::min(available, kHostReserveBytes)) {
    return Status(Code::kRefused, who + " has " + config::format_size(bytes) +
                                      " on its GPUs, and this server has " +
                                      config::format_size(available) +
                                      " of host memory left, so it cannot be parked; end or wake "
                                      "another lease");
  }
  Status begun = parking_.begin(base::now_ns(), lease->id, bytes);
  if (!begun.ok()) return begun;
  if (groups_ != nullptr) groups_->add_memory(lease->id, bytes);
  ++lease->moving.number;
  lease->moving.bytes = 0;
  lease->moving.why = why;
  lease->moving.failure.clear();
  lease->moving.sessions.clear();
  for (const auto& [tally, id] : lease->sessions) lease->moving.sessions.insert(id);
  set_gate(*lease);
  order_workers(*lease, wire::WorkerMessageKind::kPark);
  watch_park(lease, 0);
  if (lease->moving.sessions.empty()) finish_park(lease);
  return Status();
}

// Ends a park whose bytes do not move: `parked` have left so far.
void Sessions::watch_park(Lease* lease, uint64_t parked) {
  loop_->after(kParkMs, [this, parked, id = lease->id, number = lease->moving.number] {
    std::lock_guard<std::mutex> hold(mutex_);
    const auto found = leases_.find(id);
    if (found == leases_.end() || found->second->moving.number != number ||
        parking_.standing(id) != Standing::kParking)
      return;
    const uint64_t now = parked_bytes(*found->second);
    if (now != parked) return watch_park(found->second.get(), now);
    const std::string span = std::to_string(kParkMs / 1000) + " s";
    fail_park(found->second.get(), now == 0 ? "its work did not end within " + span
                                            : "none of its memory was copied for " + span);
  });
}

// The order that comes again has the same result.
Status Sessions::park_as_ordered(Lease* lease, const std::string& why) {
  if (parking_.standing(lease->id) != Standing::kGranted) return Status();
  return begin_park(lease, why);
}

void Sessions::want_wake(Lease* lease) {
  parking_.ask(base::now_ns(), lease->id, lease->terms.priority);
  wake_ready();
}

// Every worker has answered.
void Sessions::finish_park(Lease* lease) {
  std::vector<uint64_t> stays;
  uint64_t stay_bytes = 0;
  for (uint32_t slice = 0; slice < lease->slices.size(); ++slice) {
    const uint64_t charged = bytes_in_use(*lease->accounting->get(), slice);
    stays.push_back(charged - std::min(charged, parked_bytes(*lease, slice)));
    stay_bytes += stays.back();
  }
  const uint64_t began_ns = parking_.find(lease->id)->since_ns, now_ns = base::now_ns();
  parking_.parked(now_ns, lease->id, lease->moving.bytes, stays);
  const std::string text = config::format_size(lease->moving.bytes) +
                           " of its GPU memory went to the server's host memory, " +
                           config::format_size(stay_bytes) + " stays" +
                           (lease->moving.why.empty() ? "" : "; " + lease->moving.why);
  log(Level::kInfo, "lease %llu is parked after %s: %s", static_cast<unsigned long long>(lease->id),
      seconds_text(now_ns - began_ns).c_str(), text.c_str());
  ++counters_.parks;
  counters_.parked_moved_bytes += parking_.find(lease->id)->host_bytes;
  tell(*lease, wire::NoticeKind::kPaused, "it is parked: " + text, 0, true);
  wake_ready();
}

void Sessions::fail_park(Lease* lease, const std::string& why) {
  if (parking_.standing(lease->id) != Standing::kParking) return;
  ++counters_.parks_refused;
  const uint64_t now_ns = base::now_ns();
  parking_.failed(now_ns, lease->id);
  if (groups_ != nullptr) groups_->add_memory(lease->id, 0);
  lease->moving.sessions.clear();
  lease->moving.failure = why;
  lease->moving.not_before_ns = now_ns + kTryAgainNs;
  log(Level::kInfo, "lease %llu was not parked: %s", static_cast<unsigned long long>(lease->id),
      why.c_str());
  order_workers(*lease, wire::WorkerMessageKind::kWake);
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
  parking_.returned(base::now_ns(), lease->id);
  counters_.wake_waited_ns += parked.waited_ns - before_ns;
  if (groups_ != nullptr) groups_->add_memory(lease->id, 0);
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
    lease::Parking::Idle one{id, lease->idle.idle_ns(now_ns), lease->slices, {}};
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

bool Sessions::may_be_parked(const Lease& lease, uint64_t now_ns, uint64_t idle_ns) const {
  return !lease.ending && lease.phase == wire::LeasePhase::kClaimed &&
         now_ns >= lease.moving.not_before_ns && !lease.slices.empty() && !lease.slices[0].packed &&
         lease.idle.known() && lease.idle.idle_ns(now_ns) >= idle_ns &&
         parking_.standing(lease.id) == Standing::kGranted;
}

// Supervisor's thread, now and then.
void Sessions::park_idle() {
  const uint64_t now_ns = base::now_ns();
  make_room();
  if (park_idle_ns_ == 0) return;
  for (const auto& [id, lease] : leases_) {
    if (!may_be_parked(*lease, now_ns, park_idle_ns_)) continue;
    const Status begun =
        begin_park(lease.get(),
                   "it did nothing for " + config::format_duration(park_idle_ns_ / 1'000'000'000));
    if (begun.ok()) continue;
    lease->moving.not_before_ns = now_ns + kTryAgainNs;
    log(Level::kInfo, "%s", begun.message().c_str());
  }
}

// Answers of workers. One that answers what nobody asked is not heard.
void Sessions::worker_moved(Session* session, const wire::WorkerRequest& request) {
  const auto found = leases_.find(session->lease_id);
  if (found == leases_.end() || found->second->ending) return;
  Lease* const lease = found->second.get();
  const Standing standing = parking_.standing(lease->id);
  if (request.reserved != lease->moving.number) return;
  switch (request.kind) {
    case wire::WorkerRequestKind::kParked:
      if (standing != Standing::kParking || lease->moving.sessions.erase(session->id) == 0) return;
      lease->moving.bytes += std::min(request.record.bytes, UINT64_MAX - lease->moving.bytes);
      if (lease->moving.sessions.empty()) finish_park(lease);
      break;
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
    const uint64_t charged = bytes_in_use(*lease.accounting->get(), slice);
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
  uint64_t parked = 0;
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
    if (parked_bytes(*lease) != parked) deadline = base::Deadline(patience_ms);
    parked = parked_bytes(*lease);
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

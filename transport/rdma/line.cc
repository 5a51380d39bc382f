// SPDX-License-Identifier: Apache-2.0
// See line.h.
#include "transport/rdma/line.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"

namespace tendril::transport::rdma {

using base::Code;
using base::Locked;
using base::Status;

namespace {
constexpr int kLastBytesMs = 100;  // a card needs microseconds, or the peer is gone
constexpr int kSleepMs = 100;      // an event may be lost, so a sleeper looks this often

const char* text_of(Fate fate) {
  switch (fate) {
    case Fate::kUnanswered:
      return "the peer's card does not answer";
    case Fate::kNotReady:
      return "the peer has no room for what it allowed";
    case Fate::kRemoteAccess:
      return "the peer's card refuses access to the memory that it named";
    case Fate::kLocalError:
      return "this machine's card refuses access to memory; was pinned memory unmapped?";
    case Fate::kFlushed:
      return "the queue pair was stopped";
    default:
      return "the card reports an error";
  }
}

}  // namespace

bool Session::peer_lives() {
  if (dead.load(std::memory_order_relaxed)) return false;
  if (!connection.valid()) return true;
  char byte;
  const ssize_t n = recv(connection.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
    dead.store(true, std::memory_order_relaxed);
    return false;
  }
  return true;
}

void Session::enlist(Sender* sender) {
  Locked locked(senders_lock_);
  Sender** const free = std::find(senders_, senders_ + kSendersMax, nullptr);
  if (free != senders_ + kSendersMax) *free = sender;
}

void Session::strike_off(const Sender* sender) {
  if (getpid() != owner_) return;  // whoever held the lock may not exist in this process
  Locked locked(senders_lock_);
  std::replace(senders_, senders_ + kSendersMax, const_cast<Sender*>(sender),
               static_cast<Sender*>(nullptr));
}

Status Session::look_at_senders() {
  Locked locked(senders_lock_);
  Status good;
  for (Sender* const sender : senders_) {
    if (sender != nullptr && good.ok()) good = sender->look();
  }
  return good;
}

Line::~Line() {
  if (getpid() != owner_) return;
  base::Deadline deadline(kLastBytesMs);
  while (!stopped_ && collect().ok() && !all_over() && !deadline.passed()) base::cpu_pause();
}

Status Line::collect() {
  Completion reports[16];
  for (;;) {
    const int count = pair_->poll(reports, 16);
    if (count < 0) return fail(Fate::kOther);
    for (int i = 0; i < count; ++i) {
      const Completion& report = reports[i];
      over_ = std::max(over_, report.id);
      if (report.fate != Fate::kDone) {
        (void)fail(report.fate);
      } else if (report.told) {
        ++taken_;
        if ((report.immediate & kClosing) != 0)
          closed_.store(true, std::memory_order_relaxed);
        else
          told_ = report.immediate, has_told_ = true;
      } else if (report.id > reported_.load(std::memory_order_relaxed)) {
        reported_.store(report.id, std::memory_order_release);
      }
    }
    if (count == 0) return broken() ? failure() : Status();
  }
}

bool Line::take_told(uint32_t* immediate) {
  if (!has_told_) return false;
  has_told_ = false;
  *immediate = told_;
  return true;
}

Status Line::renew() {
  if (taken_ == 0) return Status();
  const Status posted = pair_->post_receives(taken_);
  taken_ = 0;
  return posted.ok() ? posted : fail(posted.message());
}

Status Line::post(Work work, uint64_t* id) {
  const Status room = wait_for_room();
  if (!room.ok()) return room;
  Status posted;
  {
    Locked locked(lock_);
    work.id = posted_ + 1;
    posted = pair_->post(work);
    if (posted.ok()) ++posted_;
    if (id != nullptr) *id = work.id;
  }
  return posted.ok() ? posted : fail(posted.message());
}

void Line::end() {
  if (ended_.exchange(true)) return;
  Locked locked(lock_);
  Work work;
  work.kind = WorkKind::kTell;
  work.id = posted_ + 1;
  work.immediate = kClosing;
  if (pair_->post(work).ok()) ++posted_;
}

bool Line::sleep(int wake, int timeout_ms) {
  pollfd all[4] = {{pair_->descriptor(), POLLIN, 0},
                   {wake, POLLIN, 0},
                   {session_->device->event_descriptor(), POLLIN, 0},
                   {session_->connection.get(), POLLRDHUP, 0}};
  (void)::poll(all, 4, timeout_ms < 0 || timeout_ms > kSleepMs ? kSleepMs : timeout_ms);
  pair_->drop_events();
  if (all[2].revents != 0) (void)look_at_device();
  return all[1].revents != 0;
}

Status Line::look_at_device() {
  const Status device = session_->device->look_at_events();
  return device.ok() ? device : fail("the RDMA connection is broken: " + device.message());
}

void Line::stop() {
  if (stopped_) return;
  stopped_ = true;
  {
    Locked locked(lock_);
    pair_->stop();
  }
  (void)fail(Fate::kFlushed);
  // The card may still be at work on what it had begun. It reports everything that it gives up.
  base::Deadline deadline(kLastBytesMs);
  while (!all_over() && !deadline.passed()) {
    Completion reports[16];
    const int count = pair_->poll(reports, 16);
    if (count < 0) return;
    for (int i = 0; i < count; ++i) over_ = std::max(over_, reports[i].id);
  }
}

Status Line::fail(Fate fate) {
  if (broken_.load(std::memory_order_acquire)) return failure();
  (void)session_->device->look_at_events();
  const std::string event = session_->device->last_event();
  return fail(base::format("the RDMA connection is broken: %s (%s%s%s)", text_of(fate),
                           session_->device->facts().name.c_str(), event.empty() ? "" : "; ",
                           event.c_str()));
}

Status Line::fail(const std::string& why, Code code) {
  Locked locked(lock_);
  if (!broken_.load(std::memory_order_relaxed)) why_ = Status(code, why);
  broken_.store(true, std::memory_order_release);
  return why_;
}

Status Line::failure() const {
  Locked locked(lock_);
  return why_;
}

Status Line::wait_for_room() {
  base::Deadline deadline(session_->report_ms);
  for (uint32_t looks = 0;; ++looks) {
    const Status good = collect();
    if (!good.ok()) return good;
    {
      Locked locked(lock_);
      if (posted_ - reported_.load(std::memory_order_relaxed) + kSpareSends < limits_.sends)
        return Status();
    }
    if (looks > 1000) usleep(100);
    if (deadline.passed())
      return fail("the RDMA connection is broken: the card reports nothing any more");
  }
}

}  // namespace tendril::transport::rdma

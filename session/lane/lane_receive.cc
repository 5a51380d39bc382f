// SPDX-License-Identifier: Apache-2.0
// Frames in, and waiting for them. One waiting thread receives for all. It leads until its own
// reply has arrived, then hands over to another one that sleeps. One thread at a time handles the
// frames, in the order of arrival. A kTransfer frame holds the lane until the bytes of its transfer
// have arrived. That gives the order that lane.h promises. Everything that the worker sends is
// checked.
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/text.h"
#include "session/lane/lane_impl.h"

namespace tendril::session {

using base::Code;
using base::Locked;
using base::Result;
using base::Status;

namespace {
constexpr size_t kReceivePiece = 256u << 10;  // fits the second-level cache
constexpr uint32_t kFollowerSpinUs =
    20;  // the leader has a follower's reply within this time, or it is far off
constexpr int64_t kLeadAgainUs = 20'000;
constexpr uint32_t kPlaceRestLeast =
    32u << 10;                        // below this, a further system call costs more than the copy
constexpr uint32_t kPlacedAfter = 8;  // the count before the bytes
constexpr uint32_t kKeptReplyBytes = 68u
                                     << 10;  // fits an inline copy; larger reply buffers are freed

// The address of this variable identifies a thread. It needs no destructor. A later thread that
// reuses the address finds an empty slot.
struct SlotCache {
  uint64_t lane;
  ThreadSlot* slot;
};
thread_local SlotCache t_slot_cache = {0, nullptr};
}  // namespace

ThreadSlot* LaneImpl::thread_slot() {
  SlotCache& cache = t_slot_cache;
  if (cache.lane == id_) return cache.slot;
  Locked locked(state_lock_);
  ThreadSlot* slot = thread_slots_;
  while (slot != nullptr && slot->thread != &cache) slot = slot->next;
  if (slot == nullptr) {
    slot = new ThreadSlot;
    slot->thread = &cache;
    slot->next = thread_slots_;
    thread_slots_ = slot;
  }
  cache = {id_, slot};
  return slot;
}

void LaneImpl::register_reply(uint32_t reply_id) {
  Locked locked(state_lock_);
  PendingReply* reply = free_replies_;
  if (reply != nullptr) {
    free_replies_ = reply->next;
  } else {
    reply = new PendingReply;
  }
  reply->id = reply_id;
  reply->waiter.state.store(Waiter::kWaiting, std::memory_order_relaxed);
  reply->bytes = 0;
  reply->into = nullptr;
  reply->placed = false;
  reply->dropped = false;
  PendingReply** bucket = &pending_[reply_id % kBuckets];
  reply->next = *bucket;
  *bucket = reply;
}

PendingReply* LaneImpl::find_reply(uint32_t reply_id) {
  PendingReply* reply = pending_[reply_id % kBuckets];
  while (reply != nullptr && reply->id != reply_id) reply = reply->next;
  return reply;
}

void LaneImpl::free_reply(PendingReply* reply) {
  PendingReply** link = &pending_[reply->id % kBuckets];
  while (*link != reply) link = &(*link)->next;
  *link = reply->next;
  reply->next = free_replies_;
  free_replies_ = reply;
}

bool LaneImpl::take_result(uint32_t reply_id, int32_t* result) {
  if (abandoned_) return false;
  Locked locked(state_lock_);
  PendingReply* reply = find_reply(reply_id);
  if (reply == nullptr || reply->waiter.state.load(std::memory_order_acquire) != Waiter::kDone)
    return false;
  *result = reply->result;
  free_reply(reply);
  return true;
}

void LaneImpl::drop_reply(uint32_t reply_id) {
  if (abandoned_) return;
  Locked locked(state_lock_);
  PendingReply* reply = find_reply(reply_id);
  if (reply == nullptr) return;
  if (reply->waiter.state.load(std::memory_order_acquire) == Waiter::kDone)
    free_reply(reply);
  else
    reply->dropped = true;
}

void LaneImpl::expect_bytes(uint32_t reply_id, void* into, uint32_t bytes) {
  Locked locked(state_lock_);
  PendingReply* reply = find_reply(reply_id);
  if (reply == nullptr) return;
  reply->into = static_cast<uint8_t*>(into);
  reply->into_bytes = bytes;
}

Reply LaneImpl::wait(uint32_t reply_id) {
  Reply answer;
  answer.lost = true;
  if (abandoned_) return answer;
  ThreadSlot* slot = thread_slot();
  PendingReply* reply;
  {
    Locked locked(state_lock_);
    if (PendingReply* last = slot->last) {
      slot->last = nullptr;
      if (last->capacity > kKeptReplyBytes) {
        free(last->body);
        last->body = nullptr;
        last->capacity = 0;
      }
      last->next = free_replies_;
      free_replies_ = last;
    }
    reply = find_reply(reply_id);
  }
  if (reply == nullptr) return answer;
  stats_.round_trips.fetch_add(1, std::memory_order_relaxed);
  if (reply->waiter.state.load(std::memory_order_acquire) != Waiter::kDone) {
    flush();
    wait_for(&reply->waiter, true);
    if (is_lost()) settle();
  }
  Locked locked(state_lock_);
  PendingReply** link = &pending_[reply_id % kBuckets];
  while (*link != reply) link = &(*link)->next;
  *link = reply->next;
  reply->next = nullptr;  // the rest of the bucket is not ours: the destructor would free it twice
  slot->last = reply;
  if (reply->waiter.state.load(std::memory_order_acquire) != Waiter::kDone) return answer;
  answer.result = reply->result;
  answer.body = reply->body;
  answer.bytes = reply->bytes;
  answer.placed = reply->placed;
  answer.lost = false;
  return answer;
}

bool LaneImpl::answered(uint32_t reply_id) {
  if (abandoned_ || is_lost()) return true;
  Locked locked(state_lock_);
  PendingReply* reply = find_reply(reply_id);
  return reply == nullptr || reply->waiter.state.load(std::memory_order_acquire) == Waiter::kDone;
}

bool LaneImpl::try_lead() {
  uint32_t expected = 0;
  if (leading_.load(std::memory_order_relaxed) != 0 ||
      !leading_.compare_exchange_strong(expected, 1, std::memory_order_acquire)) {
    return false;
  }
  leader_.store(&t_slot_cache, std::memory_order_relaxed);
  return true;
}

bool LaneImpl::is_leader() const {
  return leader_.load(std::memory_order_relaxed) == &t_slot_cache;
}

void LaneImpl::resign() {
  leader_.store(nullptr, std::memory_order_relaxed);
  Locked locked(state_lock_);
  leading_.store(0, std::memory_order_release);
  for (Waiter* next = sleepers_; next != nullptr; next = next->next) {
    if (!next->may_lead) continue;
    unlink(next);
    next->state.store(Waiter::kWaiting, std::memory_order_release);
    base::futex_wake(&next->state, 1);
    return;
  }
}

void LaneImpl::unlink(Waiter* waiter) {
  if (waiter->previous != nullptr) waiter->previous->next = waiter->next;
  if (waiter->next != nullptr) waiter->next->previous = waiter->previous;
  if (sleepers_ == waiter) sleepers_ = waiter->next;
  waiter->next = waiter->previous = nullptr;
}

void LaneImpl::complete(Waiter* waiter) {
  if (waiter->state.exchange(Waiter::kDone, std::memory_order_acq_rel) != Waiter::kAsleep) return;
  unlink(waiter);
  base::futex_wake(&waiter->state, 1);
}

void LaneImpl::wake_all_sleepers() {
  while (Waiter* waiter = sleepers_) {
    unlink(waiter);
    waiter->state.store(Waiter::kWaiting, std::memory_order_release);
    base::futex_wake(&waiter->state, 1);
  }
}

// Returns when the waiter is done or the session is lost. A waiter that may not lead reads incoming
// frames now and then. So the worker never gets stuck on a client that does not read.
void LaneImpl::wait_for(Waiter* waiter, bool may_lead) {
  waiting_.fetch_add(1, std::memory_order_relaxed);
  const uint64_t begun_ns = base::has_many_cpus() ? 0 : base::now_ns();
  auto over = [&] {
    return waiter->state.load(std::memory_order_acquire) == Waiter::kDone || is_lost();
  };
  // Transfers spin briefly, too: they take long, and their receivers need the processors.
  const uint32_t spin_us = wait_spin_us_ < kFollowerSpinUs ? wait_spin_us_ : kFollowerSpinUs;
  while (!over()) {
    if (may_lead && try_lead()) {
      lead_for(*waiter);
      resign();
      continue;
    }
    auto lead_is_free = [&] { return may_lead && leading_.load(std::memory_order_acquire) == 0; };
    base::Spin spin(spin_us);
    while (!over() && !lead_is_free() && spin.again()) base::cpu_pause();
    {
      Locked locked(state_lock_);
      if (over() || lead_is_free()) continue;
      waiter->may_lead = may_lead;
      waiter->state.store(Waiter::kAsleep, std::memory_order_relaxed);
      waiter->previous = nullptr;
      waiter->next = sleepers_;
      if (sleepers_ != nullptr) sleepers_->previous = waiter;
      sleepers_ = waiter;
    }
    base::futex_wait(&waiter->state, Waiter::kAsleep, may_lead ? -1 : kPumpMs * 1000);
    {
      Locked locked(state_lock_);  // also: the thread that completed us has finished with us
      if (waiter->state.load(std::memory_order_relaxed) == Waiter::kAsleep) {
        unlink(waiter);
        waiter->state.store(Waiter::kWaiting, std::memory_order_relaxed);
      }
    }
    if (!may_lead) pump();
  }
  if (begun_ns != 0) waits_.took(base::now_ns() - begun_ns);
  wake_sender();  // this thread will soon call again; a long wait has sent the sender to sleep
  const bool nobody_receives = waiting_.fetch_sub(1, std::memory_order_seq_cst) == 1;
  if (nobody_receives && events_ != nullptr && events_->awaits_callbacks()) stop_event_.signal();
}

void LaneImpl::lead_for(const Waiter& waiter) {
  while (waiter.state.load(std::memory_order_acquire) != Waiter::kDone && !is_lost()) {
    receive_once({waits_.spin_us(wait_spin_us_), -1});
  }
}

void LaneImpl::pump() {
  if (is_lost() || !try_lead()) return;
  receive_once({0, 0});
  resign();
}

// Receives what has arrived and handles the complete frames. Leader only. False: nothing came, or
// the session is lost.
bool LaneImpl::receive_once(transport::Wait wait) {
  if (receive_at_ == receive_end_) {
    receive_at_ = receive_end_ = 0;
  } else if (kLaneReceiveBytes - receive_end_ < kReceivePiece ||
             receive_at_ >= kLaneReceiveBytes / 2) {
    std::memmove(receive_buffer_, receive_buffer_ + receive_at_, receive_end_ - receive_at_);
    receive_end_ -= receive_at_;
    receive_at_ = 0;
  }
  size_t room = kLaneReceiveBytes - receive_end_;
  Result<size_t> got =
      command_->receive(receive_buffer_ + receive_end_, wait.timeout_ms == 0 ? 0 : 1,
                        room < kReceivePiece ? room : kReceivePiece, wait);
  if (!got.ok()) {
    if (got.status().code() != Code::kTimeout) lose(got.status(), false);
    return false;
  }
  if (*got == 0) return false;
  receive_end_ += *got;
  stats_.bytes_received.fetch_add(*got, std::memory_order_relaxed);
  return handle_frames();
}

bool LaneImpl::violation(const char* what) {
  lose(Status(Code::kInvalid, base::format("the server sent something malformed: %s", what)),
       false);
  return false;
}

bool LaneImpl::handle_frames() {
  while (receive_end_ - receive_at_ >= sizeof(wire::ReplyHeader)) {
    wire::ReplyHeader header;
    std::memcpy(&header, receive_buffer_ + receive_at_, sizeof header);
    uint32_t pad = header.flags & wire::kFlagPadMask;
    if (header.bytes % wire::kCallAlign != 0 || header.bytes < sizeof header + pad ||
        header.bytes > wire::kReplyBytesMax + sizeof header + wire::kCallAlign) {
      return violation("a frame's length");
    }
    if (receive_end_ - receive_at_ < header.bytes) return place_rest(header);
    const uint8_t* body = receive_buffer_ + receive_at_ + sizeof header;
    receive_at_ += header.bytes;
    if (!handle_frame(header, body, header.bytes - uint32_t(sizeof header) - pad)) return false;
  }
  return true;
}

// Where to put the bytes of a frame that follow the first 8 of its body. Null: into the buffer,
// like everything else.
uint8_t* LaneImpl::place_of(const wire::ReplyHeader& header, const uint8_t* body, uint64_t bytes) {
  if (wire::FrameKind(header.kind) == wire::FrameKind::kDelivery) {
    uint64_t address;
    std::memcpy(&address, body, sizeof address);
    const bool accepted =
        bytes <= wire::kReplyInlineMax && events_->accepts_delivery(address, bytes);
    return accepted ? reinterpret_cast<uint8_t*>(address) : nullptr;
  }
  if (wire::FrameKind(header.kind) != wire::FrameKind::kReply) return nullptr;
  Locked locked(state_lock_);
  const PendingReply* reply = find_reply(header.reply_id);
  if (reply == nullptr || reply->waiter.state.load(std::memory_order_relaxed) == Waiter::kDone)
    return nullptr;
  return bytes == reply->into_bytes ? reply->into : nullptr;
}

// A long frame has begun to arrive: receives the bytes that have not been read yet at their
// destination. settle waits for this. So once a thread knows of a loss, nothing writes to its
// memory.
bool LaneImpl::place_rest(const wire::ReplyHeader& header) {
  const size_t have = receive_end_ - receive_at_, before = sizeof header + kPlacedAfter;
  if (header.bytes < kPlaceRestLeast || have < before || (header.flags & wire::kFlagPadMask) != 0)
    return true;
  const uint8_t* body = receive_buffer_ + receive_at_ + sizeof header;
  const size_t bytes = header.bytes - before;
  uint8_t* into = place_of(header, body, bytes);
  if (into == nullptr) return true;
  size_t got = have - before;
  delivering_.store(true, std::memory_order_seq_cst);
  Status failure;
  if (!lost_.load(std::memory_order_seq_cst)) std::memcpy(into, body + kPlacedAfter, got);
  while (got < bytes && failure.ok() && !lost_.load(std::memory_order_relaxed)) {
    Result<size_t> more = command_->receive(into + got, 1, bytes - got, {wait_spin_us_, kPumpMs});
    if (more.ok())
      got += *more;
    else if (more.status().code() != Code::kTimeout || closing_.load())
      failure = more.status();
  }
  delivering_.store(false, std::memory_order_release);
  if (got < bytes) return lose(failure, false), false;
  stats_.bytes_received.fetch_add(header.bytes - have, std::memory_order_relaxed);
  receive_at_ = receive_end_ = 0;
  if (wire::FrameKind(header.kind) == wire::FrameKind::kReply)
    return handle_reply(header, body, kPlacedAfter, true);
  events_->delivered(reinterpret_cast<uint64_t>(into), bytes);
  return true;
}

bool LaneImpl::handle_frame(const wire::ReplyHeader& header, const uint8_t* body, uint32_t bytes) {
  const char* text = reinterpret_cast<const char*>(body);
  switch (wire::FrameKind(header.kind)) {
    case wire::FrameKind::kReply:
      return handle_reply(header, body, bytes, false);
    case wire::FrameKind::kDelivery:
      return handle_delivery(body, bytes);
    case wire::FrameKind::kTransfer:
      return handle_transfer(header.result, body, bytes);
    case wire::FrameKind::kGrant:
      return handle_grant(body, bytes);
    case wire::FrameKind::kBulkData:
      return handle_bulk_frame(body, bytes);
    case wire::FrameKind::kProgress:
      return handle_progress(body, bytes);
    case wire::FrameKind::kOutput:
      events_->output(text, bytes);
      return true;
    case wire::FrameKind::kCallback:
      events_->callback(body, bytes);
      return true;
    case wire::FrameKind::kError:
      events_->sticky_error(header.result, text, bytes);
      return true;
    case wire::FrameKind::kNews:
      events_->news(body, bytes);
      return true;
    case wire::FrameKind::kMemoryWritten:
      if (bytes != 0) return violation("a frame with a body that has none");
      events_->memory_written();
      return true;
    case wire::FrameKind::kGoodbye:
      lose(Status(Code::kClosed, "the server ended the session: " + std::string(text, bytes)),
           false);
      return false;
  }
  return violation("a frame of unknown kind");
}

// `placed`: its bytes are already at their destination.
bool LaneImpl::handle_reply(const wire::ReplyHeader& header, const uint8_t* body, uint32_t bytes,
                            bool placed) {
  state_lock_.lock();
  PendingReply* reply = find_reply(header.reply_id);
  if (reply == nullptr || reply->waiter.state.load(std::memory_order_relaxed) == Waiter::kDone) {
    state_lock_.unlock();
    return violation("a reply to a call that waits for none");
  }
  // Under the lock: once a thread has learnt that the session is lost, it owns its memory again,
  // and nothing may be written there.
  const uint64_t padded =
      (uint64_t{reply->into_bytes} + wire::kCallAlign - 1) / wire::kCallAlign * wire::kCallAlign;
  if (!placed && reply->into != nullptr && bytes == kPlacedAfter + padded && !is_lost()) {
    std::memcpy(reply->into, body + kPlacedAfter, reply->into_bytes);
    placed = true;
    bytes = kPlacedAfter;
  }
  reply->placed = placed;
  if (reply->capacity < bytes) {
    free(reply->body);
    uint32_t capacity = bytes < 256 ? 256 : bytes;
    reply->body = static_cast<uint8_t*>(malloc(capacity));
    reply->capacity = reply->body == nullptr ? 0 : capacity;
    if (reply->body == nullptr) {
      state_lock_.unlock();
      lose(Status(Code::kExhausted, "no memory for a reply"), false);
      return false;
    }
  }
  if (bytes != 0) std::memcpy(reply->body, body, bytes);
  reply->bytes = bytes;
  reply->result = header.result;
  complete(&reply->waiter);
  if (reply->dropped) free_reply(reply);
  state_lock_.unlock();
  return true;
}

bool LaneImpl::handle_progress(const uint8_t* body, uint32_t bytes) {
  uint64_t run;
  if (bytes != sizeof run) return violation("a progress frame's length");
  std::memcpy(&run, body, sizeof run);
  if (run < run_.load(std::memory_order_relaxed) ||
      run > stats_.calls.load(std::memory_order_relaxed))
    return violation("progress of calls that were not made");
  run_.store(run, std::memory_order_relaxed);
  return true;
}

bool LaneImpl::handle_delivery(const uint8_t* body, uint32_t bytes) {
  uint64_t address;
  if (bytes < sizeof address || bytes - sizeof address > wire::kReplyInlineMax)
    return violation("a delivery's length");
  std::memcpy(&address, body, sizeof address);
  bytes -= uint32_t(sizeof address);
  if (!events_->accepts_delivery(address, bytes)) {
    return violation("a delivery to memory that no call named as its destination");
  }
  delivering_.store(true, std::memory_order_seq_cst);
  bool lost = lost_.load(std::memory_order_seq_cst);  // if so, the owner may have freed the memory
  if (bytes != 0 && !lost)
    std::memcpy(reinterpret_cast<void*>(address), body + sizeof address, bytes);
  delivering_.store(false, std::memory_order_release);
  if (!lost) events_->delivered(address, bytes);
  return !lost;
}

bool LaneImpl::handle_transfer(int32_t result, const uint8_t* body, uint32_t bytes) {
  uint64_t transfer;
  if (bytes != sizeof transfer) return violation("a transfer frame's length");
  std::memcpy(&transfer, body, sizeof transfer);
  uint64_t until =
      base::now_ns() +
      uint64_t(wait_spin_us_ < kFollowerSpinUs ? wait_spin_us_ : kFollowerSpinUs) * 1000;
  for (;;) {
    uint32_t seen = incoming_event_.read();
    uint64_t address = 0, over = 0;
    {
      Locked locked(state_lock_);
      Incoming* incoming = find_incoming(transfer);
      if (incoming == nullptr) return true;  // already waited for, or cancelled
      if (result != 0) incoming->failed = true;
      if (result != 0 || incoming->received == incoming->bytes) {
        complete(&incoming->waiter);
        if (!incoming->async) return true;
        address = reinterpret_cast<uint64_t>(incoming->into);
        over = incoming->bytes;
        remove_incoming(incoming);
      } else if (bulk_.empty()) {
        break;
      }
    }
    if (over != 0) return events_->delivered(address, over), true;
    if (is_lost()) return false;
    if (base::now_ns() < until) {
      base::cpu_pause();
    } else {
      incoming_event_.wait(seen, 100'000);
    }
  }
  return violation("a transfer was announced as complete and is not");
}

void LaneImpl::start_receiver() {
  Locked locked(start_lock_);
  if (receiver_.running())
    stop_event_.signal();
  else if (!is_lost())
    receiver_.start("tendril-recv", &LaneImpl::receiver_main, this);
}

// Leads only while nobody else waits, because a waiting thread receives faster for itself. A thread
// that has waited is likely to wait again soon, so this one does not take the lead right
// afterwards. Exception: a host function may be due; then the last waiting thread signals.
void LaneImpl::receiver_main(void* self) {
  auto* lane = static_cast<LaneImpl*>(self);
  while (!lane->is_lost()) {
    uint32_t seen = lane->stop_event_.read();
    if (lane->waiting_.load(std::memory_order_seq_cst) == 0 && lane->try_lead()) {
      lane->receive_once({0, 50});
      lane->resign();
      if (lane->waiting_.load(std::memory_order_seq_cst) == 0) continue;
    }
    if (!lane->is_lost()) lane->stop_event_.wait(seen, kLeadAgainUs);
  }
}

}  // namespace tendril::session

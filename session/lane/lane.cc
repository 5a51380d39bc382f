// SPDX-License-Identifier: Apache-2.0
// Calls out: encoding into the ring, the sender thread, flushing, and the beginning and end of a
// lane. The client library's threads call it. The sender thread belongs to the lane. Over shared
// memory the worker reads this very ring, and there is no sender.
#include "session/lane/lane.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/text.h"
#include "session/lane/lane_impl.h"

namespace tendril::session {

using base::Code;
using base::Locked;
using base::Status;

namespace {
constexpr int kLastWordsMs = 100;
constexpr uint64_t kCompanyNs = 1000;
constexpr uint64_t kNearNs = 8000;  // longer than a runtime takes between a copy and a wait
std::atomic<uint64_t> g_lane_ids{1};
thread_local bool t_exempt = false;
}  // namespace

void Lane::exempt_this_thread() { t_exempt = true; }

std::unique_ptr<Lane> Lane::open(std::unique_ptr<transport::Channel> command,
                                 std::unique_ptr<transport::Channel>* bulk, size_t bulk_count,
                                 LaneEvents* events) {
  std::unique_ptr<LaneImpl> lane(new (std::nothrow)
                                     LaneImpl(std::move(command), bulk, bulk_count, events));
  if (lane == nullptr || !lane->usable()) return nullptr;
  return lane;
}

LaneImpl::LaneImpl(std::unique_ptr<transport::Channel> command,
                   std::unique_ptr<transport::Channel>* bulk, size_t bulk_count, LaneEvents* events)
    : command_(std::move(command)), events_(events), id_(g_lane_ids.fetch_add(1)) {
  if (base::usable_cpus() > 1) {
    sender_spin_us_ = base::env_u32("TENDRIL_SPIN_US", 50);
    wait_spin_us_ = base::wait_spin_us();
  }
  direct_ = command_->ring();
  if (direct_ == nullptr) {
    void* memory =
        mmap(nullptr, kLaneRingBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ring_ = memory == MAP_FAILED ? nullptr : static_cast<uint8_t*>(memory);
  }
  receive_buffer_ = static_cast<uint8_t*>(aligned_alloc(64, kLaneReceiveBytes));
  striper_.when_stuck(this, [](void* self) { static_cast<LaneImpl*>(self)->pump(); });
  for (size_t i = 0; i < bulk_count; ++i) {
    bulk_.push_back(std::make_unique<BulkChannel>());
    bulk_.back()->channel = std::move(bulk[i]);
    bulk_.back()->lane = this;
    striper_.add(bulk_.back()->channel.get());
  }
}

LaneImpl::~LaneImpl() {
  if (!abandoned_) {
    lose(Status(Code::kClosed, "the lane was closed"), true);
    sender_.join();
    receiver_.join();
    for (auto& bulk : bulk_) {
      bulk->receiver.join();
    }
    striper_.stop();
  }
  if (ring_ != nullptr) munmap(ring_, kLaneRingBytes);
  free(receive_buffer_);
  auto drop = [](PendingReply* list) {
    while (list != nullptr) {
      PendingReply* next = list->next;
      free(list->body);
      delete list;
      list = next;
    }
  };
  for (PendingReply* list : pending_) drop(list);
  drop(free_replies_);
  while (thread_slots_ != nullptr) {
    ThreadSlot* next = thread_slots_->next;
    drop(thread_slots_->last);
    delete thread_slots_;
    thread_slots_ = next;
  }
  while (incoming_ != nullptr) {
    Incoming* next = incoming_->next;
    delete incoming_;
    incoming_ = next;
  }
  while (outgoing_ != nullptr) {
    Outgoing* next = outgoing_->next;
    delete outgoing_;
    outgoing_ = next;
  }
}

uint32_t LaneImpl::new_reply_id() {
  uint32_t id = next_reply_.fetch_add(1, std::memory_order_relaxed);
  while (id == 0) id = next_reply_.fetch_add(1, std::memory_order_relaxed);
  return id;
}

uint8_t* LaneImpl::begin(uint16_t opcode, uint32_t context, uint32_t body_bytes,
                         uint32_t reply_id) {
  return begin_flagged(opcode, 0, context, body_bytes, reply_id);
}

// Where `need` bytes go; null while the ring is full. The caller holds lock_.
uint8_t* LaneImpl::place(uint64_t need) {
  if (direct_ != nullptr) return direct_->reserve(need);
  uint64_t tail = tail_.load(std::memory_order_relaxed);
  uint64_t offset = tail % kLaneRingBytes;
  uint64_t start = tail;
  call_wrapped_ = offset + need > kLaneRingBytes;
  if (call_wrapped_) {
    wrap_from_ = tail;
    start = tail + (kLaneRingBytes - offset);
  }
  if (start + need - head_.load(std::memory_order_acquire) > kLaneRingBytes) return nullptr;
  call_start_ = start;
  return ring_ + start % kLaneRingBytes;
}

uint8_t* LaneImpl::begin_flagged(uint16_t opcode, uint16_t flags, uint32_t context,
                                 uint32_t body_bytes, uint32_t reply_id) {
  if (body_bytes > wire::kCallBytesMax - sizeof(wire::CallHeader)) {
    lose(Status(Code::kInternal, "a call is larger than the lane allows"), false);
    return nullptr;
  }
  uint32_t need = (uint32_t(sizeof(wire::CallHeader)) + body_bytes + wire::kCallAlign - 1) &
                  ~(wire::kCallAlign - 1);
  lock_.lock();
  uint8_t* at;
  for (;;) {
    if (lost_.load(std::memory_order_relaxed)) {
      lock_.unlock();
      settle();
      return nullptr;
    }
    const bool counts = flags == 0;
    if (counts && __builtin_expect(committed_ >= hold_at_, 0) && is_too_far_ahead()) {
      lock_.unlock();
      let_worker_catch_up();
      lock_.lock();
      continue;
    }
    call_counts_ = counts;
    at = place(need);
    if (__builtin_expect(at != nullptr, 1)) break;
    // Full: send, or read what the worker has to say. The worker may be blocked until we do. Never
    // with the lock held, because a callback may make calls.
    Status room;
    if (direct_ != nullptr) room = direct_->wait_room(need, kPumpMs);
    lock_.unlock();
    if (!room.ok() && room.code() != Code::kTimeout) lose_after_last_words(room);
    if (direct_ != nullptr ? !room.ok() : !send_pending(kPumpMs)) pump();
    lock_.lock();
  }
  uint32_t pad = need - uint32_t(sizeof(wire::CallHeader)) - body_bytes;
  wire::CallHeader header{need, opcode, uint16_t(flags | pad), context, reply_id};
  std::memcpy(at, &header, sizeof header);
  if (pad != 0) std::memset(at + need - pad, 0, pad);
  call_bytes_ = need;
  call_wants_reply_ = reply_id != 0;
  if (reply_id != 0) register_reply(reply_id);
  return at + sizeof header;
}

bool LaneImpl::is_too_far_ahead() {
  hold_at_ = run_.load(std::memory_order_relaxed) + wire::kCallsAheadMax;
  return committed_ >= hold_at_ && !t_exempt && !is_leader();
}

void LaneImpl::let_worker_catch_up() {
  if (try_lead()) {
    receive_once({0, kPumpMs});
    resign();
  } else {
    base::futex_wait(&leading_, 1, kPumpMs * 1000);
  }
}

void LaneImpl::commit() {
  bool wake = !call_wants_reply_;
  if (call_counts_) ++committed_;
  stats_.calls.store(stats_.calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (direct_ != nullptr) {
    direct_->publish(call_bytes_);
    stats_.bytes_sent.store(stats_.bytes_sent.load(std::memory_order_relaxed) + call_bytes_,
                            std::memory_order_relaxed);
    lock_.unlock();
    return;
  }
  uint64_t end = call_start_ + call_bytes_;
  if (call_wrapped_) {
    wrap_at_.store(wrap_from_, std::memory_order_relaxed);
  } else if (end % kLaneRingBytes == 0) {
    wrap_at_.store(end, std::memory_order_relaxed);
  }
  tail_.store(end, std::memory_order_seq_cst);
  if (wake && !sender_tried_) {
    sender_tried_ = true;
    sender_.start("tendril-send", &LaneImpl::sender_main, this);
  }
  bool by_hand = wake && !sender_.running();
  lock_.unlock();
  if (wake && sender_asleep_.load(std::memory_order_seq_cst) != 0) wake_sender();
  if (by_hand) flush();
}

void LaneImpl::wake_sender() {
  if (sender_asleep_.exchange(0, std::memory_order_seq_cst) != 0)
    base::futex_wake(&sender_asleep_, 1);
}

// Sends some of the committed bytes. False: the peer has no room, or is gone.
bool LaneImpl::send_pending(int timeout_ms) {
  base::Result<size_t> sent = size_t(0);
  {
    Locked locked(send_lock_,
                  sender_spin_us_);  // spins: the holder is in a system call shorter than a sleep
    if (lost_.load(std::memory_order_relaxed)) return false;
    uint64_t head = head_.load(std::memory_order_relaxed);
    uint64_t tail = tail_.load(std::memory_order_acquire);
    if (head == tail) return true;
    iovec parts[2];
    int count = 1;
    uint64_t first_end = tail;
    bool wrapped = head / kLaneRingBytes != tail / kLaneRingBytes;
    if (wrapped) first_end = wrap_at_.load(std::memory_order_relaxed);
    parts[0] = {ring_ + head % kLaneRingBytes, size_t(first_end - head)};
    if (wrapped && tail % kLaneRingBytes != 0)
      parts[count++] = {ring_, size_t(tail % kLaneRingBytes)};
    sent = command_->send_some(parts, count, timeout_ms);
    if (sent.ok()) {
      uint64_t done = *sent;
      uint64_t first = first_end - head;
      // Past the first part: skip the unused end of the ring.
      uint64_t now = wrapped && done >= first
                         ? tail / kLaneRingBytes * kLaneRingBytes + (done - first)
                         : head + done;
      head_.store(now, std::memory_order_release);
      if (done > 0) {
        stats_.sends.fetch_add(1, std::memory_order_relaxed);
        stats_.bytes_sent.fetch_add(done, std::memory_order_relaxed);
        return true;
      }
      return false;
    }
  }
  lose_after_last_words(sent.status());
  return false;
}

bool LaneImpl::flush_until(int timeout_ms) {
  if (direct_ != nullptr) return true;
  uint64_t target = tail_.load(std::memory_order_acquire);
  base::Deadline deadline(timeout_ms);
  while (head_.load(std::memory_order_acquire) < target) {
    if (lost_.load(std::memory_order_relaxed) || deadline.passed()) return false;
    if (!send_pending(kPumpMs)) pump();
  }
  return true;
}

void LaneImpl::wait_is_near() {
  if (direct_ != nullptr || sender_spin_us_ == 0) return;
  company_until_ns_.store(base::now_ns() + kNearNs, std::memory_order_relaxed);
}

// Gives the calling threads time to send for themselves. A wait often follows and sends pending
// calls together with its own: one message instead of two.
void LaneImpl::await_company(uint64_t until_ns) {
  while (head_.load(std::memory_order_acquire) != tail_.load(std::memory_order_acquire) &&
         !lost_.load()) {
    const uint64_t until = std::max(until_ns, company_until_ns_.load(std::memory_order_relaxed));
    if (until == 0 || base::now_ns() >= until) return;
    base::cpu_pause();
  }
}

void LaneImpl::sender_main(void* self) {
  auto* lane = static_cast<LaneImpl*>(self);
  while (!lane->lost_.load(std::memory_order_acquire)) {
    if (lane->head_.load(std::memory_order_acquire) !=
        lane->tail_.load(std::memory_order_acquire)) {
      lane->await_company(0);
      if (!lane->send_pending(kPumpMs)) lane->pump();
      continue;
    }
    auto idle = [lane] {
      return lane->head_.load(std::memory_order_acquire) ==
                 lane->tail_.load(std::memory_order_seq_cst) &&
             !lane->lost_.load(std::memory_order_seq_cst);
    };
    base::Spin spin(lane->sender_spin_us_);
    while (idle() && spin.again()) {
      for (int i = 0; i < 16; ++i) base::cpu_pause();
    }
    if (!idle()) {
      if (lane->sender_spin_us_ != 0) lane->await_company(base::now_ns() + kCompanyNs);
      continue;
    }
    lane->sender_asleep_.store(1, std::memory_order_seq_cst);
    if (idle()) base::futex_wait(&lane->sender_asleep_, 1, -1);
    lane->sender_asleep_.store(0, std::memory_order_seq_cst);
  }
}

// Marks the session lost, once, and wakes every waiting thread. Never called with a lock held,
// except by the destructor's thread.
void LaneImpl::lose(const Status& why, bool quiet) {
  if (lost_.exchange(true, std::memory_order_seq_cst)) return;
  command_->shutdown();
  for (auto& bulk : bulk_) bulk->channel->shutdown();
  {
    Locked locked(state_lock_);
    wake_all_sleepers();
  }
  wake_sender();
  stop_event_.signal();
  incoming_event_.signal();
  if (!quiet && !closing_.load() && events_ != nullptr) events_->lost(why);
}

// A channel other than the reply lane has ended. If the worker gave a reason, it is on the reply
// lane.
void LaneImpl::lose_after_last_words(const Status& why) {
  base::Deadline deadline(kLastWordsMs);
  while (!is_lost() && !deadline.passed()) {
    if (try_lead()) {
      receive_once({0, deadline.left_ms()});
      resign();
    } else {
      base::futex_wait(&leading_, 1, 1000);
    }
  }
  lose(why, false);
}

void LaneImpl::abandon_after_fork() {
  abandoned_ = true;
  lost_.store(true, std::memory_order_relaxed);
  direct_ = nullptr;
  lock_.reset_after_fork();
  send_lock_.reset_after_fork();
  state_lock_.reset_after_fork();
  start_lock_.reset_after_fork();
  striper_.abandon_after_fork();
  leading_.store(0, std::memory_order_relaxed);
  sleepers_ = nullptr;  // their threads stayed in the parent
  sender_.forget();
  receiver_.forget();
  for (auto& bulk : bulk_) {
    bulk->receiver.forget();
    bulk->channel.reset();
  }
  command_.reset();  // closes this process' copies; the parent's connection lives on
}

void LaneImpl::close(int timeout_ms) {
  if (is_lost()) return;
  closing_.store(true);
  base::Deadline deadline(timeout_ms);
  bool room = flush_until(timeout_ms);
  if (direct_ != nullptr) {
    Locked locked(lock_);
    room = direct_->wait_room(sizeof(wire::CallHeader), timeout_ms).ok();
  }
  // Without room begin would wait: then skip the goodbye.
  if (room && begin_flagged(0, wire::kFlagGoodbye, 0, 0, 0) != nullptr) {
    commit();
    flush_until(deadline.left_ms());
    while (!is_lost() && !deadline.passed()) {  // the worker finishes its calls and closes
      if (try_lead()) {
        int left = deadline.left_ms();
        receive_once({0, left < 0 || left > 100 ? 100 : left});
        resign();
      } else {
        base::futex_wait(&leading_, 1, 1000);
      }
    }
  }
  lose(Status(Code::kClosed, "the lane was closed"), true);
}

}  // namespace tendril::session

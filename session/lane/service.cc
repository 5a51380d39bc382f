// SPDX-License-Identifier: Apache-2.0
// Calls in and frames out, on the worker's side. `next`, `pending` and the inbox belong to the
// executor's thread. Any thread may send frames. Everything read from the peer is checked here
// before it is used.
#include "session/lane/service.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/clock.h"
#include "base/text.h"
#include "session/lane/service_impl.h"

namespace tendril::session {

using base::Code;
using base::Locked;
using base::Result;
using base::Status;

namespace {
constexpr size_t kReceivePiece = 256u << 10;  // fits the second-level cache
constexpr uint64_t kCoalesceNs = 10'000;  // a reply waits at most this long for others to join it
constexpr uint32_t kGatherBytes = 16u << 10;  // for a reply, which ends a message
constexpr int kGoodbyeMs = 200;
thread_local char t_self;  // its address names the thread
}  // namespace

// ---- inbox ----

Inbox::~Inbox() {
  free(data_);
  let_go();
}

void Inbox::let_go() {
  for (uint8_t* memory : held_) free(memory);
  held_.clear();
}

void Inbox::pass(size_t bytes) {
  at_ += bytes;
  scan_ = std::max(scan_, at_);
  sight_ = std::max(sight_, at_);
}

bool Inbox::open() {
  data_ = static_cast<uint8_t*>(aligned_alloc(64, (kInboxBytes + 63) & ~size_t(63)));
  capacity_ = kInboxBytes;
  return data_ != nullptr;
}

// Moves the calls that are still to be run to the front of `into`. Drops those that were taken out
// of turn.
void Inbox::compact(uint8_t* into) {
  size_t to = 0, scan = 0, sight = 0;
  for (size_t from = at_; from < end_;) {
    wire::CallHeader header;
    bool whole = peek(from, &header) == 1;
    size_t bytes = whole ? header.bytes : end_ - from;
    if (from == scan_) scan = to;
    if (from == sight_) sight = to;
    if (!whole || (header.flags & kFlagTaken) == 0) {
      std::memmove(into + to, data_ + from, bytes);
      to += bytes;
    }
    from += bytes;
  }
  if (scan_ == end_) scan = to;
  if (sight_ == end_) sight = to;
  at_ = 0;
  scan_ = scan;
  sight_ = sight;
  end_ = to;
}

uint8_t* Inbox::room(size_t* bytes, bool keep) {
  if (!keep) {
    let_go();
    if (at_ == end_) {
      at_ = scan_ = sight_ = end_ = 0;
    } else if (capacity_ - end_ < kReceivePiece) {
      compact(data_);
    }
  }
  if (capacity_ - end_ < kReceivePiece) {
    size_t wanted = std::max(capacity_, (end_ - at_) * 2 + kInboxBytes);
    auto* fresh = wanted > kInboxBytesMax
                      ? nullptr
                      : static_cast<uint8_t*>(aligned_alloc(64, (wanted + 63) & ~size_t(63)));
    if (fresh == nullptr) return nullptr;
    uint8_t* old = data_;
    compact(fresh);
    data_ = fresh;
    capacity_ = wanted;
    if (keep) {
      held_.push_back(old);  // it holds the bodies of calls that are being run
    } else {
      free(old);
    }
  }
  *bytes = std::min(capacity_ - end_, kReceivePiece);
  return data_ + end_;
}

// ---- beginning and end ----

std::unique_ptr<Service> Service::open(std::unique_ptr<transport::Channel> command,
                                       std::unique_ptr<transport::Channel>* bulk, size_t bulk_count,
                                       SlotPool pool, wire::SessionCounts* counts) {
  std::unique_ptr<ServiceImpl> service(
      new (std::nothrow) ServiceImpl(std::move(command), bulk, bulk_count, pool, counts));
  if (service == nullptr || !service->start()) return nullptr;
  return service;
}

ServiceImpl::ServiceImpl(std::unique_ptr<transport::Channel> command,
                         std::unique_ptr<transport::Channel>* bulk, size_t bulk_count,
                         SlotPool pool, wire::SessionCounts* counts)
    : command_(std::move(command)),
      pool_(pool),
      counts_(counts != nullptr ? counts : &own_counts_) {
  direct_ = command_->ring();
  for (size_t i = 0; i < bulk_count; ++i) {
    lines_.push_back(std::make_unique<Line>());
    lines_.back()->channel = std::move(bulk[i]);
    lines_.back()->service = this;
    striper_.add(lines_.back()->channel.get());
  }
  if (base::usable_cpus() > 1) take_spin_us_ = base::env_u32("TENDRIL_SPIN_US", 50);
}

bool ServiceImpl::start() {
  out_ = static_cast<uint8_t*>(aligned_alloc(64, kServiceOutBytes));
  if (out_ == nullptr || !inbox_.open()) return false;
  if (pool_.base == nullptr || pool_.slots == 0) {
    void* memory = mmap(nullptr, size_t(kOwnSlots) * wire::kChunkBytesMax, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    own_pool_ = memory;
    pool_ = {static_cast<uint8_t*>(memory), kOwnSlots};
  }
  for (uint32_t i = pool_.slots; i > 0; --i) free_slots_.push_back(i - 1);
  // A quarter of the slots is for chunks that nobody waits for yet, half for the taker. The rest is
  // for chunks on their way to the taker.
  eager_max_ = pool_.slots >= 2 ? std::max(1u, pool_.slots / 4) : 0;
  tell_grant(0, eager_max_);
  flush();
  for (auto& line : lines_) {
    if (!line->receiver.start("tendril-bulk", &ServiceImpl::receiver_main, line.get()))
      return false;
  }
  return true;
}

ServiceImpl::~ServiceImpl() {
  if (out_ != nullptr) flush();
  finish(Status(Code::kClosed, "the service was closed"));
  for (auto& line : lines_) line->receiver.join();
  striper_.stop();
  free(out_);
  if (own_pool_ != nullptr) munmap(own_pool_, size_t(kOwnSlots) * wire::kChunkBytesMax);
  while (transfers_ != nullptr) {
    Transfer* next = transfers_->next;
    delete transfers_;
    transfers_ = next;
  }
}

// Ends all traffic. The first reason is kept.
void ServiceImpl::finish(const Status& why) {
  {
    Locked locked(why_lock_);
    if (ended_.load(std::memory_order_relaxed)) return;
    why_ = why;
    ended_.store(true, std::memory_order_seq_cst);
  }
  command_->shutdown();
  for (auto& line : lines_) line->channel->shutdown();
  slot_event_.signal();
  piece_event_.signal();
}

Status ServiceImpl::reason() {
  Locked locked(why_lock_);
  return why_;
}

void ServiceImpl::end(const char* why) {
  if (ended_.load(std::memory_order_acquire)) return;
  // Another thread may be stuck in a send while it holds the lock. Then the client is not reading,
  // and learns of the end from the closed connection.
  base::Deadline deadline(kGoodbyeMs);
  bool held = out_lock_.try_lock();
  while (!held && !deadline.passed()) {
    base::cpu_pause();
    held = out_lock_.try_lock();
  }
  if (held) {
    uint32_t bytes = uint32_t(std::min<size_t>(strlen(why), 1000));
    uint32_t pad = (0 - bytes) & (wire::kCallAlign - 1);
    wire::ReplyHeader header{uint32_t(sizeof header) + bytes + pad,
                             uint16_t(wire::FrameKind::kGoodbye), uint16_t(pad), 0, 0};
    static const uint8_t zeros[8] = {};
    iovec parts[4] = {{out_, out_used_},
                      {&header, sizeof header},
                      {const_cast<char*>(why), bytes},
                      {const_cast<uint8_t*>(zeros), pad}};
    size_t total = out_used_ + header.bytes;
    out_used_ = 0;
    int first = 0;
    while (total > 0 && !deadline.passed()) {
      Result<size_t> sent = command_->send_some(parts + first, 4 - first, deadline.left_ms());
      if (!sent.ok()) break;
      total -= *sent;
      for (size_t left = *sent; left > 0;) {
        size_t step = std::min(left, parts[first].iov_len);
        parts[first].iov_base = static_cast<uint8_t*>(parts[first].iov_base) + step;
        parts[first].iov_len -= step;
        left -= step;
        if (parts[first].iov_len == 0 && first < 3) ++first;
      }
    }
    out_lock_.unlock();
  }
  finish(Status(Code::kClosed, why));
}

Status ServiceImpl::malformed(const char* what) {
  std::string text = base::format("the client sent something malformed: %s", what);
  end(text.c_str());
  return reason();
}

// ---- calls in ----

bool ServiceImpl::on_executor() const {
  return executor_.load(std::memory_order_relaxed) == &t_self;
}

// Receives into the inbox. False with *failure ok: nothing came in time.
bool ServiceImpl::receive_more(transport::Wait wait, bool keep, Status* failure) {
  size_t room = 0;
  uint8_t* into = inbox_.room(&room, keep);
  if (into == nullptr) {
    *failure =
        malformed("too many calls before the bytes of a transfer that an earlier call named");
    return false;
  }
  bool poll = wait.timeout_ms == 0 && wait.spin_us == 0;
  Result<size_t> got = command_->receive(into, poll ? 0 : 1, room, wait);
  if (!got.ok()) {
    if (got.status().code() == Code::kTimeout) return false;
    finish(got.status());
    *failure = reason();
    return false;
  }
  inbox_.received(*got);
  wire::count_alone(counts_->lane_bytes_in, *got);
  return *got > 0;
}

Call ServiceImpl::call_at(size_t at, const wire::CallHeader& header) const {
  Call call;
  call.opcode = header.opcode;
  call.flags = header.flags;
  call.context = header.context;
  call.reply_id = header.reply_id;
  call.body = inbox_.data_ + at + sizeof header;
  call.bytes = header.bytes - uint32_t(sizeof header) - (header.flags & wire::kFlagPadMask);
  return call;
}

// A client thread waits from the time that the first reply is due until none is due. A call that is
// answered on sight gets its reply before it is counted. The two then cancel out.
void ServiceImpl::reply_due() {
  if (counts_->replies_due.fetch_add(1, std::memory_order_relaxed) == 0)
    due_since_ns_.store(base::now_ns(), std::memory_order_relaxed);
}

void ServiceImpl::replied() {
  wire::count_alone(counts_->replies, 1);
  if (counts_->replies_due.fetch_sub(1, std::memory_order_relaxed) != 1) return;
  const uint64_t since_ns = due_since_ns_.load(std::memory_order_relaxed);
  counts_->awaited_ns.fetch_add(base::now_ns() - since_ns, std::memory_order_relaxed);
}

// Called at the beginning of next: the calls that it returned before have now been run.
void ServiceImpl::tell_progress() {
  const uint64_t run = counts_->calls.load(std::memory_order_relaxed);
  if (run - told_ < wire::kProgressEvery) return;
  told_ = run;
  const Part part{&run, sizeof run};
  frame(wire::FrameKind::kProgress, 0, 0, &part, 1);
}

Result<Call> ServiceImpl::next(transport::Wait wait) {
  Locked receiving(inbox_lock_);
  if (!on_executor()) executor_.store(&t_self, std::memory_order_relaxed);
  tell_progress();
  if (base::usable_cpus() == 1) wait.spin_us = 0;
  for (;;) {
    if (ended_.load(std::memory_order_acquire)) return reason();
    wire::CallHeader header;
    int found = inbox_.peek(inbox_.at_, &header);
    if (found < 0) return malformed("a call's length");
    if (found == 0) {
      flush();
      Status failure;
      if (receive_more(wait, false, &failure)) continue;
      if (!failure.ok()) return failure;
      return Status(Code::kTimeout, "no call arrived in time");
    }
    if ((header.flags & wire::kFlagBulkData) != 0 && (header.flags & kFlagTaken) == 0) {
      const Call chunk = call_at(inbox_.at_, header);
      int stowed = stow(header, chunk.body, chunk.bytes);
      if (stowed < 0) return reason();
    }
    inbox_.pass(header.bytes);
    if ((header.flags & (wire::kFlagBulkData | kFlagTaken)) != 0) continue;
    if ((header.flags & wire::kFlagGoodbye) != 0) {
      flush();
      finish(Status(Code::kClosed, "the client said goodbye"));
      return reason();
    }
    uint64_t since = out_since_ns_.load(std::memory_order_relaxed);
    if (since != 0 && (header.reply_id != 0 || base::now_ns() - since > kCoalesceNs)) flush();
    wire::count_alone(counts_->calls, 1);
    if (header.reply_id != 0) reply_due();
    return call_at(inbox_.at_ - header.bytes, header);
  }
}

size_t ServiceImpl::take_alike(const Call& current, Call* calls, size_t max) {
  constexpr uint16_t kForNext = wire::kFlagBulkData | wire::kFlagGoodbye | kFlagTaken;
  Locked locked(inbox_lock_);
  size_t count = 0, at = inbox_.at_;
  wire::CallHeader header;
  for (; count < max && inbox_.peek(at, &header) == 1; at += header.bytes) {
    const bool alike = header.opcode == current.opcode && header.context == current.context;
    if (!alike || header.reply_id != 0 || (header.flags & kForNext) != 0) break;
    calls[count++] = call_at(at, header);
  }
  inbox_.pass(at - inbox_.at_);
  wire::count_alone(counts_->calls, count);
  return count;
}

// Shows the calls that were not shown yet. The caller holds inbox_lock_.
void ServiceImpl::show_calls() {
  if (!taken_on_sight_) return;
  wire::CallHeader header;
  while (inbox_.peek(inbox_.sight_, &header) == 1) {
    uint8_t* at = inbox_.data_ + inbox_.sight_;
    inbox_.sight_ += header.bytes;
    if ((header.flags & (wire::kFlagBulkData | wire::kFlagGoodbye | kFlagTaken)) != 0) continue;
    if (!taken_on_sight_(call_at(inbox_.sight_ - header.bytes, header))) continue;
    wire::count_alone(counts_->calls, 1);
    if (header.reply_id != 0) reply_due();
    header.flags |= kFlagTaken;
    std::memcpy(at, &header, sizeof header);
  }
}

bool ServiceImpl::attend() {
  if (ended_.load(std::memory_order_acquire)) return false;
  if (!inbox_lock_.try_lock()) return true;  // the executor is receiving, and not busy
  Status failure;
  if (inbox_.end_ - inbox_.at_ < kAttendedBytesMax) receive_more({0, 0}, true, &failure);
  if (failure.ok()) show_calls();
  inbox_lock_.unlock();
  return failure.ok();
}

bool ServiceImpl::pending() {
  Locked receiving(inbox_lock_);
  if (out_since_ns_.load(std::memory_order_relaxed) != 0) flush();
  // `next` would skip these and wait for another call.
  wire::CallHeader header;
  while (inbox_.peek(inbox_.at_, &header) == 1 && (header.flags & kFlagTaken) != 0)
    inbox_.pass(header.bytes);
  if (!inbox_.empty()) return true;
  Status failure;
  receive_more({0, 0}, true, &failure);
  return !inbox_.empty() || !failure.ok();
}

// ---- frames out ----

void ServiceImpl::send_now() {
  if (out_used_ == 0) return;
  iovec part{out_, out_used_};
  Status sent = command_->send(&part, 1);
  out_used_ = 0;
  out_since_ns_.store(0, std::memory_order_relaxed);
  if (!sent.ok()) finish(sent);
}

void ServiceImpl::flush() {
  if (out_since_ns_.load(std::memory_order_relaxed) == 0) return;
  Locked locked(out_lock_);
  send_now();
}

// Over shared memory frames are written where the client reads them. The caller holds out_lock_.
void ServiceImpl::frame_in_ring(const wire::ReplyHeader& header, const Part* parts, int count,
                                uint32_t pad) {
  uint8_t* at;
  while ((at = direct_->reserve(header.bytes)) == nullptr) {
    Status room = direct_->wait_room(header.bytes, -1);
    if (!room.ok()) return finish(room);
  }
  std::memcpy(at, &header, sizeof header);
  at += sizeof header;
  for (int i = 0; i < count; ++i) {
    if (parts[i].bytes != 0) std::memcpy(at, parts[i].data, parts[i].bytes);
    at += parts[i].bytes;
  }
  std::memset(at, 0, pad);
  direct_->publish(header.bytes);
}

// Sends after what is already waiting, without a copy. The caller holds out_lock_.
void ServiceImpl::send_gathered(const wire::ReplyHeader& header, const Part* parts, int count,
                                uint32_t pad) {
  static const uint8_t zeros[8] = {};
  iovec list[8];
  int used = 0;
  if (out_used_ != 0) list[used++] = {out_, out_used_};
  list[used++] = {const_cast<wire::ReplyHeader*>(&header), sizeof header};
  for (int i = 0; i < count; ++i) list[used++] = {const_cast<void*>(parts[i].data), parts[i].bytes};
  list[used++] = {const_cast<uint8_t*>(zeros), pad};
  out_used_ = 0;
  out_since_ns_.store(0, std::memory_order_relaxed);
  Status sent = command_->send(list, used);
  if (!sent.ok()) finish(sent);
}

void ServiceImpl::frame(wire::FrameKind kind, int32_t result, uint32_t reply_id, const Part* parts,
                        int count) {
  if (ended_.load(std::memory_order_acquire)) return;
  uint64_t body = 0;
  for (int i = 0; i < count; ++i) body += parts[i].bytes;
  if (body > wire::kReplyBytesMax)
    return end("internal error: a reply larger than the lane allows");
  uint32_t pad = uint32_t((0 - body) & (wire::kCallAlign - 1));
  uint32_t total = uint32_t(sizeof(wire::ReplyHeader) + body + pad);
  wire::ReplyHeader header{total, uint16_t(kind), uint16_t(pad), result, reply_id};
  Locked locked(out_lock_);
  wire::count_alone(counts_->lane_bytes_out, total);
  if (kind == wire::FrameKind::kReply) replied();
  if (direct_ != nullptr) return frame_in_ring(header, parts, count, pad);
  // A reply follows a delivery. Up to some size, copying the delivery costs less than a message of
  // its own.
  const bool gather =
      kind == wire::FrameKind::kReply ? total >= kGatherBytes : total > kServiceOutBytes / 2;
  if (gather) return send_gathered(header, parts, count, pad);
  if (out_used_ + total > kServiceOutBytes) send_now();
  uint8_t* at = out_ + out_used_;
  std::memcpy(at, &header, sizeof header);
  at += sizeof header;
  for (int i = 0; i < count; ++i) {
    if (parts[i].bytes != 0) std::memcpy(at, parts[i].data, parts[i].bytes);
    at += parts[i].bytes;
  }
  std::memset(at, 0, pad);
  if (out_used_ == 0) out_since_ns_.store(base::now_ns(), std::memory_order_relaxed);
  out_used_ += total;
  if (!on_executor() || out_used_ > kServiceOutBytes / 2) send_now();
}

void ServiceImpl::reply(uint32_t reply_id, int32_t result, const void* body, uint32_t bytes) {
  if (reply_id == 0) return;
  Part part{body, bytes};
  frame(wire::FrameKind::kReply, result, reply_id, &part, 1);
}

void ServiceImpl::reply2(uint32_t reply_id, int32_t result, const void* body, uint32_t bytes,
                         const void* more, uint32_t more_bytes) {
  if (reply_id == 0) return;
  Part parts[2] = {{body, bytes}, {more, more_bytes}};
  frame(wire::FrameKind::kReply, result, reply_id, parts, 2);
}

void ServiceImpl::deliver(uint64_t address, const void* data, uint32_t bytes) {
  if (bytes > wire::kReplyInlineMax)
    return end("internal error: a delivery larger than the lane allows");
  Part parts[2] = {{&address, sizeof address}, {data, bytes}};
  frame(wire::FrameKind::kDelivery, 0, 0, parts, 2);
}

void ServiceImpl::push(wire::FrameKind kind, int32_t result, const void* body, uint32_t bytes) {
  Part part{body, bytes};
  frame(kind, result, 0, &part, 1);
}

void ServiceImpl::transfer_sent(uint64_t transfer) {
  Part part{&transfer, sizeof transfer};
  frame(wire::FrameKind::kTransfer, 0, 0, &part, 1);
}

void ServiceImpl::transfer_failed(uint64_t transfer, int32_t result) {
  Part part{&transfer, sizeof transfer};
  frame(wire::FrameKind::kTransfer, result == 0 ? -1 : result, 0, &part, 1);
}

}  // namespace tendril::session

// SPDX-License-Identifier: Apache-2.0
// See outlet.h.
#include "transport/rdma/outlet.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace tendril::transport::rdma {

using base::Code;
using base::Result;
using base::Status;

namespace {
constexpr int kLooks = 200;  // before a sender sleeps; the peer's answer takes some microseconds
// No record is longer than this part of the ring, so that the peer can take one while the next is
// written.
constexpr uint64_t kRecordsOfRing = 4;
}  // namespace

Status Outlet::open() {
  Device* device = session_->device.get();
  Status opened = ring_.open(device, layout_.ring_bytes, Rights::kNone);
  if (opened.ok() && layout_.blocks != 0) {
    opened = blocks_.open(device, layout_.blocks * layout_.block_bytes, Rights::kPeerReads);
    free_blocks_ = (uint64_t(1) << layout_.blocks) - 1;
  }
  return opened;
}

Status Outlet::collect() {
  const Status good = line_->collect();
  uint32_t immediate;
  if (line_->take_told(&immediate)) {
    uint64_t head;
    if (!widen(immediate, head_, posted_tail_ - head_, &head))
      return line_->fail("the peer gave room in an RDMA ring that nobody had used", Code::kInvalid);
    head_ = head;
    while (sent_count_ != 0 && sent_[sent_first_].end <= head_) {
      if (sent_[sent_first_].block >= 0)
        free_blocks_ |= uint64_t(1) << unsigned(sent_[sent_first_].block);
      sent_first_ = (sent_first_ + 1) % kRecordsMax;
      --sent_count_;
    }
    const Status renewed = line_->renew();
    if (!renewed.ok()) return renewed;
  }
  if (!good.ok()) return good;
  return line_->closed() ? Status(Code::kClosed, "the peer closed the connection") : Status();
}

void Outlet::append(const Record& record, int block, uint32_t stream_bytes) {
  write_header(ring_.data() + (tail_ & (layout_.ring_bytes - 1)), record, tail_);
  const uint64_t begin = tail_;
  tail_ += record.ring_bytes();
  sent_[(sent_first_ + sent_count_++) % kRecordsMax] = {begin, tail_, block, stream_bytes};
}

Outlet::Put Outlet::put_bytes(Parts* rest, size_t* taken) {
  const uint64_t offset = tail_ & (layout_.ring_bytes - 1);
  const uint64_t space =
      std::min({room(), layout_.ring_bytes - offset, layout_.ring_bytes / kRecordsOfRing});
  if (space < kRecordHeaderBytes) return Put::kNoRoom;
  // Up to the first part that is long enough to be named instead.
  uint64_t wanted = 0;
  for (int i = 0; i < rest->count(); ++i) {
    const size_t bytes = rest->array()[i].iov_len;
    if (layout_.blocks != 0 && bytes >= layout_.reference_min) break;
    wanted += bytes;
  }
  Record record;
  record.bytes = uint32_t(std::min(wanted, space - kRecordHeaderBytes));
  // Little room is not worth a message, unless the ring ends there.
  const bool at_end = offset + kRecordHeaderBytes == layout_.ring_bytes;
  if (record.bytes == 0 && !at_end) return Put::kNoRoom;
  *taken = rest->copy_out(ring_.data() + offset + kRecordHeaderBytes, record.bytes);
  session_->counts.copied_bytes.fetch_add(*taken, std::memory_order_relaxed);
  append(record, -1, record.bytes);
  return Put::kDone;
}

Outlet::Put Outlet::put_long(Parts* rest, size_t* taken) {
  if (room() < kRecordHeaderBytes) return Put::kNoRoom;
  const iovec part = rest->array()[0];
  Record record;
  record.kind = RecordKind::kReference;
  record.bytes = uint32_t(std::min<size_t>(part.iov_len, kReferenceBytesMax));
  const Region* region =
      session_->known != nullptr ? session_->known->hold(part.iov_base, record.bytes) : nullptr;
  if (region != nullptr) {
    record.from = {reinterpret_cast<uint64_t>(part.iov_base), region->remote_key};
    append(record, -1, 0);
    pending_ = {part.iov_base, record.bytes, tail_, region};
    *taken = 0;  // when the peer has read it
    return Put::kDone;
  }
  if (free_blocks_ == 0 || of_device_) return Put::kNoRoom;
  const int block = __builtin_ctzll(free_blocks_);
  free_blocks_ &= free_blocks_ - 1;
  record.bytes = uint32_t(std::min<uint64_t>(record.bytes, layout_.block_bytes));
  const uint64_t offset = uint64_t(block) * layout_.block_bytes;
  *taken = rest->copy_out(blocks_.data() + offset, record.bytes);
  session_->counts.copied_bytes.fetch_add(*taken, std::memory_order_relaxed);
  record.from = blocks_.remote(offset);
  append(record, block, record.bytes);
  return Put::kDone;
}

Outlet::Put Outlet::put(Parts* rest, size_t* taken) {
  *taken = 0;
  if (sent_count_ == kRecordsMax) return Put::kNoRoom;
  const bool is_long = layout_.blocks != 0 && rest->array()[0].iov_len >= layout_.reference_min;
  return is_long || of_device_ ? put_long(rest, taken) : put_bytes(rest, taken);
}

Status Outlet::publish() {
  while (posted_tail_ < tail_) {
    const uint64_t offset = posted_tail_ & (layout_.ring_bytes - 1);
    const uint64_t bytes = std::min(tail_ - posted_tail_, layout_.ring_bytes - offset);
    Work work;
    work.kind = WorkKind::kWrite;
    work.local = ring_.data() + offset;
    work.bytes = uint32_t(bytes);
    work.local_key = ring_.local_key();
    work.remote = {target_.address + offset, target_.key};
    work.immediate = immediate_of(posted_tail_ + bytes);
    const Status posted = line_->post(work);
    if (!posted.ok()) return posted;
    posted_tail_ += bytes;
    session_->counts.messages.fetch_add(1, std::memory_order_relaxed);
  }
  return Status();
}

void Outlet::give_up() {
  if (pending_.region == nullptr) return;
  line_->stop();
  session_->known->let_go(pending_.region);
  given_up_ = pending_;
  pending_ = Pending();
}

Result<Carrier::Remains> Outlet::remains(uint8_t* into, size_t into_bytes, uint64_t from,
                                         uint64_t shift) {
  give_up();
  Carrier::Remains remains;
  remains.offered = given_up_.data;
  remains.offered_bytes = given_up_.bytes;
  uint64_t position = sent_bytes_;
  for (uint32_t i = 0; i < sent_count_; ++i)
    position -= sent_[(sent_first_ + i) % kRecordsMax].bytes;
  remains.acknowledged = position;
  if (sent_bytes_ - std::max(position, from) > into_bytes)
    return Status(Code::kExhausted, "an RDMA channel holds more than its session can send again");
  // The records are as they were written.
  for (uint32_t i = 0; i < sent_count_; ++i) {
    const Sent& sent = sent_[(sent_first_ + i) % kRecordsMax];
    const uint64_t in_ring = (sent.begin & (layout_.ring_bytes - 1)) + kRecordHeaderBytes;
    const uint8_t* const record = sent.block >= 0
                                      ? blocks_.data() + uint64_t(sent.block) * layout_.block_bytes
                                      : ring_.data() + in_ring;
    const uint64_t old = std::min<uint64_t>(from - std::min(from, position), sent.bytes);
    const size_t bytes = size_t(sent.bytes - old);
    const size_t at = size_t((position + old + shift) % into_bytes);
    const size_t first = std::min(bytes, into_bytes - at);
    memcpy(into + at, record + old, first);
    memcpy(into, record + old + first, bytes - first);
    position += sent.bytes;
  }
  return remains;
}

Result<int> Outlet::wait_room(const base::Deadline& deadline, int wake) {
  const uint64_t head = head_;
  for (int looks = 0;; ++looks) {
    const Status good = collect();
    if (!good.ok()) return good;
    if (head_ != head) return 1;
    if (looks < kLooks && base::usable_cpus() > 1) {
      base::cpu_pause();
      continue;
    }
    if (deadline.passed()) return 0;
    line_->arm();
    const Status again = collect();
    if (!again.ok()) return again;
    if (head_ != head) return 1;
    if (line_->sleep(wake, deadline.left_ms()))
      return Status(Code::kClosed, "the connection was closed on this side");
    if (!session_->peer_lives()) return Status(Code::kClosed, "the peer closed the connection");
  }
}

Status Outlet::look() {
  if (!lock_.try_lock()) return Status();
  const Status good = line_->closed() ? Status() : collect();
  lock_.unlock();
  return line_->closed() ? Status() : good;
}

Result<size_t> Outlet::some(Parts* rest, int timeout_ms, int wake) {
  base::Locked locked(lock_);
  return some_locked(rest, timeout_ms, wake);
}

Result<size_t> Outlet::some_of_device(uint64_t address, size_t bytes, int timeout_ms, int wake) {
  base::Locked locked(lock_);
  void* const memory = reinterpret_cast<void*>(address);
  const Region* region = layout_.blocks != 0 && session_->known != nullptr
                             ? session_->known->hold(memory, bytes)
                             : nullptr;
  if (region == nullptr)
    return Status(Code::kUnsupported, "the card of this line does not know that memory of the GPU");
  iovec part{memory, bytes};
  Parts rest(&part, 1);
  of_device_ = true;
  const Result<size_t> sent = some_locked(&rest, timeout_ms, wake);
  of_device_ = false;
  session_->known->let_go(region);
  return sent;
}

Result<size_t> Outlet::some_locked(Parts* rest, int timeout_ms, int wake) {
  const base::Deadline deadline(timeout_ms);
  const auto failed = [this](const Status& why) {
    give_up();
    return why;
  };
  if (pending_.region != nullptr && (rest->empty() || rest->array()[0].iov_base != pending_.data ||
                                     rest->array()[0].iov_len < pending_.bytes))
    return failed(line_->fail("the sender offered other bytes than before"));
  Status good = collect();
  if (!good.ok()) return failed(good);
  size_t done = 0;
  for (;;) {
    if (pending_.region != nullptr && head_ >= pending_.end) {
      session_->known->let_go(pending_.region);
      session_->counts.direct_bytes.fetch_add(pending_.bytes, std::memory_order_relaxed);
      rest->advance(pending_.bytes);
      done += pending_.bytes;
      sent_bytes_ += pending_.bytes;
      pending_ = Pending();
    }
    size_t taken = 0;
    while (pending_.region == nullptr && !rest->empty() && put(rest, &taken) == Put::kDone)
      done += taken, sent_bytes_ += taken;
    good = publish();
    if (!good.ok()) return failed(good);
    if (rest->empty() || done != 0) return done;
    Result<int> more = wait_room(deadline, wake);
    if (!more.ok()) return failed(more.status());
    if (*more == 0) return size_t(0);
  }
}

}  // namespace tendril::transport::rdma

// SPDX-License-Identifier: Apache-2.0
// See inlet.h.
#include "transport/rdma/inlet.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace tendril::transport::rdma {

using base::Code;
using base::Result;
using base::Status;

namespace {

constexpr uint32_t kLandings = 2;  // blocks of kReadBytes for reads that are copied out
// Tells the peer again after this part of the ring, and of the records.
constexpr uint64_t kTellParts = 4;
constexpr uint64_t kSuspectNs = 1'000'000'000;  // a record is there, and nobody told of it
constexpr uint32_t kRepeatSleeps = 5;           // without news, each of at most 100 ms
constexpr int kLastWordsMs = 50;                // after the connection has ended

}  // namespace

Status Inlet::open() {
  return ring_.open(session_->device.get(), layout_.ring_bytes, Rights::kPeerWrites);
}

Status Inlet::collect() {
  const Status good = line_->collect();
  uint32_t immediate;
  if (line_->take_told(&immediate)) {
    suspected_since_ns_ = 0;
    if (!widen(immediate, tail_, layout_.ring_bytes - (tail_ - head_), &tail_))
      return line_->fail("the peer told more of an RDMA ring than there is room", Code::kInvalid);
  }
  return good;
}

Result<bool> Inlet::next() {
  while (!current_ && head_ < tail_) {
    Result<Record> record = read_header(ring_.data(), layout_.ring_bytes, head_, tail_);
    if (!record.ok()) {
      (void)line_->fail(record.status().message(), record.status().code());
      return record.status();
    }
    record_ = *record;
    left_ = record_.bytes;
    current_ = true;
    if (left_ == 0) {
      const Status passed = pass_record();
      if (!passed.ok()) return passed;
    }
  }
  return current_;
}

Status Inlet::pass_record() {
  head_ += record_.ring_bytes();
  current_ = false;
  ++records_since_;
  const bool urgent = record_.kind == RecordKind::kReference;  // its sender waits
  if (!urgent && head_ - told_head_ < layout_.ring_bytes / kTellParts &&
      records_since_ < kRecordsMax / kTellParts)
    return Status();
  const Status renewed = line_->renew();
  if (!renewed.ok()) return renewed;
  Work work;
  work.kind = WorkKind::kTell;
  work.immediate = immediate_of(head_);
  const Status posted = line_->post(work);
  told_head_ = head_;
  records_since_ = sleeps_ = 0;
  session_->counts.credits.fetch_add(1, std::memory_order_relaxed);
  return posted;
}

Status Inlet::post_read(uint64_t done, void* into, uint32_t key, size_t bytes, uint64_t* id) {
  Work work;
  work.kind = WorkKind::kRead;
  work.local = into;
  work.local_key = key;
  work.bytes = uint32_t(bytes);
  work.remote = {record_.from.address + (record_.bytes - left_) + done, record_.from.key};
  session_->counts.reads.fetch_add(1, std::memory_order_relaxed);
  return line_->post(work, id);
}

Status Inlet::wait_read(uint64_t id, int wake) {
  base::Deadline deadline(session_->report_ms);
  for (uint32_t looks = 0; !line_->is_reported(id); ++looks) {
    Status good = collect();
    if (line_->is_reported(id)) return Status();
    if (good.ok() && deadline.passed())
      good = line_->fail("the RDMA connection is broken: the card reports nothing any more");
    if (good.ok() && looks > 2000) {
      line_->arm();
      good = collect();
      if (good.ok() && !line_->is_reported(id)) {
        if (line_->sleep(wake, 100))
          good = Status(Code::kClosed, "the connection was closed on this side");
        else if (!session_->peer_lives())
          good = Status(Code::kClosed, "the peer closed the connection");
      }
    }
    if (good.ok()) {
      base::cpu_pause();
      continue;
    }
    line_->stop();  // nothing may land in the caller's memory after this
    return good;
  }
  return Status();
}

Status Inlet::read_direct(uint8_t* into, size_t bytes, const Region& region, int wake) {
  uint64_t ids[kReadsAhead] = {};
  uint32_t posted = 0;
  for (size_t done = 0; done < bytes; ++posted) {
    const size_t step = std::min<size_t>(bytes - done, kReadBytes);
    uint64_t& id = ids[posted % kReadsAhead];
    Status good = wait_read(id, wake);
    if (good.ok()) good = post_read(done, into + done, region.local_key, step, &id);
    if (!good.ok()) return line_->stop(), good;
    done += step;
  }
  const Status good = wait_read(*std::max_element(ids, ids + kReadsAhead), wake);
  if (good.ok()) session_->counts.direct_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return good;
}

Status Inlet::read_through_block(uint8_t* into, size_t bytes, int wake) {
  if (!has_landing_) {
    const Status opened =
        landing_.open(session_->device.get(), uint64_t(kLandings) * kReadBytes, Rights::kNone);
    if (!opened.ok()) return line_->fail(opened.message());
    has_landing_ = true;
  }
  uint64_t ids[kLandings] = {};
  size_t posted = 0;
  uint32_t next_block = 0;
  for (size_t done = 0; done < bytes;) {
    while (posted < bytes && posted < done + size_t(kLandings) * kReadBytes) {
      const size_t step = std::min<size_t>(bytes - posted, kReadBytes);
      const Status good = post_read(posted, landing_.data() + next_block * kReadBytes,
                                    landing_.local_key(), step, &ids[next_block]);
      if (!good.ok()) return good;
      next_block = (next_block + 1) % kLandings;
      posted += step;
    }
    const size_t step = std::min<size_t>(bytes - done, kReadBytes);
    const auto block = uint32_t(done / kReadBytes % kLandings);
    const Status good = wait_read(ids[block], wake);
    if (!good.ok()) return good;
    memcpy(into + done, landing_.data() + block * kReadBytes, step);
    done += step;
  }
  session_->counts.copied_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return Status();
}

Status Inlet::take(uint8_t* into, size_t max, size_t* taken, int wake) {
  const size_t bytes = std::min<size_t>(left_, max);
  if (record_.kind == RecordKind::kBytes) {
    const uint64_t offset = (head_ & (layout_.ring_bytes - 1)) + kRecordHeaderBytes;
    memcpy(into, ring_.data() + offset + (record_.bytes - left_), bytes);
    session_->counts.copied_bytes.fetch_add(bytes, std::memory_order_relaxed);
  } else {
    const Region* region =
        session_->known != nullptr ? session_->known->hold(into, bytes) : nullptr;
    const Status read = region != nullptr ? read_direct(into, bytes, *region, wake)
                                          : read_through_block(into, bytes, wake);
    if (region != nullptr) session_->known->let_go(region);
    if (!read.ok()) return read;
  }
  *taken = bytes;
  received_ += bytes;
  left_ -= uint32_t(bytes);
  return left_ == 0 ? pass_record() : Status();
}

// Cards do not lose tellings. If one did, the stream would stand still for ever, so say it.
Status Inlet::lost_telling() {
  if (!looks_written(ring_.data(), layout_.ring_bytes, tail_)) return Status();
  const uint64_t now = base::now_ns();
  if (suspected_since_ns_ == 0) suspected_since_ns_ = now;
  if (now - suspected_since_ns_ < kSuspectNs) return Status();
  return line_->fail("the RDMA connection is broken: the card lost a completion");
}

// A peer that waits for room, or for its memory to be read, sends nothing that could ask for it.
// Once for each telling, so that there is a receive for it.
Status Inlet::repeat_credit() {
  if (told_head_ == 0 || sleeps_ > kRepeatSleeps || ++sleeps_ != kRepeatSleeps) return Status();
  Work work;
  work.kind = WorkKind::kTell;
  work.immediate = immediate_of(told_head_);
  return line_->post(work);
}

bool Inlet::lands(const uint8_t* at, size_t max) const {
  if (record_.kind != RecordKind::kReference || session_->known == nullptr) return false;
  const Region* region = session_->known->hold(at, std::min<size_t>(left_, max));
  if (region != nullptr) session_->known->let_go(region);
  return region != nullptr;
}

Result<size_t> Inlet::receive_any(uint8_t* at, size_t min, size_t max, Wait wait, int wake,
                                  bool to_device) {
  size_t got = 0;
  const base::Deadline deadline(wait.timeout_ms);
  base::Spin spin(wait.spin_us);
  for (;;) {
    const Status good = collect();
    Result<bool> there = next();
    if (!there.ok()) return there.status();
    if (*there && got < max) {
      if (to_device && !lands(at + got, max - got)) {
        if (got != 0) return got;
        return Status(Code::kUnsupported, "what comes next must be taken by a processor");
      }
      size_t taken = 0;
      const Status took = take(at + got, max - got, &taken, wake);
      if (!took.ok()) return took;
      got += taken;
      const bool more_at_hand = head_ < tail_ && got < max;
      if (got >= min && got != 0 && !more_at_hand) return got;
      spin.reset();
      continue;
    }
    if (!good.ok()) return good;
    if (line_->closed()) return Status(Code::kClosed, "the peer closed the connection");
    if (got >= min) {
      // Whoever only polls must learn of the peer's death, too.
      if (++polls_ % 4096 != 0) return got;
      if (!session_->peer_lives()) return Status(Code::kClosed, "the peer closed the connection");
      const Status sent = session_->look_at_senders();
      if (sent.ok() || got != 0) return got;
      return sent;
    }
    if (spin.again()) {
      base::cpu_pause();
      continue;
    }
    if (got == 0 && deadline.passed()) return Status(Code::kTimeout, "nothing arrived in time");
    line_->arm();
    const Status again = collect();
    if (!again.ok() || head_ < tail_ || line_->closed()) continue;
    if (line_->sleep(wake, got == 0 ? deadline.left_ms() : -1))
      return Status(Code::kClosed, "the connection was closed on this side");
    Status told = lost_telling();
    if (told.ok()) told = repeat_credit();
    if (!told.ok()) return told;
    const Status sent = session_->look_at_senders();
    if (!sent.ok()) return sent;
    if (session_->peer_lives()) continue;
    // What the peer has sent before its end may still be on the way.
    base::Deadline last_words(kLastWordsMs);
    while (collect().ok() && head_ == tail_ && !line_->closed() && !last_words.passed())
      base::cpu_pause();
    if (head_ == tail_) return Status(Code::kClosed, "the peer closed the connection");
  }
}

}  // namespace tendril::transport::rdma

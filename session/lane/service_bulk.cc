// SPDX-License-Identifier: Apache-2.0
// Bulk transfers on the worker's side. One receiver thread per bulk channel puts chunks into slots.
// `take` hands them out. The slots are all the memory that is used.
//
// Grants prevent deadlock. A client sends at most `eager_max_` chunks of transfers that nobody has
// taken yet. That many slots are always kept for them. Every other chunk belongs to a transfer that
// is being taken, which frees slots again.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "session/lane/service_impl.h"

namespace tendril::session {

using base::Code;
using base::Locked;
using base::Result;
using base::Status;

namespace {
constexpr uint32_t kTransfersMax = 1u << 16;  // at one time; honest clients have a handful
constexpr uint32_t kReceiverSpinUs = 20;
// For data that come before their call: about what a chunk takes on a fast network.
constexpr uint64_t kAimNs = 100'000;
constexpr const char* kDoesNotFit = "a bulk transfer does not fit the call that announced it";
}  // namespace

ServiceImpl::Transfer* ServiceImpl::transfer(uint64_t id, bool make) {
  Transfer* found = transfers_;
  while (found != nullptr && found->id != id) found = found->next;
  if (found != nullptr || !make || transfer_count_ >= kTransfersMax) return found;
  found = new Transfer;
  found->id = id;
  found->next = transfers_;
  transfers_ = found;
  ++transfer_count_;
  return found;
}

void ServiceImpl::drop_if_done(Transfer* done) {
  uint32_t over = done->discarded ? done->arrived : done->handed;
  if (done->pieces == 0 || over < done->pieces) return;
  for (Transfer** link = &transfers_; *link != nullptr; link = &(*link)->next) {
    if (*link != done) continue;
    *link = done->next;
    --transfer_count_;
    delete done;
    return;
  }
}

void ServiceImpl::free_slot(uint32_t slot) { free_slots_.push_back(slot); }

bool ServiceImpl::grant(Transfer* granted) {
  if (granted->granted) return false;
  granted->granted = true;
  eager_parked_ -= granted->eager;
  granted->eager = 0;
  return true;
}

void ServiceImpl::tell_grant(uint64_t id, uint64_t chunks) {
  wire::GrantBody body{id, chunks};
  push(wire::FrameKind::kGrant, 0, &body, sizeof body);
}

void ServiceImpl::take_slot(Transfer* of, const wire::ChunkHeader& chunk, bool eager,
                            Place* place) {
  place->slot = free_slots_.back();
  place->at = slot_memory(place->slot);
  free_slots_.pop_back();
  ++of->arrived;
  const bool is_aimed = of->device != 0 && chunk.offset <= of->device_bytes &&
                        chunk.bytes <= of->device_bytes - chunk.offset;
  if (is_aimed) {
    ++of->writers;
    place->device = of->device + chunk.offset;
  }
  if (eager) {
    ++of->eager;
    ++eager_parked_;
  }
}

void ServiceImpl::await_aim(const wire::ChunkHeader& chunk) {
  const bool waits = expects_aims_.load(std::memory_order_relaxed);
  if (!waits || (chunk.pieces & wire::kChunkEager) == 0) return;
  const uint64_t until_ns = base::now_ns() + kAimNs;
  for (uint64_t now_ns = 0; (now_ns = base::now_ns()) < until_ns;) {
    const uint32_t seen = slot_event_.read();
    {
      Locked locked(slots_lock_);
      const Transfer* of = transfer(chunk.transfer, false);
      const bool wanted = of != nullptr && (of->granted || of->device != 0 || of->discarded);
      if (wanted || ended_.load(std::memory_order_relaxed)) return;
    }
    slot_event_.wait(seen, int64_t(until_ns - now_ns) / 1000 + 1);
  }
}

// It does not wait in a session without bulk channels, because there the calling executor itself
// frees the slots.
bool ServiceImpl::admit(const wire::ChunkHeader& chunk, Place* place, const char** why) {
  const bool eager_flag = (chunk.pieces & wire::kChunkEager) != 0;
  const uint32_t pieces = chunk.pieces & ~wire::kChunkEager;
  *why = nullptr;
  if (chunk.bytes == 0 || chunk.bytes > wire::kChunkBytesMax || chunk.transfer == 0 ||
      pieces == 0) {
    *why = "a bulk chunk's header";
    return false;
  }
  for (;;) {
    uint32_t seen = slot_event_.read();
    {
      Locked locked(slots_lock_);
      if (ended_.load(std::memory_order_relaxed)) return false;
      Transfer* of = transfer(chunk.transfer, true);
      if (of == nullptr || (of->pieces != 0 && of->pieces != pieces) || of->arrived >= pieces) {
        *why = of == nullptr ? "too many bulk transfers at once"
                             : "more bulk chunks than the transfer has";
        return false;
      }
      of->pieces = pieces;
      if (of->discarded) {
        ++of->arrived;
        drop_if_done(of);
        return true;
      }
      bool eager = eager_flag && !of->granted;
      if (!of->granted && !eager_flag) {
        *why = "bulk data for a transfer that was not granted";
        return false;
      }
      if (of->into != nullptr) {
        if (!expects(of, chunk.offset, chunk.bytes)) {
          *why = kDoesNotFit;
          return false;
        }
        ++of->arrived;
        ++of->writers;
        place->at = of->into + chunk.offset;
        return true;
      }
      if (eager && eager_parked_ >= eager_max_) {
        *why = "more unannounced bulk data than was allowed";
        return false;
      }
      // Leave the slots that ungranted chunks may still claim.
      size_t keep = eager ? 0 : eager_max_ - eager_parked_;
      if (free_slots_.size() > keep || (!eager && lines_.empty() && !free_slots_.empty())) {
        take_slot(of, chunk, eager, place);
        return true;
      }
      if (lines_.empty()) {
        *why = "internal error: no slot for bulk data on the lane";
        return false;
      }
    }
    slot_event_.wait(seen, -1);
  }
}

void ServiceImpl::landed(const wire::ChunkHeader& chunk, const Place& place, bool whole,
                         uint32_t placed) {
  {
    Locked locked(slots_lock_);
    Transfer* of = transfer(chunk.transfer, false);
    if (place.device != 0 && of != nullptr) --of->writers;
    if (place.slot == Place::kTakers) {
      --of->writers;  // it is there until take_into returns
      if (whole) ++of->handed;
    } else if (of == nullptr || of->discarded || !whole) {
      free_slot(place.slot);
      if (of != nullptr) drop_if_done(of);
    } else {
      of->ready.push_back({place.at, chunk.offset, chunk.bytes, place.slot, placed});
    }
  }
  piece_event_.signal();
  slot_event_.signal();
}

// As much of the chunk as cards put there by themselves. A failure meets whoever takes the rest.
uint32_t ServiceImpl::put_on_device(transport::Channel* channel, const wire::ChunkHeader& chunk,
                                    uint64_t device) {
  uint32_t placed = 0;
  while (placed < chunk.bytes) {
    Result<size_t> moved = channel->receive_to_device(device + placed, chunk.bytes - placed);
    if (!moved.ok() || *moved == 0) break;
    placed += uint32_t(*moved);
  }
  counts_->device_bytes_in.fetch_add(placed, std::memory_order_relaxed);
  return placed;
}

bool ServiceImpl::receive_chunk(transport::Channel* channel, uint8_t* scratch) {
  wire::ChunkHeader chunk;
  uint32_t spin = base::usable_cpus() > 1 ? kReceiverSpinUs : 0;
  Result<size_t> got = channel->receive(&chunk, sizeof chunk, sizeof chunk, {spin, -1});
  if (got.ok()) {
    Place place;
    const char* why = nullptr;
    await_aim(chunk);
    if (!admit(chunk, &place, &why)) {
      if (why != nullptr) (void)malformed(why);
      return false;
    }
    counts_->bulk_bytes_in.fetch_add(chunk.bytes, std::memory_order_relaxed);
    if (place.at != nullptr) {
      const uint32_t placed = place.device != 0 ? put_on_device(channel, chunk, place.device) : 0;
      const uint32_t rest = chunk.bytes - placed;
      if (rest != 0) got = channel->receive(place.at + placed, rest, rest, {spin, -1});
      landed(chunk, place, got.ok(), placed);
    }
    for (uint32_t left = place.at == nullptr ? chunk.bytes : 0; left > 0 && got.ok();) {
      uint32_t step = std::min<uint32_t>(left, 64u << 10);
      got = channel->receive(scratch, step, step, {0, -1});
      left -= step;
    }
  }
  if (!got.ok()) finish(got.status());
  return got.ok();
}

void ServiceImpl::receiver_main(void* argument) {
  auto* line = static_cast<Line*>(argument);
  auto* scratch = static_cast<uint8_t*>(malloc(64u << 10));
  if (scratch == nullptr)
    return line->service->finish(Status(Code::kExhausted, "no memory for bulk data"));
  while (line->service->receive_chunk(line->channel.get(), scratch)) {
  }
  free(scratch);
}

// Handles a chunk that came on the lane. 1: stowed or dropped; -1: the session has ended.
int ServiceImpl::stow(const wire::CallHeader& header, const uint8_t* body, uint32_t bytes) {
  wire::ChunkHeader chunk;
  const char* why = "bulk data on the command lane";
  Place place;
  bool admitted = false;
  if (lines_.empty() && bytes >= sizeof chunk) {
    std::memcpy(&chunk, body, sizeof chunk);
    if (chunk.bytes == bytes - sizeof chunk) admitted = admit(chunk, &place, &why);
  }
  if (!admitted) {
    if (why != nullptr) (void)malformed(why);
    return -1;
  }
  if (place.at != nullptr) {
    std::memcpy(place.at, body + sizeof chunk, chunk.bytes);
    landed(chunk, place, true);
  }
  return 1;
}

// Without bulk channels: receives calls, takes one more chunk out from among them and leaves the
// others to `next`. False: the session has ended.
bool ServiceImpl::scan_lane() {
  Locked receiving(inbox_lock_);
  for (;;) {
    show_calls();
    wire::CallHeader header;
    int found = inbox_.peek(inbox_.scan_, &header);
    if (found < 0) return (void)malformed("a call's length"), false;
    if (found == 0) {
      Status failure;
      if (!receive_more({take_spin_us_, -1}, true, &failure) && !failure.ok()) return false;
      continue;
    }
    size_t at = inbox_.scan_;
    inbox_.scan_ += header.bytes;
    if ((header.flags & wire::kFlagBulkData) == 0 || (header.flags & kFlagTaken) != 0) continue;
    uint32_t bytes = header.bytes - uint32_t(sizeof header) - (header.flags & wire::kFlagPadMask);
    if (stow(header, inbox_.data_ + at + sizeof header, bytes) < 0) return false;
    header.flags |= kFlagTaken;
    std::memcpy(inbox_.data_ + at, &header, sizeof header);
    return true;
  }
}

bool ServiceImpl::take(uint64_t id, Piece* piece) {
  base::Spin spin(take_spin_us_);
  for (;;) {
    uint32_t seen = piece_event_.read();
    bool tell = false, have = false, all_here = false;
    {
      Locked locked(slots_lock_);
      if (ended_.load(std::memory_order_relaxed)) return false;
      Transfer* of = transfer(id, true);
      if (of == nullptr || of->discarded) return false;
      tell = grant(of);
      all_here = of->pieces != 0 && of->arrived == of->pieces;
      have = !of->ready.empty();
      if (have) {
        *piece = of->ready.back();
        of->ready.pop_back();
        ++of->handed;
        drop_if_done(of);
      }
    }
    if (tell) tell_grant(id, 0);
    if (!have || (tell && !all_here)) flush();
    if (tell) slot_event_.signal();
    if (have) return true;
    if (lines_.empty()) {
      if (!scan_lane()) return false;
      continue;
    }
    if (spin.again()) {
      for (int i = 0; i < 32 && piece_event_.read() == seen; ++i) base::cpu_pause();
    } else {
      piece_event_.wait(seen, -1);
    }
  }
}

bool ServiceImpl::expects(Transfer* of, uint64_t offset, uint64_t bytes) {
  if (offset > of->into_bytes || bytes > of->into_bytes - offset || bytes > of->expected)
    return false;
  of->expected -= bytes;
  return true;
}

// False: it does not fit.
bool ServiceImpl::copy_piece(Transfer* of, const Piece& piece) {
  bool fits;
  {
    Locked locked(slots_lock_);
    fits = expects(of, piece.offset, piece.bytes);
  }
  if (fits) std::memcpy(of->into + piece.offset, piece.data, piece.bytes);
  release(piece);
  Locked locked(slots_lock_);
  ++of->handed;
  return fits;
}

bool ServiceImpl::take_into(uint64_t id, void* into, uint64_t bytes) {
  if (bytes == 0) return true;
  Transfer* of;
  {
    Locked locked(slots_lock_);
    of = ended_.load(std::memory_order_relaxed) ? nullptr : transfer(id, true);
    if (of == nullptr || of->discarded) return false;
    of->into = static_cast<uint8_t*>(into);
    of->into_bytes = of->expected = bytes;
    if (!grant(of)) of = nullptr;
  }
  if (of != nullptr) tell_grant(id, 0);
  slot_event_.signal();  // who waits for a slot needs none any more
  base::Spin spin(take_spin_us_);
  for (;;) {
    const uint32_t seen = piece_event_.read();
    std::vector<Piece> pieces;
    {
      Locked locked(slots_lock_);
      of = transfer(id, false);  // nobody else ends it
      pieces.swap(of->ready);
      const bool ended = ended_.load(std::memory_order_relaxed);
      const bool complete = of->pieces != 0 && of->handed == of->pieces;
      if ((ended || complete) && of->writers == 0) {
        const bool all = !ended && of->expected == 0;
        of->into = nullptr;
        drop_if_done(of);
        if (all || ended) return all;
        break;
      }
    }
    bool fits = true;
    for (const Piece& piece : pieces) fits = copy_piece(of, piece) && fits;
    if (!fits) (void)malformed(kDoesNotFit);
    if (!pieces.empty()) continue;
    flush();
    if (lines_.empty()) {
      if (!scan_lane()) return false;
    } else if (spin.again()) {
      for (int i = 0; i < 32 && piece_event_.read() == seen; ++i) base::cpu_pause();
    } else {
      piece_event_.wait(seen, -1);
    }
  }
  (void)malformed(kDoesNotFit);
  return false;
}

void ServiceImpl::aim(uint64_t id, uint64_t address, uint64_t bytes) {
  {
    Locked locked(slots_lock_);
    Transfer* of = ended_.load(std::memory_order_relaxed) ? nullptr : transfer(id, true);
    if (of == nullptr || of->discarded) return;
    of->device = address;
    of->device_bytes = bytes;
  }
  slot_event_.signal();
}

void ServiceImpl::unaim(uint64_t id) {
  for (;;) {
    const uint32_t seen = piece_event_.read();
    {
      Locked locked(slots_lock_);
      Transfer* of = transfer(id, false);
      if (of == nullptr) return;
      of->device = 0;
      if (of->writers == 0) return;
    }
    piece_event_.wait(seen, -1);
  }
}

void ServiceImpl::release(const Piece& piece) {
  {
    Locked locked(slots_lock_);
    free_slot(piece.slot);
  }
  slot_event_.signal();
}

void ServiceImpl::discard(uint64_t id) {
  bool tell = false;
  {
    Locked locked(slots_lock_);
    if (ended_.load(std::memory_order_relaxed)) return;
    Transfer* of = transfer(id, true);
    if (of == nullptr) return;
    tell = grant(of);
    of->discarded = true;
    for (const Piece& piece : of->ready) free_slot(piece.slot);
    of->ready.clear();
    drop_if_done(of);
  }
  slot_event_.signal();
  if (tell) tell_grant(id, 0);
  flush();
}

bool ServiceImpl::send_bulk(uint64_t id, uint64_t offset, const void* data, uint64_t bytes) {
  if (ended_.load(std::memory_order_acquire)) return false;
  const auto* from = static_cast<const uint8_t*>(data);
  ChunkPlan plan = plan_chunks(bytes, lines_.size());
  if (!lines_.empty()) {
    plan.pieces = 0;
    // Counted before the client can have the bytes and look at the counts.
    counts_->bulk_bytes_out.fetch_add(bytes, std::memory_order_relaxed);
    Status sent = striper_.send(id, from, 0, bytes, plan, offset);
    if (!sent.ok()) finish(sent);
    return sent.ok();
  }
  for (uint64_t at = 0; at < bytes; at += plan.chunk_bytes) {
    uint32_t step = uint32_t(std::min<uint64_t>(plan.chunk_bytes, bytes - at));
    wire::ChunkHeader chunk{id, offset + at, step, 0};
    Part parts[2] = {{&chunk, sizeof chunk}, {from + at, step}};
    frame(wire::FrameKind::kBulkData, 0, 0, parts, 2);
  }
  return !ended_.load(std::memory_order_acquire);
}

bool ServiceImpl::send_device_bulk(uint64_t id, uint64_t offset, uint64_t address, uint64_t bytes,
                                   DeviceReader* reader) {
  if (ended_.load(std::memory_order_acquire) || lines_.empty()) return false;
  ChunkPlan plan = plan_chunks(bytes, lines_.size());
  plan.pieces = 0;
  counts_->bulk_bytes_out.fetch_add(bytes, std::memory_order_relaxed);
  DeviceSource source{reader, {0}, {false}};
  const Status sent =
      striper_.send(id, reinterpret_cast<const uint8_t*>(address), 0, bytes, plan, offset, &source);
  counts_->device_bytes_out.fetch_add(source.by_cards, std::memory_order_relaxed);
  if (!sent.ok()) finish(sent);
  return sent.ok() && !source.failed;
}

}  // namespace tendril::session

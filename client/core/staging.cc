// SPDX-License-Identifier: Apache-2.0
// See staging.h.
#include "client/core/staging.h"

#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "client/core/session.h"

namespace tendril::client::core {

Staging::Block Staging::take(Session* session, void* owner, uint64_t bytes) {
  if (bytes > kCopyMost || !session->window.valid()) return {};
  if (copies_.load(std::memory_order_relaxed) < kCopiesBefore &&
      copies_.fetch_add(1) < kCopiesBefore)
    return {};
  {
    const base::Locked held(lock_);
    if (base_ != nullptr) return take_locked(static_cast<uint32_t>((bytes + kUnit - 1) / kUnit));
    if (refused_ || making_ || !session->may_share_pages()) return {};
    making_ = true;
  }
  // Made without the lock. Other copies go another way meanwhile.
  make(session, owner);
  const base::Locked held(lock_);
  if (base_ == nullptr) return {};
  return take_locked(static_cast<uint32_t>((bytes + kUnit - 1) / kUnit));
}

Staging::Block Staging::take_locked(uint32_t units) {
  Block block;
  bool first = true;  // they usually end in the order in which they began
  drop_reads([&](const Read& read) { return first = first && is_over(read); });
  bool found = find(units, &block.first);
  if (!found || held_ + read_count_ >= kReadMost) {
    drop_reads(is_over);
    found = find(units, &block.first);
  }
  if (!found || held_ + read_count_ >= kReadMost) return {};
  block.units = units;
  block.data = base_ + block.first * kUnit;
  mark(block, true);
  ++held_;
  return block;
}

void Staging::make(Session* session, void* owner) {
  void* memory = session->share_pages(owner, kUnits * kUnit);
  const base::Locked held(lock_);
  making_ = false;
  refused_ = memory == nullptr;
  base_ = static_cast<uint8_t*>(memory);
  home_ = owner;
}

// From a certain size on, writes bypass the caches. The GPU has read these pages before, and
// fetching their lines back costs more than the write. With an H200, 64 KB take 13.3 us instead of
// 15.6, and 1 MB takes 91 us instead of 107 (tendril_driver_bench).
void Staging::fill(uint8_t* to, const void* from, uint64_t bytes) {
  const auto* source = static_cast<const uint8_t*>(from);
  uint64_t done = 0;
#if defined(__x86_64__)
  for (; bytes >= kStreamFrom && done + 64 <= bytes; done += 64) {
    for (uint64_t at = done; at < done + 64; at += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + at)));
    }
  }
  _mm_sfence();
#endif
  memcpy(to + done, source + done, bytes - done);
}

// Finds the lowest free place, because its pages are most likely in the processor's caches.
bool Staging::find(uint32_t units, uint32_t* first) const {
  uint32_t free = 0;
  for (uint32_t i = 0; i < kUnits; ++i) {
    free = taken_[i] ? 0 : free + 1;
    if (free < units) continue;
    *first = i + 1 - units;
    return true;
  }
  return false;
}

// False: the block's memory is gone with its context.
bool Staging::holds(const Block& block) const {
  return base_ != nullptr && block.data == base_ + block.first * kUnit;
}

void Staging::mark(const Block& block, bool taken) {
  memset(taken_ + block.first, taken, block.units);
}

void Staging::give_back(const Block& block) {
  const base::Locked held(lock_);
  if (!holds(block)) return;
  mark(block, false);
  --held_;
}

void Staging::give_back_after(Session* session, const Block& block, const Queue& queue) {
  const base::Locked held(lock_);
  if (!holds(block)) return;
  --held_;
  // The number is taken after the copy has been sent, as for events. So a wait that reads this
  // number comes after the copy.
  const uint64_t serial = session->serial.fetch_add(1) + 1;
  const uint64_t record_id = queue.record != nullptr ? queue.record->wire_id : 0;
  reads_[read_count_++] = {block, queue, record_id, serial};
}

bool Staging::is_over(const Read& read) {
  const Queue& queue = read.queue;
  if (read.serial <= queue.owner_done->load(std::memory_order_acquire)) return true;
  if (read.serial > queue.queue_done->load(std::memory_order_acquire)) return false;
  // The record of a destroyed queue may be reused by another queue. The id shows that.
  return queue.record == nullptr || queue.record->wire_id == read.record_id;
}

template <typename Over>
void Staging::drop_reads(Over&& over) {
  unsigned kept = 0;
  for (unsigned i = 0; i < read_count_; ++i) {
    if (over(reads_[i]))
      mark(reads_[i].block, false);
    else
      reads_[kept++] = reads_[i];
  }
  read_count_ = kept;
}

void Staging::context_ended(Session* session, const void* owner) {
  uint8_t* gone = nullptr;
  bool used = false;
  {
    const base::Locked held(lock_);
    drop_reads([owner](const Read& read) { return read.queue.owner == owner; });
    if (home_ == owner) gone = base_;
    // If other contexts or threads are in the middle of a copy, the pages stay, and nobody uses
    // them again.
    used = held_ + read_count_ != 0;
    if (gone != nullptr) {
      base_ = nullptr;
      held_ = read_count_ = 0;
      memset(taken_, 0, sizeof taken_);
    }
  }
  if (gone != nullptr && !used) session->unshare_pages(gone, kUnits * kUnit);
}

}  // namespace tendril::client::core

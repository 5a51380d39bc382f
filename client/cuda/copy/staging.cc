// SPDX-License-Identifier: Apache-2.0
// See staging.h.
#include "client/cuda/copy/staging.h"

#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "client/cuda/memory/memory.h"

namespace tendril::client::cuda {

Staging::Block Staging::take(Context* c, uint64_t bytes) {
  Block block;
  if (bytes > kCopyMost || !c->session->window.valid()) return block;
  if (copies_.load(std::memory_order_relaxed) < kCopiesBefore &&
      copies_.fetch_add(1) < kCopiesBefore)
    return block;
  const auto units = static_cast<uint32_t>((bytes + kUnit - 1) / kUnit);
  pthread_mutex_lock(&mutex_);
  if (base_ == nullptr && !refused_ && !making_) make(c);
  if (base_ != nullptr) {
    bool first = true;  // most of the time they end in the order in which they began
    drop_reads([&](const Read& read) { return first = first && is_over(read); });
    bool found = find(units, &block.first);
    if (!found || held_ + read_count_ >= kReadMost) {
      drop_reads(is_over);
      found = find(units, &block.first);
    }
    if (found && held_ + read_count_ < kReadMost) {
      block.units = units;
      block.data = base_ + block.first * kUnit;
      mark(block, true);
      ++held_;
    }
  }
  pthread_mutex_unlock(&mutex_);
  return block;
}

// Called and left with the lock, which it gives up in between: other copies go another way
// meanwhile.
void Staging::make(Context* c) {
  if (process()->open_captures.load(std::memory_order_relaxed) != 0)
    return;  // pinning is not allowed then
  making_ = true;
  pthread_mutex_unlock(&mutex_);
  void* memory = share_pages(c, kUnits * kUnit);
  pthread_mutex_lock(&mutex_);
  making_ = false;
  refused_ = memory == nullptr;
  base_ = static_cast<uint8_t*>(memory);
  home_ = c;
}

// Past the caches from a size on: the GPU has read these pages before, and to take their lines back
// costs more than the write. On an H200 64 KB get there in 13.3 us instead of 15.6, 1 MB in 91
// instead of 107 (tendril_driver_bench).
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

// The lowest place: its pages are the likeliest to be in the processor's caches.
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

// Not of memory that went with its context.
bool Staging::holds(const Block& block) const {
  return base_ != nullptr && block.data == base_ + block.first * kUnit;
}

void Staging::mark(const Block& block, bool taken) {
  memset(taken_ + block.first, taken, block.units);
}

void Staging::give_back(const Block& block) {
  pthread_mutex_lock(&mutex_);
  if (holds(block)) {
    mark(block, false);
    --held_;
  }
  pthread_mutex_unlock(&mutex_);
}

void Staging::give_back_after(const Block& block, Context* c, Stream* stream) {
  if (stream != nullptr) c = stream->context;
  pthread_mutex_lock(&mutex_);
  if (holds(block)) {
    --held_;
    // Numbered when the copy is on its way, as events are: the wait of who reads this number comes
    // after it.
    const uint64_t serial = c->session->serial.fetch_add(1) + 1;
    reads_[read_count_++] = {block, c, stream, stream != nullptr ? stream->wire_id : 0, serial};
  }
  pthread_mutex_unlock(&mutex_);
}

bool Staging::is_over(const Read& read) {
  if (read.serial <= read.context->synchronised.load(std::memory_order_acquire)) return true;
  if (read.stream == nullptr)
    return read.serial <= read.context->legacy_synchronised.load(std::memory_order_acquire);
  // The record of a destroyed stream may serve another now: the id tells.
  return read.serial <= read.stream->synchronised.load(std::memory_order_acquire) &&
         read.stream->wire_id == read.stream_id;
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

void Staging::context_ended(Context* c) {
  pthread_mutex_lock(&mutex_);
  drop_reads([c](const Read& read) { return read.context == c; });
  uint8_t* gone = home_ == c ? base_ : nullptr;
  // Where other contexts or threads are in the middle of a copy, the pages stay, and nobody uses
  // them again.
  const bool used = held_ + read_count_ != 0;
  if (gone != nullptr) {
    base_ = nullptr;
    held_ = read_count_ = 0;
    memset(taken_, 0, sizeof taken_);
  }
  pthread_mutex_unlock(&mutex_);
  if (gone != nullptr && !used) unshare_pages(c->session, nullptr, gone, kUnits * kUnit);
}

}  // namespace tendril::client::cuda

// SPDX-License-Identifier: Apache-2.0
// The client's records of what the program created, and tables that turn a handle into its record.
// They serve any API. A look-up takes no lock and never follows a program's pointer. A handle is an
// index with a generation, which is compared with the record. Records are reused, never freed. So a
// program that races against its own destroy sees a stale handle, not a crash. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "api/core/handle.h"
#include "base/lock.h"

namespace tendril::client::core {

struct Record {
  std::atomic<uint64_t> handle{0};  // what the program holds; 0 while the record is free
  uint64_t wire_id = 0;             // what the worker calls it: the handle, unless the worker chose
  uint32_t index = 0;
  uint32_t generation = 0;
};

// The records of one kind. T is a Record.
template <typename T>
class Table {
 public:
  // Makes a record with its own handle. Null: kIndexMax records are alive. `prepare(T*)` fills it
  // in before other threads can find it.
  template <typename Kind, typename Prepare>
  T* create(Kind kind, uint32_t server, Prepare&& prepare) {
    T* record = take();
    if (record == nullptr) return nullptr;
    record->generation = (record->generation + 1) & 0xffff;
    prepare(record);
    const uint64_t id = api::make_id(kind, server, record->generation, record->index);
    record->wire_id = id;
    record->handle.store(id, std::memory_order_release);
    return record;
  }

  template <typename Kind>
  T* find(Kind kind, uint64_t handle) const {
    if (api::id_kind<Kind>(handle) != kind) return nullptr;
    const uint32_t index = api::id_index(handle);
    if (index >= api::kIndexMax) return nullptr;
    Chunk* chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    T* record = &chunk->records[index % kChunk];
    return record->handle.load(std::memory_order_acquire) == handle ? record : nullptr;
  }

  // The record, alive or not, that this address lies in. Null: none. Nothing there is read.
  T* around(const void* address) const {
    const uint64_t wanted = reinterpret_cast<uint64_t>(address);
    for (const std::atomic<Chunk*>& each : chunks_) {
      Chunk* chunk = each.load(std::memory_order_acquire);
      if (chunk == nullptr) return nullptr;  // they are made in order
      const uint64_t offset = wanted - reinterpret_cast<uint64_t>(chunk->records);
      if (offset < sizeof chunk->records) return &chunk->records[offset / sizeof(T)];
    }
    return nullptr;
  }

  void destroy(T* record) {
    record->handle.store(0, std::memory_order_release);
    const base::Locked held(lock_);
    free_.push_back(record);
  }

  // Calls `visit(T*)` for every live record.
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (uint32_t index = 1; index < next_; ++index) {
      T* record = &chunks_[index / kChunk].load(std::memory_order_acquire)->records[index % kChunk];
      if (record->handle.load(std::memory_order_acquire) != 0) visit(record);
    }
  }

 private:
  static constexpr uint32_t kChunk = 256;
  struct Chunk {
    T records[kChunk];
  };

  T* take() {
    const base::Locked held(lock_);
    if (!free_.empty()) {
      T* record = free_.back();
      free_.pop_back();
      return record;
    }
    if (next_ >= api::kIndexMax) return nullptr;
    const uint32_t index = next_;
    Chunk* chunk = chunks_[index / kChunk].load(std::memory_order_relaxed);
    if (chunk == nullptr) {
      chunk = new Chunk;
      chunks_[index / kChunk].store(chunk, std::memory_order_release);
    }
    T* record = &chunk->records[index % kChunk];
    record->index = index;
    ++next_;
    return record;
  }

  base::Lock lock_;
  std::atomic<Chunk*> chunks_[api::kIndexMax / kChunk] = {};
  std::vector<T*> free_;
  uint32_t next_ = 1;  // no handle has index 0, so no handle is a small number
};

}  // namespace tendril::client::core

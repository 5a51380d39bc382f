// SPDX-License-Identifier: Apache-2.0
// The client's records of what the program created, and the tables that turn a handle back into its record. Look-ups take no lock and
// never follow a program's pointer: a handle is an index with a generation, checked against the record. Records are recycled, never
// freed, so that a program racing against its own destroy sees a stale handle, not a crash.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "api/cuda_abi.gen.h"
#include "api/handle.h"

namespace tendril::client::cuda {

using api::Kind;

class Session;
struct Context;
struct Capture;

struct Object {
  std::atomic<uint64_t> handle{0};  // what the program holds; 0 while the record is free
  uint64_t wire_id = 0;             // what the worker calls it (the handle, unless the worker chose)
  Session* session = nullptr;
  Context* context = nullptr;       // null for libraries, kernels, graphs and the like
  uint32_t index = 0;
  uint32_t generation = 0;
};

struct Stream : Object {
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  std::atomic<Capture*> capture{nullptr};
  std::atomic<uint32_t> pending_reads{0};  // asynchronous copies into host memory not yet known to be complete
};

struct Event : Object {
  unsigned flags = 0;
  std::atomic<uint64_t> recorded{0};   // session serial of the latest record; 0: never
  std::atomic<Stream*> stream{nullptr};  // where; null: legacy stream
  std::atomic<Capture*> capture{nullptr};
};

struct Library;

struct Module : Object {
  Library* library = nullptr;  // for the module inside a library
};

struct Library : Object {
  // One client library is loaded into each server where one of its kernels runs: see library.cc.
  const void* code = nullptr;
  uint64_t code_bytes = 0;
};

// What the worker told of a function; fetched once, at first use.
struct FunctionInfo {
  std::vector<uint32_t> offsets, sizes;
  uint32_t param_bytes = 0;
  int32_t attributes[32] = {};
  uint32_t attribute_count = 0;
};

// A CUfunction or a CUkernel: programs pass either to a launch.
struct Function : Object {
  Module* module = nullptr;
  Library* library = nullptr;
  std::string name;
  std::atomic<const FunctionInfo*> info{nullptr};
};

template <typename T>
class Table {
 public:
  // A fresh record with a handle of its own, or null when 16 M are alive.
  T* create(Kind kind, Session* session, Context* context, uint32_t server) {
    pthread_mutex_lock(&mutex_);
    T* record = nullptr;
    if (!free_.empty()) {
      record = free_.back();
      free_.pop_back();
    } else if (next_ < api::kIndexMax) {
      const uint32_t index = next_;
      Chunk* chunk = chunks_[index / kChunk].load(std::memory_order_relaxed);
      if (chunk == nullptr) {
        chunk = new Chunk;
        chunks_[index / kChunk].store(chunk, std::memory_order_release);
      }
      record = &chunk->records[index % kChunk];
      record->index = index;
      ++next_;
    }
    pthread_mutex_unlock(&mutex_);
    if (record == nullptr) return nullptr;
    record->generation = (record->generation + 1) & 0xffff;
    record->session = session;
    record->context = context;
    const uint64_t id = api::make_id(kind, server, record->generation, record->index);
    record->wire_id = id;
    record->handle.store(id, std::memory_order_release);
    return record;
  }

  T* find(Kind kind, uint64_t handle) const {
    if (api::id_kind(handle) != kind) return nullptr;
    const uint32_t index = api::id_index(handle);
    if (index >= api::kIndexMax) return nullptr;
    Chunk* chunk = chunks_[index / kChunk].load(std::memory_order_acquire);
    if (chunk == nullptr) return nullptr;
    T* record = &chunk->records[index % kChunk];
    return record->handle.load(std::memory_order_acquire) == handle ? record : nullptr;
  }

  void destroy(T* record) {
    record->handle.store(0, std::memory_order_release);
    pthread_mutex_lock(&mutex_);
    free_.push_back(record);
    pthread_mutex_unlock(&mutex_);
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
  mutable pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  std::atomic<Chunk*> chunks_[api::kIndexMax / kChunk] = {};
  std::vector<T*> free_;
  uint32_t next_ = 1;  // index 0 is never given, so no handle looks like a small number
};

}  // namespace tendril::client::cuda

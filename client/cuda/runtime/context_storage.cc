// SPDX-License-Identifier: Apache-2.0
// See context_storage.h. Readers look into a small cache of their thread first. It is valid until
// anything is changed.
#include "client/cuda/runtime/context_storage.h"

#include <unordered_map>

namespace tendril::client::cuda {

struct ContextStorage {
  struct Entry {
    void* value;
    StorageDestructor destructor;
  };
  struct Key {
    Context* context;
    void* key;
    bool operator==(const Key& other) const { return context == other.context && key == other.key; }
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      return reinterpret_cast<size_t>(k.context) * 31 + (reinterpret_cast<size_t>(k.key) >> 4);
    }
  };

  base::Lock lock;
  std::unordered_map<Key, Entry, KeyHash> entries;
  std::atomic<uint64_t> changes{1};  // counted after each: caches of threads are stale then
};

namespace {

struct Cached {
  Context* context;
  void* key;
  void* value;
};
constexpr unsigned kCached = 16;  // about one runtime copy per library of a large framework
struct Cache {
  uint64_t changes;
  unsigned next;
  Cached entries[kCached];
};
constinit thread_local Cache t_cache{};

// 0 and -1 name the current context.
Context* context_named(CUcontext handle) {
  const uint64_t value = handle_value(handle);
  if (value == 0 || value == ~uint64_t{0}) return current_context();
  return process()->contexts.find(Kind::kContext, value);
}

}  // namespace

CUresult storage_get(void** value, CUcontext context, void* key) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Context* c = context_named(context);
  if (c == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Cache& cache = t_cache;
  ContextStorage& storage = process()->context_storage.get();
  const uint64_t changes = storage.changes.load(std::memory_order_acquire);
  if (cache.changes == changes) {
    for (const Cached& entry : cache.entries) {
      if (entry.context == c && entry.key == key) {
        *value = entry.value;
        return CUDA_SUCCESS;
      }
    }
  } else {
    cache = Cache{};
    cache.changes = changes;
  }
  {
    const base::Locked held(storage.lock);
    const auto found = storage.entries.find({c, key});
    if (found == storage.entries.end()) return CUDA_ERROR_INVALID_HANDLE;
    *value = found->second.value;
  }
  cache.entries[cache.next++ % kCached] = {c, key, *value};
  return CUDA_SUCCESS;
}

CUresult storage_put(CUcontext context, void* key, void* value, StorageDestructor destructor) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Context* c = context_named(context);
  if (c == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  ContextStorage& storage = process()->context_storage.get();
  const base::Locked held(storage.lock);
  storage.entries[{c, key}] = {value, destructor};
  storage.changes.fetch_add(1, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult storage_delete(CUcontext context, void* key) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Context* c = context_named(context);
  if (c == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  ContextStorage& storage = process()->context_storage.get();
  const base::Locked held(storage.lock);
  const bool found = storage.entries.erase({c, key}) != 0;
  storage.changes.fetch_add(1, std::memory_order_release);
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

namespace {

std::vector<std::pair<void*, ContextStorage::Entry>> take_entries_of(Context* context) {
  std::vector<std::pair<void*, ContextStorage::Entry>> dying;
  ContextStorage& storage = process()->context_storage.get();
  const base::Locked held(storage.lock);
  for (auto it = storage.entries.begin(); it != storage.entries.end();) {
    if (it->first.context == context) {
      dying.emplace_back(it->first.key, it->second);
      it = storage.entries.erase(it);
    } else {
      ++it;
    }
  }
  storage.changes.fetch_add(1, std::memory_order_release);
  return dying;
}

}  // namespace

void storage_end(Context* context) {
  // Without the lock: destructors come back to us.
  for (const auto& [key, entry] : take_entries_of(context)) {
    if (entry.destructor != nullptr)
      entry.destructor(handle_cast<CUcontext>(context), key, entry.value);
  }
}

}  // namespace tendril::client::cuda

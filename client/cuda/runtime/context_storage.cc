// SPDX-License-Identifier: Apache-2.0
// See context_storage.h. Readers look into a small cache of their thread first, valid while nothing
// anywhere was changed.
#include "client/cuda/runtime/context_storage.h"

#include <unordered_map>

namespace tendril::client::cuda {
namespace {

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

struct Storage {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  std::unordered_map<Key, Entry, KeyHash> entries;
};

Storage* storage() {
  static Storage* only = new Storage;
  return only;
}

std::atomic<uint64_t> g_changes{1};

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
  const uint64_t changes = g_changes.load(std::memory_order_acquire);
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
  Storage* s = storage();
  pthread_mutex_lock(&s->mutex);
  auto it = s->entries.find({c, key});
  const bool found = it != s->entries.end();
  if (found) *value = it->second.value;
  pthread_mutex_unlock(&s->mutex);
  if (!found) return CUDA_ERROR_INVALID_HANDLE;
  cache.entries[cache.next++ % kCached] = {c, key, *value};
  return CUDA_SUCCESS;
}

CUresult storage_put(CUcontext context, void* key, void* value, StorageDestructor destructor) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Context* c = context_named(context);
  if (c == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Storage* s = storage();
  pthread_mutex_lock(&s->mutex);
  s->entries[{c, key}] = {value, destructor};
  pthread_mutex_unlock(&s->mutex);
  g_changes.fetch_add(1, std::memory_order_release);
  return CUDA_SUCCESS;
}

CUresult storage_delete(CUcontext context, void* key) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  Context* c = context_named(context);
  if (c == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  Storage* s = storage();
  pthread_mutex_lock(&s->mutex);
  const bool found = s->entries.erase({c, key}) != 0;
  pthread_mutex_unlock(&s->mutex);
  g_changes.fetch_add(1, std::memory_order_release);
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void storage_end(Context* context) {
  Storage* s = storage();
  std::vector<std::pair<void*, Entry>> dying;
  pthread_mutex_lock(&s->mutex);
  for (auto it = s->entries.begin(); it != s->entries.end();) {
    if (it->first.context == context) {
      dying.emplace_back(it->first.key, it->second);
      it = s->entries.erase(it);
    } else {
      ++it;
    }
  }
  pthread_mutex_unlock(&s->mutex);
  g_changes.fetch_add(1, std::memory_order_release);
  // Without the lock: destructors come back to us.
  for (const auto& [key, entry] : dying) {
    if (entry.destructor != nullptr)
      entry.destructor(handle_cast<CUcontext>(context), key, entry.value);
  }
}

}  // namespace tendril::client::cuda

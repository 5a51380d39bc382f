// SPDX-License-Identifier: Apache-2.0
// See mirror.h. Both ends keep a shadow: the contents that both agreed on last. What differs from it is what this side wrote, word by
// word, so that program and GPU may write neighbouring words of a page. Finding the differences costs a comparison of the whole range;
// tracking by page faults comes with the frameworks' work (docs/decisions/0004-mirrored-host-memory.md).
#include "client/cuda/mirror.h"

#include <string.h>
#include <sys/mman.h>

#include <map>

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

std::atomic<uint32_t> g_mirrors{0};

namespace {

constexpr uint64_t kRun = 32u << 10;  // bytes per push

struct Mirror {
  Session* session = nullptr;
  uint64_t base = 0, bytes = 0;
  uint8_t* shadow = nullptr;
};

struct Mirrors {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  std::map<uint64_t, Mirror> all;
};

Mirrors* mirrors() {
  static Mirrors* only = new Mirrors;
  return only;
}

void push_run(const Mirror& m, Context* c, uint64_t offset, uint64_t bytes) {
  uint8_t* memory = reinterpret_cast<uint8_t*>(m.base) + offset;
  memcpy(m.shadow + offset, memory, bytes);
  wire::cuda::mirror_push_request request;
  request.address = m.base + offset;
  request.data = {m.shadow + offset, bytes};  // the shadow: the program may go on writing
  m.session->enqueue(c, request);
}

// A page from the GPU: words that differ from the shadow were written there.
void merge(const Mirror& m, uint64_t offset, const uint8_t* from, uint64_t bytes) {
  uint8_t* memory = reinterpret_cast<uint8_t*>(m.base) + offset;
  uint8_t* shadow = m.shadow + offset;
  for (uint64_t i = 0; i < bytes; ++i) {
    if (from[i] == shadow[i]) continue;
    memory[i] = from[i];
    shadow[i] = from[i];
  }
}

}  // namespace

CUresult mirror_create(Session* session, Context* context, uint64_t base, uint64_t bytes) {
  wire::cuda::mirror_create_request m;
  wire::cuda::mirror_create_reply r;
  m.address = base;
  m.bytes = bytes;
  Mirrors* set = mirrors();
  pthread_mutex_lock(&set->mutex);
  const bool known = set->all.count(base) != 0;
  pthread_mutex_unlock(&set->mutex);
  if (known) return CUDA_SUCCESS;
  TENDRIL_TRY(session->call(context, m, r));
  void* shadow = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (shadow == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  pthread_mutex_lock(&set->mutex);
  set->all[base] = {session, base, bytes, static_cast<uint8_t*>(shadow)};
  g_mirrors.store(static_cast<uint32_t>(set->all.size()));
  pthread_mutex_unlock(&set->mutex);
  return CUDA_SUCCESS;
}

void mirror_forget(Session* session, Context* context, uint64_t base) {
  Mirrors* set = mirrors();
  pthread_mutex_lock(&set->mutex);
  auto it = set->all.find(base);
  if (it != set->all.end()) {
    munmap(it->second.shadow, it->second.bytes);
    set->all.erase(it);
    g_mirrors.store(static_cast<uint32_t>(set->all.size()));
    wire::cuda::mirror_destroy_request m;
    m.address = base;
    session->enqueue(context, m);
  }
  pthread_mutex_unlock(&set->mutex);
}

void mirror_push_all(Session* session, Context* context) {
  Mirrors* set = mirrors();
  pthread_mutex_lock(&set->mutex);
  for (const auto& entry : set->all) {
    const Mirror& m = entry.second;
    if (m.session != session) continue;
    for (uint64_t at = 0; at < m.bytes; at += kRun) {
      const uint64_t bytes = m.bytes - at < kRun ? m.bytes - at : kRun;
      if (memcmp(reinterpret_cast<const void*>(m.base + at), m.shadow + at, bytes) != 0) push_run(m, context, at, bytes);
    }
  }
  pthread_mutex_unlock(&set->mutex);
}

void mirror_fetch_all(Session* session, Context* context) {
  Mirrors* set = mirrors();
  pthread_mutex_lock(&set->mutex);
  for (const auto& entry : set->all) {
    const Mirror& m = entry.second;
    if (m.session != session) continue;
    for (bool more = true; more;) {
      wire::cuda::mirror_fetch_request request;
      wire::cuda::mirror_fetch_reply r;
      request.address = m.base;
      if (session->call(static_cast<const Context*>(context), request, r) != CUDA_SUCCESS) break;
      uint64_t used = 0;
      for (uint64_t i = 0; i + 1 < r.offsets.count; i += 2) {
        const uint64_t offset = r.offsets[i], bytes = r.offsets[i + 1];
        if (offset > m.bytes || bytes > m.bytes - offset || bytes > r.data.count - used) break;
        merge(m, offset, r.data.data + used, bytes);
        used += bytes;
      }
      more = r.more != 0;
    }
  }
  pthread_mutex_unlock(&set->mutex);
}

}  // namespace tendril::client::cuda

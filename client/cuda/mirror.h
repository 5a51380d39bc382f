// SPDX-License-Identifier: Apache-2.0
// Host memory that kernels use through its own address (mapped pinned memory, managed memory). The worker keeps a copy at the same
// address; pages the program wrote are pushed before work that may read them, and fetched after waits, since the GPU may have written.
// While nothing is mirrored every hook here costs one load.
#pragma once

#include <atomic>

#include "client/cuda/state.h"

namespace tendril::client::cuda {

extern std::atomic<uint32_t> g_mirrors;

// The worker gets its copy of the pinned or registered range at `base`. Idempotent.
CUresult mirror_create(Session* session, Context* context, uint64_t base, uint64_t bytes);
void mirror_forget(Session* session, Context* context, uint64_t base);

void mirror_push_all(Session* session, Context* context);
void mirror_fetch_all(Session* session, Context* context);

// Before enqueuing work that may read host memory; after a wait for work that may have written it.
inline void mirror_before_work(Session* session, Context* context) {
  if (__builtin_expect(g_mirrors.load(std::memory_order_relaxed) != 0, 0)) mirror_push_all(session, context);
}
inline void mirror_after_wait(Session* session, Context* context) {
  if (__builtin_expect(g_mirrors.load(std::memory_order_relaxed) != 0, 0)) mirror_fetch_all(session, context);
}

}  // namespace tendril::client::cuda

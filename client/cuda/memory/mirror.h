// SPDX-License-Identifier: Apache-2.0
// Host memory that GPUs use at its own address (mapped pinned memory, managed memory, the host ends
// of copies in graphs). The worker keeps a copy at the same address. What the program wrote is
// pushed before work that may read it; a single word is pushed before waits too. What the GPU wrote
// is fetched after waits. While nothing is mirrored, every hook here costs one load.
#pragma once

#include <atomic>
#include <cstdint>

#include "client/cuda/state.h"

namespace tendril::client::cuda {

// What a mirror is for. Memory that only graphs use is compared when a graph is launched, not at
// every kernel.
enum : uint32_t { kMirrorKernels = 1, kMirrorGraphReads = 2, kMirrorGraphWrites = 4 };

// The worker gets its copy of the pinned, registered or managed range at `base`. Idempotent.
CUresult mirror_create(Session* session, Context* context, uint64_t base, uint64_t bytes,
                       uint32_t uses);
// The same for the host memory that a copy node names. Pageable memory gets a copy too. Only nodes
// reach that copy. It is dropped after the program has unmapped the memory.
CUresult mirror_for_node(Session* session, Context* context, uint64_t address, uint64_t bytes,
                         uint32_t use);
// Has any server a copy of the range at `base`?
bool mirror_known(uint64_t base);
// Drops every server's copy of the range at `base`.
void mirror_forget(Context* context, uint64_t base);

void mirror_push_all(Session* session, Context* context, bool graphs);
void mirror_fetch_all(Session* session, Context* context);
// The same, but only if the worker has reported something to fetch. It reports before the answer to
// each wait that covers a GPU's writes. What another thread is fetching has arrived when this
// returns.
void mirror_fetch_told(Session* session, Context* context);
// An asynchronous copy to the device is about to read the mirrored range at `base`. True: when this
// returns, the worker's copy of it has what the program wrote. So the worker copies from there, in
// its stream, behind what kernels write there. A range that such copies read again and again is a
// staging buffer, and the launch that named it passed an old address by chance, in bytes that
// nobody set. From then on only launches that name it have it compared.
bool mirror_as_source(Session* session, Context* context, uint64_t base);
// A launch names the mirrored range at `base`.
void mirror_named(Session* session, Context* context, uint64_t base);
// Calls `visit(base, bytes)` for every mirror of `session` that graphs write.
void mirror_graph_writes(Session* session,
                         void (*visit)(void* state, uint64_t base, uint64_t bytes), void* state);

// Before enqueuing work that may read host memory; after a wait for work that may have written it.
inline void mirror_before_work(Session* session, Context* context) {
  if (__builtin_expect(process()->kernel_mirrors.load(std::memory_order_relaxed) != 0, 0))
    mirror_push_all(session, context, false);
}
inline void mirror_before_graph(Session* session, Context* context) {
  const uint32_t any = process()->kernel_mirrors.load(std::memory_order_relaxed) +
                       process()->graph_mirrors.load(std::memory_order_relaxed);
  if (__builtin_expect(any != 0, 0)) mirror_push_all(session, context, true);
}
// Call it before a query or a wait. A running kernel may poll for a word that the program has
// written, and gets it so. If the program wrote several words, none is sent before the next work,
// because the kernel could see them in another order.
void mirror_push_word(Session* session, Context* context);
inline void mirror_before_wait(Session* session, Context* context) {
  if (__builtin_expect(process()->kernel_mirrors.load(std::memory_order_relaxed) != 0, 0))
    mirror_push_word(session, context);
}
inline void mirror_after_wait(Session* session, Context* context) {
  if (__builtin_expect(process()->written_mirrors.load(std::memory_order_relaxed) != 0, 0))
    mirror_fetch_told(session, context);
}

}  // namespace tendril::client::cuda

// SPDX-License-Identifier: Apache-2.0
// See mirror.h. Both ends keep a shadow: the contents that both agreed on last. What differs from
// it is what this side wrote, word by word, so that program and GPU may write neighbouring words of
// a page. Finding the differences costs a comparison of the whole range
// (docs/decisions/0004-mirrored-host-memory.md).
#include "client/cuda/memory/mirror.h"

#include <string.h>
#include <sys/mman.h>

#include <iterator>
#include <map>
#include <utility>

#include "client/common/log.h"
#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

struct Mirror {
  Session* session = nullptr;
  uint64_t base = 0, bytes = 0;
  uint8_t* shadow = nullptr;
  uint32_t uses = 0;
  bool pageable = false;  // no call tells when it goes away
  uint32_t copies = 0;    // to the device, from here
  bool is_staging() const { return copies >= kStagingCopies; }
  static constexpr uint32_t kStagingCopies = 3;
};

struct Mirrors {
  base::Lock lock;
  std::map<std::pair<uint64_t, Session*>, Mirror> all;
};

namespace {

constexpr uint64_t kRun = 32u << 10;  // bytes per push
constexpr uint64_t kWord = 8;         // what a GPU sees whole
constexpr uint32_t kWritten = kMirrorKernels | kMirrorGraphWrites;

Mirrors* mirrors() { return &process()->mirrors.get(); }

// Caller holds the lock.
void count(const Mirrors& set) {
  uint32_t kernels = 0, graphs = 0, written = 0;
  for (const auto& entry : set.all) {
    const uint32_t uses = entry.second.uses;
    ((uses & kMirrorKernels) != 0 && !entry.second.is_staging() ? kernels : graphs) += 1;
    written += (uses & kWritten) != 0;
  }
  Process* program = process();
  program->kernel_mirrors.store(kernels);
  program->graph_mirrors.store(graphs);
  program->written_mirrors.store(written);
}

// Pages of a stack or heap also hold what the address sanitizer puts between the program's
// variables.
#if defined(__SANITIZE_ADDRESS__)
#define TENDRIL_WHOLE_PAGES __attribute__((no_sanitize("address")))
TENDRIL_WHOLE_PAGES bool pages_differ(const volatile uint8_t* a, const uint8_t* b, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) {
    if (a[i] != b[i]) return true;
  }
  return false;
}
TENDRIL_WHOLE_PAGES void copy_pages(uint8_t* to, const volatile uint8_t* from, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; ++i) to[i] = from[i];
}
#else
#define TENDRIL_WHOLE_PAGES
bool pages_differ(const uint8_t* a, const uint8_t* b, uint64_t bytes) {
  return memcmp(a, b, bytes) != 0;
}
void copy_pages(uint8_t* to, const uint8_t* from, uint64_t bytes) { memcpy(to, from, bytes); }
#endif

// Only these three functions touch the program's memory. They run in calls of any thread, while
// other threads may be writing there. A half-written value is found again at the next call, because
// it differs from the shadow. tests/tsan_suppressions.txt names them.
bool program_memory_differs(const Mirror& mirror, uint64_t offset, uint64_t bytes) {
  return pages_differ(reinterpret_cast<const uint8_t*>(mirror.base + offset),
                      mirror.shadow + offset, bytes);
}

void program_memory_to_shadow(const Mirror& mirror, uint64_t offset, uint64_t bytes) {
  copy_pages(mirror.shadow + offset, reinterpret_cast<const uint8_t*>(mirror.base + offset), bytes);
}

// Takes a page from the GPU: words that differ from the shadow were written there. True: the
// program has written one of them too, with another value.
TENDRIL_WHOLE_PAGES
bool merge_into_program_memory(const Mirror& mirror, uint64_t offset, const uint8_t* from,
                               uint64_t bytes) {
  uint8_t* memory = reinterpret_cast<uint8_t*>(mirror.base) + offset;
  uint8_t* shadow = mirror.shadow + offset;
  bool both = false;
  for (uint64_t i = 0; i < bytes; ++i) {
    if (from[i] == shadow[i]) continue;
    both |= memory[i] != shadow[i] && memory[i] != from[i];
    memory[i] = from[i];
    shadow[i] = from[i];
  }
  return both;
}

void push_run(const Mirror& mirror, Context* context, uint64_t offset, uint64_t bytes) {
  program_memory_to_shadow(mirror, offset, bytes);
  wire::cuda::mirror_push_request request;
  request.address = mirror.base + offset;
  request.data = {mirror.shadow + offset, bytes};  // the shadow: the program may go on writing
  mirror.session->enqueue(context, request);
}

void push_changes(const Mirror& mirror, Context* context) {
  for (uint64_t at = 0; at < mirror.bytes; at += kRun) {
    const uint64_t bytes = mirror.bytes - at < kRun ? mirror.bytes - at : kRun;
    if (program_memory_differs(mirror, at, bytes)) push_run(mirror, context, at, bytes);
  }
}

// The mirror of `session` that holds all of the range, or null. Caller holds the lock.
const Mirror* holder(const Mirrors& set, Session* session, uint64_t address, uint64_t bytes) {
  for (auto it = set.all.upper_bound({address, reinterpret_cast<Session*>(UINTPTR_MAX)});
       it != set.all.begin();) {
    const Mirror& mirror = (--it)->second;
    if (mirror.session != session) continue;
    const uint64_t offset = address - mirror.base;
    return offset < mirror.bytes && bytes <= mirror.bytes - offset ? &mirror : nullptr;
  }
  return nullptr;
}

using Entry = std::map<std::pair<uint64_t, Session*>, Mirror>::iterator;

// Caller holds the lock, and counts afterwards.
Entry drop(Mirrors* set, Context* context, Entry it) {
  wire::cuda::mirror_destroy_request request;
  request.address = it->second.base;
  Session* session = it->second.session;
  session->enqueue(context != nullptr && session == context->session ? context : nullptr, request);
  munmap(it->second.shadow, it->second.bytes);
  return set->all.erase(it);
}

// A program may unmap memory that a graph names, if it does not launch the graph any more.
bool still_mapped(const Mirror& mirror) {
  const uint64_t first = mirror.base & ~uint64_t{4095};
  return msync(reinterpret_cast<void*>(first), mirror.base + mirror.bytes - first, MS_ASYNC) == 0;
}

bool overlaps(const Mirror& mirror, uint64_t base, uint64_t bytes) {
  return mirror.base < base + bytes && base < mirror.base + mirror.bytes;
}

void drop_pageable(Mirrors* set, Session* session, Context* context, uint64_t base,
                   uint64_t bytes) {
  bool dropped = false;
  for (auto it = set->all.begin(); it != set->all.end();) {
    const Mirror& mirror = it->second;
    const bool gone = mirror.session == session && mirror.pageable && overlaps(mirror, base, bytes);
    it = gone ? drop(set, context, it) : std::next(it);
    dropped |= gone;
  }
  if (dropped) count(*set);
}

// Mirrors pageable memory of a node. Several nodes may name parts of one buffer: ranges that
// overlap become one, and the contents that both ends had agreed on stay agreed.
CUresult mirror_pageable(Session* session, Context* context, uint64_t base, uint64_t bytes,
                         uint32_t use) {
  Mirrors* set = mirrors();
  if (base > UINT64_MAX - bytes) return CUDA_ERROR_INVALID_VALUE;
  uint64_t end = base + bytes;
  Mirror made = {session, 0, 0, nullptr, use, true};
  const base::Locked held(set->lock);
  for (const auto& entry :
       set->all) {  // in the order of addresses, and disjoint: one pass finds the union
    const Mirror& mirror = entry.second;
    if (mirror.session != session || !mirror.pageable || !overlaps(mirror, base, end - base))
      continue;
    base = mirror.base < base ? mirror.base : base;
    end = mirror.base + mirror.bytes > end ? mirror.base + mirror.bytes : end;
    made.uses |= mirror.uses;
  }
  made.base = base;
  made.bytes = end - base;
  const auto known = set->all.find({base, session});
  if (known != set->all.end() && known->second.bytes == made.bytes &&
      known->second.uses == made.uses) {
    return CUDA_SUCCESS;
  }
  void* shadow = mmap(nullptr, made.bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  wire::cuda::mirror_create_request request;
  wire::cuda::mirror_create_reply reply;
  request.address = made.base;
  request.bytes = made.bytes;
  request.written = (made.uses & kWritten) != 0;
  request.pageable = 1;
  CUresult result =
      shadow == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : session->call(context, request, reply);
  if (result == CUDA_SUCCESS) {
    made.shadow = static_cast<uint8_t*>(shadow);
    for (auto it = set->all.begin(); it != set->all.end();) {
      const Mirror& old = it->second;
      if (old.session != session || !old.pageable || !overlaps(old, made.base, made.bytes)) {
        ++it;
        continue;
      }
      memcpy(made.shadow + (old.base - made.base), old.shadow, old.bytes);
      munmap(old.shadow, old.bytes);
      it = set->all.erase(it);  // the worker has done the same
    }
    set->all[{made.base, session}] = made;
    count(*set);
  } else if (shadow != MAP_FAILED) {
    munmap(shadow, made.bytes);
  }
  return result;
}

// Is the range mirrored for all of these uses? If not, a mirror of pageable memory there is
// dropped.
bool is_mirrored(Session* session, Context* context, uint64_t base, uint64_t bytes, uint32_t uses) {
  Mirrors* set = mirrors();
  const base::Locked held(set->lock);
  const auto known = set->all.find({base, session});
  if (known != set->all.end() && !known->second.pageable && (known->second.uses & uses) == uses)
    return true;
  drop_pageable(set, session, context, base, bytes);  // meanwhile it was pinned or registered
  return false;
}

}  // namespace

CUresult mirror_create(Session* session, Context* context, uint64_t base, uint64_t bytes,
                       uint32_t uses) {
  if (is_mirrored(session, context, base, bytes, uses)) return CUDA_SUCCESS;
  wire::cuda::mirror_create_request request;
  wire::cuda::mirror_create_reply reply;
  request.address = base;
  request.bytes = bytes;
  request.written = (uses & kWritten) != 0;
  TENDRIL_TRY(session->call(context, request, reply));
  CUresult result = CUDA_SUCCESS;
  Mirrors* set = mirrors();
  const base::Locked held(set->lock);
  Mirror& mirror = set->all[{base, session}];
  if (mirror.shadow == nullptr) {
    void* shadow = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (shadow != MAP_FAILED)
      mirror = {session, base, bytes, static_cast<uint8_t*>(shadow), 0, false};
    else
      result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result == CUDA_SUCCESS)
    mirror.uses |= uses;
  else
    set->all.erase({base, session});
  count(*set);
  return result;
}

CUresult mirror_for_node(Session* session, Context* context, uint64_t address, uint64_t bytes,
                         uint32_t use) {
  Range range;
  if (!process()->ranges.find(address, &range))
    return mirror_pageable(session, context, address, bytes, use);
  if (!range.host()) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > range.bytes - (address - range.base)) return CUDA_ERROR_INVALID_VALUE;
  if (range.shared_with(session)) return CUDA_SUCCESS;
  return mirror_create(session, context, range.base, range.bytes, use);
}

bool mirror_known(uint64_t base) {
  Mirrors* set = mirrors();
  if (process()->kernel_mirrors.load() + process()->graph_mirrors.load() == 0) return false;
  const base::Locked held(set->lock);
  const auto found = set->all.lower_bound({base, nullptr});
  return found != set->all.end() && found->second.base == base;
}

void mirror_forget(Context* context, uint64_t base) {
  Mirrors* set = mirrors();
  if (process()->kernel_mirrors.load() + process()->graph_mirrors.load() == 0) return;
  const base::Locked held(set->lock);
  for (auto it = set->all.lower_bound({base, nullptr});
       it != set->all.end() && it->second.base == base;) {
    it = drop(set, context, it);
  }
  count(*set);
}

void mirror_push_all(Session* session, Context* context, bool graphs) {
  Mirrors* set = mirrors();
  bool dropped = false;
  const base::Locked held(set->lock);
  for (auto it = set->all.begin(); it != set->all.end();) {
    const Mirror& mirror = it->second;
    const bool kernels_reach = (mirror.uses & kMirrorKernels) != 0 && !mirror.is_staging();
    if (mirror.session != session || (!graphs && !kernels_reach)) {
      ++it;
      continue;
    }
    if (mirror.pageable && !still_mapped(mirror)) {
      it = drop(set, context, it);
      dropped = true;
      continue;
    }
    push_changes(mirror, context);
    ++it;
  }
  if (dropped) count(*set);
}

bool mirror_as_source(Session* session, Context* context, uint64_t base) {
  Mirrors* set = mirrors();
  const base::Locked held(set->lock);
  const auto found = set->all.find({base, session});
  if (found == set->all.end() || found->second.pageable) return false;
  Mirror& mirror = found->second;
  push_changes(mirror, context);
  if (!mirror.is_staging() && (++mirror.copies, mirror.is_staging())) count(*set);
  return true;
}

void mirror_named(Session* session, Context* context, uint64_t base) {
  Mirrors* set = mirrors();
  const base::Locked held(set->lock);
  const auto found = set->all.find({base, session});
  if (found != set->all.end() && found->second.is_staging()) push_changes(found->second, context);
}

namespace {

// Counts the words from `at` on that differ from the shadow, up to two. `offset` is the last one's.
unsigned changed_words(const Mirror& mirror, uint64_t at, uint64_t bytes, uint64_t* offset) {
  unsigned found = 0;
  for (const uint64_t end = at + bytes; at < end && found < 2; at += kWord) {
    const uint64_t size = end - at < kWord ? end - at : kWord;
    if (!program_memory_differs(mirror, at, size)) continue;
    *offset = at;
    ++found;
  }
  return found;
}

}  // namespace

void mirror_push_word(Session* session, Context* context) {
  Mirrors* set = mirrors();
  const Mirror* where = nullptr;
  uint64_t offset = 0;
  unsigned found = 0;
  const base::Locked held(set->lock);
  for (const auto& entry : set->all) {
    const Mirror& mirror = entry.second;
    // Words lie at multiples of their size. A mirror that begins elsewhere is not looked at.
    if (mirror.session != session || (mirror.uses & kMirrorKernels) == 0 || mirror.is_staging() ||
        mirror.base % kWord != 0)
      continue;
    for (uint64_t at = 0; at < mirror.bytes && found < 2; at += kRun) {
      const uint64_t bytes = mirror.bytes - at < kRun ? mirror.bytes - at : kRun;
      if (!program_memory_differs(mirror, at, bytes)) continue;
      const unsigned changed = changed_words(mirror, at, bytes, &offset);
      if (changed != 0)
        where = &mirror;  // none if the program has written the old value again by now
      found += changed;
    }
  }
  if (found == 1)
    push_run(*where, context, offset,
             where->bytes - offset < kWord ? where->bytes - offset : kWord);
}

namespace {

// Caller holds the lock. Returns an address that the program has written too, or 0.
uint64_t fetch_written(Mirrors* set, Session* session, Context* context) {
  uint64_t both = 0;
  for (bool more = true; more;) {
    wire::cuda::mirror_fetch_request request;
    wire::cuda::mirror_fetch_reply reply;
    if (session->call(static_cast<const Context*>(context), request, reply) != CUDA_SUCCESS) break;
    if (reply.both != 0) both = reply.both;
    uint64_t used = 0;
    for (uint64_t i = 0; i + 1 < reply.offsets.count; i += 2) {
      const uint64_t address = reply.offsets[i], bytes = reply.offsets[i + 1];
      if (bytes > reply.data.count - used) break;
      const Mirror* mirror = holder(*set, session, address, bytes);
      if (mirror != nullptr &&
          merge_into_program_memory(*mirror, address - mirror->base, reply.data.data + used, bytes))
        both = address;
      used += bytes;
    }
    more = reply.more != 0;
  }
  return both;
}

void warn_of_both(Session* session, uint64_t both) {
  static std::atomic<bool> told{false};
  if (both != 0 && !told.exchange(true)) {
    log(LogLevel::kWarning,
        "the program and a GPU of %s have both written the host memory near %p between a launch "
        "and the wait for it: "
        "over a network they cannot share it at once (atomics for the whole system included); the "
        "GPU's values stay",
        session->endpoint.c_str(), reinterpret_cast<void*>(both));
  }
}

}  // namespace

void mirror_fetch_all(Session* session, Context* context) {
  Mirrors* set = mirrors();
  uint64_t both = 0;
  {
    const base::Locked held(set->lock);
    session->gpu_wrote.store(false, std::memory_order_relaxed);
    both = fetch_written(set, session, context);
  }
  warn_of_both(session, both);
}

void mirror_fetch_told(Session* session, Context* context) {
  Mirrors* set = mirrors();
  uint64_t both = 0;
  {
    const base::Locked held(set->lock);
    if (session->gpu_wrote.exchange(false, std::memory_order_acquire))
      both = fetch_written(set, session, context);
  }
  warn_of_both(session, both);
}

void mirror_graph_writes(Session* session,
                         void (*visit)(void* state, uint64_t base, uint64_t bytes), void* state) {
  Mirrors* set = mirrors();
  const base::Locked held(set->lock);
  for (const auto& entry : set->all) {
    const Mirror& mirror = entry.second;
    if (mirror.session == session && (mirror.uses & kMirrorGraphWrites) != 0)
      visit(state, mirror.base, mirror.bytes);
  }
}

}  // namespace tendril::client::cuda

// SPDX-License-Identifier: Apache-2.0
// Contexts: creation, the current stack, ordering of the legacy stream, the sticky error,
// destruction. The calls are in context_calls.cc and primary.cc.

#include "softgpu/driver/device/context.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "softgpu/board/board.h"
#include "softgpu/driver/code/module.h"
#include "softgpu/driver/code/texture.h"
#include "softgpu/driver/config.h"
#include "softgpu/driver/device/device.h"
#include "softgpu/driver/memory/array.h"
#include "softgpu/driver/memory/card_memory.h"
#include "softgpu/driver/memory/memory_map.h"
#include "softgpu/driver/stream/clock.h"
#include "softgpu/driver/stream/device_work.h"
#include "softgpu/driver/stream/stream.h"

namespace tendril::softgpu {
namespace {

constexpr int64_t kDestroyGraceMs =
    2000;  // pending work may finish; a kernel that spins is cancelled after this time
constexpr size_t kPrintBytes =
    1u << 20;  // like the printf FIFO of a device: text is shown early when it is full
std::atomic<uint64_t> g_next_id{1};

uint64_t thread_id() {
  static thread_local uint64_t id = static_cast<uint64_t>(syscall(SYS_gettid));
  return id;
}

}  // namespace

ContextTable& contexts() {
  static auto& table = *new ContextTable;
  return table;
}

std::vector<CUcontext>& context_stack() {
  static thread_local std::vector<CUcontext> stack;
  return stack;
}

ContextPtr make_context(int device, unsigned flags, CUcontext handle) {
  const uint64_t taken = config().device[device].context_bytes;
  if (!MemoryMap::instance().charge(device, taken)) return nullptr;
  auto made = std::make_shared<Context>();
  made->taken_ = taken;
  made->device = device;
  made->flags = flags;
  made->id = g_next_id.fetch_add(1);
  made->limits[CU_LIMIT_STACK_SIZE] = 1024;
  made->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 7u << 20;
  made->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8u << 20;
  made->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
  made->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
  made->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
  made->handle = handle != nullptr ? handle : contexts().mint();
  contexts().put(made->handle, made);
  board().count_contexts(device, 1);
  Clock::instance().sleep(faults().context_ns);
  return made;
}

CUresult bare_context(ContextPtr* out) {
  auto& stack = context_stack();
  if (stack.empty() || stack.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *out = contexts().get(stack.back());
  return *out ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult usable_context(ContextPtr* out) {
  CUresult found = bare_context(out);
  if (found != CUDA_SUCCESS) return found;
  (*out)->notice_loss();
  return (*out)->error();
}

CUresult usable_context_of(CUcontext owner, ContextPtr* out) {
  auto& stack = context_stack();
  const bool any = !stack.empty() && stack.back() != nullptr;
  if (any || owner == nullptr) return usable_context(out);
  const CurrentScope scope(owner);
  return usable_context(out);
}

void Context::fail(CUresult code) {
  int none = CUDA_SUCCESS;
  // Before the error becomes visible: from then on calls answer it and never reach the place where
  // text is shown.
  flush_print();
  error_.compare_exchange_strong(none, code, std::memory_order_acq_rel);
}

void Context::notice_loss() {
  if (faults().device[device].lost) fail(CUDA_ERROR_UNKNOWN);
}

StreamPtr Context::legacy_stream() {
  std::lock_guard guard(order_);
  if (!legacy_) {
    legacy_ = std::make_shared<Stream>();
    legacy_->handle = CU_STREAM_LEGACY;
    legacy_->context = weak_from_this();
    legacy_->is_legacy = true;
    legacy_->id = 1;
  }
  return legacy_;
}

StreamPtr Context::thread_stream() {
  std::lock_guard guard(order_);
  StreamPtr& slot = per_thread_[thread_id()];
  if (!slot) {
    slot = std::make_shared<Stream>();
    slot->handle = CU_STREAM_PER_THREAD;
    slot->context = weak_from_this();
    slot->id = 2;
  }
  return slot;
}

void Context::add_stream(const StreamPtr& stream) {
  std::lock_guard guard(order_);
  streams_.push_back(stream);
}

void Context::drop_stream(const StreamPtr& stream) {
  TokenPtr last = stream->queue->last();
  auto forget = [self = shared_from_this(), stream] {
    std::lock_guard guard(self->order_);
    std::erase(self->streams_, stream);
  };
  // Work under way still counts for the legacy stream.
  if (last) {
    last->then(forget);
  } else {
    forget();
  }
}

std::vector<StreamPtr> Context::streams() {
  std::lock_guard guard(order_);
  std::vector<StreamPtr> list = streams_;
  if (legacy_) list.push_back(legacy_);
  for (const auto& [id, stream] : per_thread_) list.push_back(stream);
  return list;
}

void Context::enter_to_load() {
  std::unique_lock<std::shared_mutex> alone(loading_);
  while (held_streams != 0 && !cancel_) {
    const Clock::Pause pause;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

TokenPtr Context::submit(const StreamPtr& stream, QueuedOp op, bool inline_ok) {
  if (!Clock::is_pool_thread()) {
    const std::shared_lock<std::shared_mutex> nobody_loads(loading_);
  }
  // A driver stops whoever is too far ahead of the GPU. What the GPU itself runs is not stopped.
  while (TokenPtr full = Clock::is_pool_thread() ? nullptr : stream->queue->in_the_way())
    full->wait();
  // Running on the caller's thread happens outside of the lock. The token alone orders what comes
  // after.
  std::unique_lock guard(order_);
  auto add = [&](const StreamPtr& other) {
    if (TokenPtr last = other->queue->last()) op.after.push_back(std::move(last));
  };
  if (stream->is_legacy) {
    for (const StreamPtr& other : streams_)
      if (other->blocking()) add(other);
    for (const auto& [id, other] : per_thread_) add(other);
  } else if (stream->blocking() && legacy_) {
    add(legacy_);
  }
  std::erase_if(op.after, [](const TokenPtr& token) { return token->done(); });
  if (inline_ok && op.after.empty()) return stream->queue->push_inline(std::move(op), guard);
  return stream->queue->push(std::move(op));
}

void Context::add_pending(bool every_stream, std::vector<TokenPtr>* after) {
  for (const StreamPtr& stream : streams())
    if (every_stream || stream->blocking())
      if (TokenPtr last = stream->queue->last()) after->push_back(std::move(last));
}

void Context::follow(const TokenPtr& token, bool every_stream) {
  auto wait_for_token = [&](const StreamPtr& stream) {
    stream->queue->push({.run = [] {}, .after = {token}, .token = nullptr});
  };
  StreamPtr legacy = legacy_stream();
  std::lock_guard guard(order_);
  if (token->done()) return;
  wait_for_token(legacy);  // which blocking streams wait for
  if (!every_stream) return;
  for (const StreamPtr& stream : streams_)
    if (!stream->blocking()) wait_for_token(stream);
}

bool Context::idle() {
  for (const StreamPtr& stream : streams())
    if (!stream->queue->idle()) return false;
  return true;
}

CUresult Context::synchronise() {
  for (const StreamPtr& stream : streams())
    if (TokenPtr last = stream->queue->last()) last->wait();
  settle_pools();
  flush_print();
  return error();
}

bool Context::reserve_local(uint64_t bytes, bool exactly) {
  std::lock_guard guard(memory_);
  if (bytes <= local_bytes_ && !exactly) return true;
  const uint64_t before = local_cost(local_bytes_), after = local_cost(bytes);
  if (!change_charge(device, before, after)) return false;
  taken_ += after - before;
  local_bytes_ = bytes;
  return true;
}

bool Context::reserve_stream() {
  size_t count = 1;
  {
    std::lock_guard guard(order_);
    count += streams_.size();
  }
  std::lock_guard guard(memory_);
  if (count <= streams_most_) return true;  // drivers keep what destroyed streams had
  const uint64_t before = stream_cost(streams_most_), after = stream_cost(count);
  if (!change_charge(device, before, after)) return false;
  taken_ += after - before;
  streams_most_ = count;
  return true;
}

bool Context::reserve_graph(uint64_t bytes) {
  std::lock_guard guard(memory_);
  const uint64_t most = std::max(graph_bytes_most_, graph_bytes_ + bytes);
  const uint64_t before = graph_cost(graph_bytes_most_), after = graph_cost(most);
  if (!change_charge(device, before, after)) return false;
  taken_ += after - before;
  graph_bytes_ += bytes;
  graph_bytes_most_ = most;
  return true;
}

void Context::release_graph(uint64_t bytes) {
  std::lock_guard guard(memory_);
  graph_bytes_ -= bytes;
}

DeviceHeap* Context::heap() {
  std::lock_guard guard(lock);
  if (heap_) return heap_.get();
  const uint64_t bytes = limits[CU_LIMIT_MALLOC_HEAP_SIZE];
  // A card took 652 MiB for a limit of 512.
  const uint64_t taken = costs_as_card() ? bytes / 512 * 652 : bytes;
  const uint64_t base =
      MemoryMap::instance().allocate_device(device, taken, MemoryKind::kModule, handle);
  if (base != 0) heap_ = std::make_unique<DeviceHeap>(base, bytes);
  return heap_.get();
}

void Context::destroy() {
  destroyed_ = true;
  int64_t deadline = now_ns() + kDestroyGraceMs * 1000000;
  for (const StreamPtr& stream : streams()) {
    TokenPtr last = stream->queue->last();
    if (!last) continue;
    int64_t left = std::max<int64_t>((deadline - now_ns()) / 1000000, 0);
    if (last->wait_ms(left)) continue;
    fail(CUDA_ERROR_CONTEXT_IS_DESTROYED);  // what is still queued does nothing
    cancel_ = true;
    Clock::instance().cancel(board_key(*this));
    last->wait_ms(kDestroyGraceMs);
  }
  flush_print();
  fail(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  board().count_contexts(device, -1);
  for (auto& [handle_of, stream] : tendril::softgpu::streams().all())
    if (stream->context.lock().get() == this) tendril::softgpu::streams().remove(handle_of);
  for (auto& [handle_of, event] : events().all())
    if (event->context_handle == handle) events().remove(handle_of);
  drop_modules(handle);
  drop_arrays(handle);
  drop_images(handle);
  drop_references(handle);
  drop_linkers(handle);
  MemoryMap::instance().free_context(handle);
  std::lock_guard guard(memory_);
  MemoryMap::instance().discharge(device, taken_);
  taken_ = 0;
}

void Context::print(std::string_view text) {
  std::lock_guard guard(print_lock_);
  printed_ += text;
  if (printed_.size() < kPrintBytes) return;
  fwrite(printed_.data(), 1, printed_.size(), stdout);
  printed_.clear();
}

void Context::flush_print() {
  std::lock_guard guard(print_lock_);
  if (printed_.empty()) return;
  fwrite(printed_.data(), 1, printed_.size(), stdout);
  fflush(stdout);
  printed_.clear();
}

}  // namespace tendril::softgpu

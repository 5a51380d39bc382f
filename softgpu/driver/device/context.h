// SPDX-License-Identifier: Apache-2.0
// Contexts and the stack of them that each thread has. A context owns its streams and the sticky
// error. Work is submitted through the context, because the legacy stream orders itself against all
// its blocking streams. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <vector>

#include "api/cuda_abi.gen.h"
#include "softgpu/driver/handle.h"
#include "softgpu/driver/stream/scheduler.h"
#include "softgpu/engine.h"

namespace tendril::softgpu {

class Stream;

class Context : public std::enable_shared_from_this<Context> {
  friend std::shared_ptr<Context> make_context(int device, unsigned flags, CUcontext handle);

 public:
  CUcontext handle = nullptr;
  int device = 0;
  unsigned flags = 0;
  uint64_t id = 0;
  bool primary = false;
  unsigned attach_count = 1;
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  std::mutex lock;  // what follows
  size_t limits[CU_LIMIT_MAX] = {};
  std::set<CUcontext> peers;

  // First error of executed work; it never goes away.
  CUresult error() const { return static_cast<CUresult>(error_.load(std::memory_order_acquire)); }
  void fail(CUresult code);
  // If the knobs say that a device is lost, every context on it fails for good.
  void notice_loss();
  bool destroyed() const { return destroyed_; }
  const std::atomic<bool>* cancel() const { return &cancel_; }
  bool cancelled() const { return cancel_; }

  std::shared_ptr<Stream> legacy_stream();
  std::shared_ptr<Stream> thread_stream();
  void add_stream(const std::shared_ptr<Stream>& stream);
  void drop_stream(const std::shared_ptr<Stream>& stream);
  std::vector<std::shared_ptr<Stream>> streams();

  // Appends work to a stream, ordered by the rules of the legacy stream.
  TokenPtr submit(const std::shared_ptr<Stream>& stream, QueuedOp op, bool inline_ok = false);
  // What a copy between contexts must wait for here: pending work of the streams that the legacy
  // stream waits for, or of every stream.
  void add_pending(bool every_stream, std::vector<TokenPtr>* after);
  // Makes later work of the same streams wait for `token`.
  void follow(const TokenPtr& token, bool every_stream);
  // Code is loaded behind streams that wait for a word in memory, and meanwhile nobody else's calls
  // enter the context. An H200 does so when such a stream has the load's channel.
  void enter_to_load();
  std::atomic<unsigned> held_streams = 0;  // that wait for a word now
  // Waits for all work of all streams, then returns the sticky error.
  CUresult synchronise();
  bool idle();
  // Ends the context. Pending work gets a moment and is then cancelled. Memory and objects are
  // freed.
  void destroy();

  // Where malloc inside kernels takes memory. Made at the first launch that may need it. Null if
  // the device is full.
  DeviceHeap* heap();

  // Local memory for threads that have `bytes` each. It stays until a limit of the stack is set
  // (`exactly`). False: the device is full.
  bool reserve_local(uint64_t bytes, bool exactly = false);
  // The channel of one more stream. False: the device is full.
  bool reserve_stream();
  // What one more instance of a graph takes. When it is destroyed, that is kept for the next.
  // False: the device is full.
  bool reserve_graph(uint64_t bytes);
  void release_graph(uint64_t bytes);

  // Device printf text. Synchronisation shows it.
  void print(std::string_view text);
  void flush_print();
  // A kernel that may print has been launched. The size of its buffer cannot be changed any more.
  std::atomic<bool> may_print{false};

 private:
  std::atomic<int> error_{CUDA_SUCCESS};
  std::atomic<bool> cancel_{false};
  std::atomic<bool> destroyed_{false};
  std::shared_mutex loading_;
  std::mutex order_;  // makes "last of every stream" and "append" one step
  std::shared_ptr<Stream> legacy_;
  std::map<uint64_t, std::shared_ptr<Stream>> per_thread_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::unique_ptr<DeviceHeap> heap_;  // guarded by `lock`
  std::mutex memory_;                 // guards the next five
  uint64_t taken_ = 0;  // of the device, for the context itself, local memory, streams and graphs
  uint64_t local_bytes_ = 0;
  size_t streams_most_ = 0;
  uint64_t graph_bytes_ = 0, graph_bytes_most_ = 0;
  std::mutex print_lock_;
  std::string printed_;
};
using ContextPtr = std::shared_ptr<Context>;

using ContextTable = HandleTable<CUcontext, Context, HandleKind::kContext>;
ContextTable& contexts();

// Null: the device is full.
ContextPtr make_context(int device, unsigned flags, CUcontext handle);
// The context on top of this thread's stack and CUDA_SUCCESS, or the code to answer with. `usable`
// also reports the sticky error, as nearly every call must. `bare` is for the few calls that work
// on a failed context.
CUresult usable_context(ContextPtr* out);
// The same for calls that end something of `owner`: without a current context that one counts.
CUresult usable_context_of(CUcontext owner, ContextPtr* out);
CUresult bare_context(ContextPtr* out);
std::vector<CUcontext>& context_stack();

// Makes a context current for a scope.
class CurrentScope {
 public:
  explicit CurrentScope(CUcontext context) { context_stack().push_back(context); }
  ~CurrentScope() { context_stack().pop_back(); }
};

}  // namespace tendril::softgpu

// Used by nearly every body: the current context, or return what is wrong with it.
#define SOFT_CONTEXT(name)             \
  ::tendril::softgpu::ContextPtr name; \
  if (CUresult bad = usable_context(&name); bad != CUDA_SUCCESS) return bad
#define SOFT_CONTEXT_OF(owner, name)   \
  ::tendril::softgpu::ContextPtr name; \
  if (CUresult bad = usable_context_of(owner, &name); bad != CUDA_SUCCESS) return bad

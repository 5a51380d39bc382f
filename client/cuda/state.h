// SPDX-License-Identifier: Apache-2.0
// What the library knows of the process (sessions, devices, tables) and of the calling thread
// (context stack, default stream). There is one Process. cuInit makes it. Nothing destroys it,
// because programs call the library from their exit handlers. A forked child drops it and sends
// nothing to the servers. README.md says which locks are held across a wait for a server.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "api/cuda_abi.gen.h"
#include "api/cuda_messages.gen.h"
#include "client/core/attach.h"
#include "client/core/attachment.h"
#include "client/core/part.h"
#include "client/core/session.h"
#include "client/cuda/copy/pending_reads.h"
#include "client/cuda/memory/device_arena.h"
#include "client/cuda/memory/device_heap.h"
#include "client/cuda/memory/freed_blocks.h"
#include "client/cuda/memory/range_map.h"
#include "client/cuda/nccl/failures.h"
#include "client/cuda/object.h"
#include "client/cuda/observe/stats.h"

namespace tendril::client::cuda {

inline constexpr uint32_t kAttributesMax = 160;

struct Device {
  CUdevice ordinal = 0;  // in the program's numbering
  uint32_t slot = 0;     // in the numbering of its session
  Session* session = nullptr;
  std::string name, pci_bus_id;
  CUuuid uuid{};
  uint64_t memory_bytes = 0;
  int32_t attributes[kAttributesMax] = {};
  bool attribute_valid[kAttributesMax] = {};
  int least_priority = 0, greatest_priority = 0;
  uint64_t limits[CU_LIMIT_MAX] = {};
  Context* primary = nullptr;  // exists from the start; active while retained
  DeviceArena arena;           // addresses of its memory
  std::atomic<bool> arena_refused{false};
  base::Lock arena_lock;  // held while a thread opens it
  // Handles; 0: not asked for yet, the default one (client/cuda/memory/pool.cc).
  base::Lock pool_lock;
  base::Lock default_pool_lock;  // held while a thread asks for the default pool
  uint64_t default_pool = 0, current_pool = 0;
};

struct Context : Object {
  Device* device = nullptr;
  bool primary = false;
  std::atomic<uint32_t> retains{0};  // primary: cuDevicePrimaryCtxRetain; attach counts otherwise
  std::atomic<uint32_t> active{0};   // the worker has it
  unsigned flags = 0;
  uint64_t id = 0;             // cuCtxGetId
  std::atomic<int> sticky{0};  // an error after which the context cannot be used
  // Session serials up to which all work is known to be complete: of the context, and of its legacy
  // stream.
  std::atomic<uint64_t> synchronised{0};
  std::atomic<uint64_t> legacy_synchronised{0};
  // Session serial of the last synchronous copy that nobody waited for (finish_copy).
  std::atomic<uint64_t> copied{0};
  IdleSince idle, legacy_idle;  // all of it; its legacy stream
  Ahead legacy_ahead;
  // Counts of the session's calls: when a stream ended last (its work may go on), and before the
  // last wait for the whole context.
  std::atomic<uint64_t> stream_ended{0}, waited{0};
  uint64_t limits[CU_LIMIT_MAX] = {};
  CUfunc_cache cache_config = CU_FUNC_CACHE_PREFER_NONE;
  CUsharedconfig shared_config = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
  base::Lock lock;  // for what follows, and while a primary context is retained first
  struct ThreadStream {
    uint64_t thread;
    Stream* stream;
  };
  std::vector<ThreadStream> thread_streams;  // per-thread default streams, by thread serial
};

// What replies of this API mean (client/core/session.h).
struct Results {
  using Result = CUresult;
  static constexpr Result kSuccess = CUDA_SUCCESS;
  static constexpr Result kLost = CUDA_ERROR_DEVICE_UNAVAILABLE;
  static constexpr Result kGarbled = CUDA_ERROR_UNKNOWN;
};

// Calls that may need device memory other than that of cuMemAlloc. What the heap keeps goes back
// before them.
template <typename Request>
inline constexpr bool kTakesMemory = false;
#define TENDRIL_TAKES_MEMORY(op) \
  template <>                    \
  inline constexpr bool kTakesMemory<wire::cuda::op##_request> = true
TENDRIL_TAKES_MEMORY(memory_info);
TENDRIL_TAKES_MEMORY(vm_create);
TENDRIL_TAKES_MEMORY(array_create);
TENDRIL_TAKES_MEMORY(module_load);
TENDRIL_TAKES_MEMORY(module_global);
TENDRIL_TAKES_MEMORY(link_complete);
TENDRIL_TAKES_MEMORY(context_create);
TENDRIL_TAKES_MEMORY(context_set_limit);
TENDRIL_TAKES_MEMORY(primary_retain);
TENDRIL_TAKES_MEMORY(green_context_create);
TENDRIL_TAKES_MEMORY(graph_instantiate);
TENDRIL_TAKES_MEMORY(graph_update);
TENDRIL_TAKES_MEMORY(mirror_create);
#undef TENDRIL_TAKES_MEMORY

// One server. Calls name the context that they run in; null: none. Before its session has begun,
// only `devices` is there, and no call may be made.
class Session final : public core::Calls<Results> {
 public:
  std::vector<Device*> devices;
  std::atomic<bool> begun{false};
  int driver_version = 0;
  bool keep_ptx = false;  // the server executes PTX itself (software GPU)
  // Identifies the server whose handles are valid in this session
  // (client/cuda/memory/export_handle.cc).
  uint8_t server_id[16] = {};
  std::atomic<bool> server_known{false};
  std::atomic<bool> nccl_open{false};   // the worker has opened NCCL for it (nccl/door.cc)
  NcclFailures nccl_failures;           // that the worker has told of
  std::atomic<uint64_t> code_bytes{0};  // of images that the server's store did not have
  FreedBlocks freed;                    // blocks whose frees the worker does not know yet
  DeviceHeap heap;                      // what the program's device memory is cut from
  // Of memory/keeper.h: the worker knows that memory is kept here; others of the lease want it.
  std::atomic<bool> told_kept{false}, kept_wanted{false};
  // A GPU wrote to mirrored host memory since it was last fetched (client/cuda/memory/mirror.h).
  std::atomic<bool> gpu_wrote{false};
  // Grows with each answer, copy and callback that the program may have learnt something from.
  uint64_t told_so_far() const {
    return lane->stats().round_trips.load(std::memory_order_relaxed) +
           unasked_.load(std::memory_order_relaxed);
  }

  // Begins the session unless it has begun. Whoever comes to it by a device calls this first. What
  // lives in the session was made after it began.
  CUresult begin() {
    return __builtin_expect(begun.load(std::memory_order_acquire), 1) ? CUDA_SUCCESS
                                                                      : begin_slowly();
  }

  bool accepts_delivery(uint64_t address, uint64_t bytes) override;
  void delivered(uint64_t address, uint64_t bytes) override;
  bool awaits_callbacks() override;
  void callback(const uint8_t* body, size_t bytes) override;
  void sticky_error(int32_t result, const char* text, size_t bytes) override;
  void news(const uint8_t* body, size_t bytes) override;
  void memory_written() override {
    unasked_.fetch_add(1, std::memory_order_relaxed);
    gpu_wrote.store(true, std::memory_order_release);
  }
  void lost(const base::Status& why) override;
  bool may_share_pages() override;
  void* share_pages(void* owner, uint64_t bytes) override;
  void unshare_pages(void* pages, uint64_t bytes) override;

  // Sends a message and awaits no answer.
  template <typename Request>
  CUresult enqueue(const Context* context, const Request& request) {
    return Calls::enqueue(index_of(context), request);
  }

  // Round trip. The arrays in `reply` lie in the lane's receive buffer: use them before the
  // thread's next call. Pending frees are sent first. So a wait covers them, and a query sees them.
  template <typename Request, typename Answer>
  CUresult call(const Context* context, const Request& request, Answer& reply) {
    if (!freed.empty()) send_frees();
    return call_ahead_of_frees(context, request, reply);
  }
  // For a call whose answer does not depend on pending frees.
  template <typename Request, typename Answer>
  CUresult call_ahead_of_frees(const Context* context, const Request& request, Answer& reply) {
    if constexpr (kTakesMemory<Request>) give_up_kept();
    return Calls::call(index_of(context), request, reply);
  }
  template <typename Request, typename Answer>
  CUresult call(Context* context, const Request& request, Answer& reply) {
    const CUresult result = call(static_cast<const Context*>(context), request, reply);
    note(context, result);
    return result;
  }

  // Like call, for an answer that is only bytes. They go straight to `into`.
  template <typename Request>
  CUresult call_for_bytes(Context* context, const Request& request, void* into, uint64_t bytes) {
    if (!freed.empty()) send_frees();
    const CUresult result = Calls::call_for_bytes(index_of(context), request, into, bytes);
    note(context, result);
    return result;
  }

  // For callers that put something between the request and the wait (bulk data).
  template <typename Request>
  bool append(const Context* context, const Request& request, uint32_t reply_id) {
    return Calls::append(index_of(context), request, reply_id);
  }

  // Sends the pending frees to the worker. They may be limited to one stream and to a least size.
  void send_frees(uint64_t stream = FreedBlocks::kAnyStream, uint64_t bytes_min = 0);
  void send_free(const FreedBlock& block);
  // Gives device memory back that waits here for the next allocation. True: there was some.
  bool give_up_kept();

  // Remembers a sticky error of `context`.
  static void note(Context* context, CUresult result);
  static CUresult lost_result() { return Results::kLost; }

 private:
  std::atomic<uint64_t> unasked_{0};

  CUresult begin_slowly();
  static uint32_t index_of(const Context* context) {
    return context != nullptr ? context->index : 0;
  }
};

// Sessions that have begun, in that order. It only grows, and others may read it meanwhile.
class SessionList {
 public:
  static constexpr size_t kMost = 256;
  // One thread at a time. Not beyond kMost.
  void push_back(Session* session) {
    const size_t count = count_.load(std::memory_order_relaxed);
    all_[count] = session;
    count_.store(count + 1, std::memory_order_release);
  }
  size_t size() const { return count_.load(std::memory_order_acquire); }
  bool empty() const { return size() == 0; }
  Session* front() const { return all_[0]; }
  Session* const* begin() const { return all_; }
  Session* const* end() const { return all_ + size(); }

 private:
  Session* all_[kMost] = {};
  std::atomic<size_t> count_{0};
};

bool is_sticky(CUresult result);

struct Captures;
struct Callbacks;
struct Mirrors;
struct HeldBlocks;
struct HostPlaces;
struct Physicals;
struct OpenImports;
struct GivenOutExports;
struct RetiredInfos;
struct OccupancyAnswers;
struct LegacyLaunches;
struct Links;
struct ContextFunctionNodes;
struct KernelNodeParams;
struct LentToProgram;
struct TensorMaps;
struct ContextStorage;
struct Passages;
struct Keeper;

struct Process {
  int pid = 0;
  std::vector<Session*> servers;  // all of them, in device order; constant after cuInit
  core::Attaching* attaching = nullptr;
  base::Lock attaching_lock;     // while a session begins after cuInit
  SessionList sessions;          // of those servers where one has begun
  std::vector<Device*> devices;  // constant after cuInit
  int driver_version = 0;
  bool launch_blocking = false;  // CUDA_LAUNCH_BLOCKING: a launch returns when its kernel is over
  bool uses_passages = true;     // TENDRIL_PASSAGES
  std::atomic<uint64_t> next_buffer_id{1};
  std::atomic<uint64_t> next_context_id{1};
  std::atomic<uint64_t> next_stream_id{10};
  std::atomic<uint32_t> open_captures{0};

  // What launches and copies look at first; nearly always 0.
  std::atomic<uint32_t> kernel_mirrors{0};   // mirrors that kernels reach (memory/mirror.h)
  std::atomic<uint32_t> graph_mirrors{0};    // mirrors that only graphs reach
  std::atomic<uint32_t> written_mirrors{0};  // mirrors that a GPU may write
  std::atomic<uint32_t> pinned_ranges{0};    // host memory that a launch's parameters may point to
  // Reasons to wait for synchronous copies to the device (finish_copy). Each stays once it is true.
  std::atomic<bool> streams_apart{false};   // a stream does not wait for the legacy one
  std::atomic<bool> contexts_share{false};  // a server has several contexts of the program
  // Other processes see memory of this one, or it sees theirs.
  std::atomic<bool> memory_is_shared{false};
  PendingReads reads;

  RangeMap ranges;
  Table<Context> contexts;
  Table<Stream> streams;
  Table<Event> events;
  Table<Module> modules;
  Table<Library> libraries;
  Table<Function> functions;  // CUfunction
  Table<Function> kernels;    // CUkernel
  ExecTable execs;
  Table<Object> others[static_cast<int>(Kind::kCount)];

  // The state of single topics. The named file defines the type.
  core::Part<Captures> captures;                            // stream/capture.cc
  core::Part<Callbacks> callbacks;                          // stream/callback.cc
  core::Part<Mirrors> mirrors;                              // memory/mirror.cc
  core::Part<HeldBlocks> held_blocks;                       // memory/memory.cc
  core::Part<HostPlaces> host_places;                       // memory/host_memory.cc
  core::Part<Physicals> physicals;                          // memory/virtual_memory.cc
  core::Part<OpenImports> open_imports;                     // memory/ipc.cc
  core::Part<GivenOutExports> given_out_exports;            // memory/export_handle.cc
  core::Part<RetiredInfos> retired_infos;                   // code/function.cc
  core::Part<OccupancyAnswers> occupancy_answers;           // code/occupancy.cc
  core::Part<LegacyLaunches> legacy_launches;               // code/legacy_launch.cc
  core::Part<Links> links;                                  // code/link.cc
  core::Part<ContextFunctionNodes> context_function_nodes;  // code/library.cc
  core::Part<KernelNodeParams> kernel_node_params;          // graph/graph.cc
  core::Part<LentToProgram> lent_to_program;                // graph/graph_node.cc
  core::Part<TensorMaps> tensor_maps;                       // texture/tensor_map.cc
  core::Part<ContextStorage> context_storage;               // runtime/context_storage.cc
  core::Part<Passages> passages;                            // copy/passages.cc
  core::Part<Keeper> keeper;                                // memory/keeper.cc
};

extern constinit core::Attachment<Process> g_attachment;
// The attached process, or null before cuInit (and in a forked child).
inline Process* process() { return g_attachment.process(); }
// cuInit: attaches once. Later calls answer what the first did.
CUresult initialize();

inline constexpr uint32_t kStackMax = 64;
struct ThreadState {
  Context* stack[kStackMax];
  uint32_t depth;
  uint32_t pid;             // of the process the stack belongs to
  uint64_t serial;          // identifies the thread; 0 until asked for
  bool per_thread_default;  // inside a _ptsz/_ptds entry
  CUstreamCaptureMode capture_mode;
};
ThreadState& thread_state();
uint64_t thread_serial();

inline Context* current_context() {
  const ThreadState& thread = thread_state();
  return thread.depth != 0 ? thread.stack[thread.depth - 1] : nullptr;
}

// Sets *out to the current context, ready for use. If that fails, returns the error that CUDA
// gives: not initialised, no context, destroyed context, or the context's sticky error.
CUresult require_context(Context** out);
// The same for a call that ends something of `owner` (null: of no context). Without a current
// context, `owner` is used.
CUresult require_context_of(Context* owner, Context** out);
// The same for a context that the call names.
CUresult use_context(Context* context, Context** out);

// Turns a stream argument into a record: handle, 0 (the default stream of this entry), legacy or
// per-thread. *out is null for the legacy stream. The per-thread stream is made on first use.
CUresult require_stream(Context* context, CUstream stream, Stream** out);
// For calls that need no current context if the program created the stream. *context is the
// stream's own context, otherwise the current one.
CUresult require_stream_context(CUstream stream, Context** context, Stream** out);
inline uint64_t stream_wire_id(const Stream* stream) {
  return stream != nullptr ? stream->wire_id : api::cuda::kLegacyStream;
}

Device* device_of(CUdevice ordinal);  // null: no such device

// For calls that any server can answer: the current context's session, or the first that has begun,
// or the first device's. Null: none can begin.
Session* any_session();

template <typename T>
T handle_cast(const Object* object) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(object->handle.load(std::memory_order_relaxed));
  } else {
    return static_cast<T>(object->handle.load(std::memory_order_relaxed));
  }
}
template <typename T>
uint64_t handle_value(T handle) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<uint64_t>(handle);
  } else {
    return static_cast<uint64_t>(handle);
  }
}

// The record of a CUfunction or a CUkernel, because launches accept both.
Function* find_function(CUfunction function);
// Parameter layout and attributes. One round trip the first time. Null: see *error.
const FunctionInfo* function_info(Context* context, Function* function, CUresult* error);

// Before a launch: see client/cuda/stream/ahead.h.
inline void make_room(Context* context, Stream* stream, uint32_t units) {
  if (__builtin_expect(process()->contexts_share.load(std::memory_order_relaxed), 0))
    make_room_slowly(context, stream, units);
}

// Of calls that need no current context.
inline constexpr const Context* kNoContext = nullptr;

// What a driver answers to something that is not a handle, such as null. Measured on an H200.
CUresult no_object(Kind kind);
// The record of any kind, or null.
Object* find_object(Kind kind, uint64_t handle);
// The same, with what a driver answers if there is none.
CUresult need_object(Kind kind, uint64_t handle, Object** out);
Object* create_object(Kind kind, Session* session, Context* context);
void destroy_object(Kind kind, Object* object);
// The record for an object whose id the worker chose. Made if it does not exist yet.
Object* known_object(Kind kind, Session* session, Context* context, uint64_t wire_id);

}  // namespace tendril::client::cuda

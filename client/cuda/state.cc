// SPDX-License-Identifier: Apache-2.0
// The calling thread's state, look-ups by handle, and what a session's lane reports unasked. See
// state.h; attaching is in attach.cc.
#include "client/cuda/state.h"
#include "client/cuda/memory/keeper.h"
#include "client/cuda/memory/memory.h"

#include <string.h>

#include "api/nccl/element.h"
#include "client/common/log.h"
#include "client/cuda/stream/callback.h"

namespace tendril::client::cuda {
namespace {

constinit thread_local ThreadState t_state{};
std::atomic<uint64_t> g_thread_serial{1};

}  // namespace

ThreadState& thread_state() { return t_state; }

uint64_t thread_serial() {
  ThreadState& thread = t_state;
  if (thread.serial == 0) thread.serial = g_thread_serial.fetch_add(1);
  return thread.serial;
}

bool is_sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
      return true;
    default:
      return false;
  }
}

void Session::note(Context* context, CUresult result) {
  if (__builtin_expect(result == CUDA_SUCCESS, 1) || context == nullptr) return;
  if (is_sticky(result)) context->sticky.store(result, std::memory_order_relaxed);
}

bool Session::accepts_delivery(uint64_t address, uint64_t bytes) {
  Process* program = process();
  Range range;
  if (program == nullptr || !program->ranges.find(address, &range) || !range.host()) return false;
  return bytes <= range.bytes - (address - range.base);
}

// Called on the thread that receives.
void Session::delivered(uint64_t address, uint64_t bytes) {
  unasked_.fetch_add(1, std::memory_order_relaxed);
  if (Process* program = process()) program->reads.arrived(this, address, bytes);
}

void Session::callback(const uint8_t* body, size_t bytes) {
  unasked_.fetch_add(1, std::memory_order_relaxed);
  uint64_t words[2] = {};  // token, invocation
  if (bytes < sizeof words) return;
  memcpy(words, body, sizeof words);
  run_callback(this, words[0], words[1]);
}

void Session::sticky_error(int32_t result, const char* text, size_t bytes) {
  if (bytes != 0) {
    log_once(LogLevel::kError, "server %s: %.*s", endpoint.c_str(), static_cast<int>(bytes), text);
  }
  for (Device* device : devices) note(device->primary, static_cast<CUresult>(result));
}

void Session::news(const uint8_t* body, size_t bytes) {
  if (bytes == 0) return kept_memory_is_wanted(this);
  api::nccl::Failure failure;
  if (bytes != sizeof failure) return;
  memcpy(&failure, body, sizeof failure);
  nccl_failures.add(failure.communicator, failure.state);
}

void Session::lost(const base::Status& why) { tell_lost(why, "CUDA_ERROR_DEVICE_UNAVAILABLE"); }

Device* device_of(CUdevice ordinal) {
  Process* program = process();
  if (program == nullptr || ordinal < 0 || static_cast<size_t>(ordinal) >= program->devices.size())
    return nullptr;
  return program->devices[static_cast<size_t>(ordinal)];
}

CUresult require_context(Context** out) {
  if (__builtin_expect(process() == nullptr, 0)) return CUDA_ERROR_NOT_INITIALIZED;
  Context* context = current_context();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  return use_context(context, out);
}

CUresult require_context_of(Context* owner, Context** out) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (current_context() != nullptr) return require_context(out);
  return owner != nullptr ? use_context(owner, out) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult use_context(Context* context, Context** out) {
  if (__builtin_expect(context->active.load(std::memory_order_relaxed) == 0, 0))
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const int sticky = context->sticky.load(std::memory_order_relaxed);
  if (__builtin_expect(sticky != 0, 0)) return static_cast<CUresult>(sticky);
  if (__builtin_expect(context->session->lane->is_lost(), 0)) return Session::lost_result();
  *out = context;
  return CUDA_SUCCESS;
}

namespace {

// The stream behind CU_STREAM_PER_THREAD for this thread in `context`. The worker knows no client
// threads, so it gets a stream.
Stream* per_thread_stream(Context* context) {
  const uint64_t serial = thread_serial();
  const base::Locked held(context->lock);
  for (const Context::ThreadStream& entry : context->thread_streams) {
    if (entry.thread == serial) return entry.stream;
  }
  Stream* made =
      process()->streams.create(Kind::kStream, context->session, context, context->session->index);
  if (made == nullptr) return nullptr;
  made->flags = CU_STREAM_DEFAULT;
  made->priority = 0;
  made->id = process()->next_stream_id.fetch_add(1);
  context->thread_streams.push_back({serial, made});
  wire::cuda::stream_create_request request;
  request.stream = made->wire_id;
  context->session->enqueue(context, request);
  return made;
}

}  // namespace

CUresult require_stream(Context* context, CUstream stream, Stream** out) {
  uint64_t value = handle_value(stream);
  if (value == 0) value = thread_state().per_thread_default ? 2 : 1;
  if (value == 1) {
    *out = nullptr;
    return CUDA_SUCCESS;
  }
  Stream* found =
      value == 2 ? per_thread_stream(context) : process()->streams.find(Kind::kStream, value);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = found;
  return CUDA_SUCCESS;
}

CUresult require_stream_context(CUstream stream, Context** context, Stream** out) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = process()->streams.find(Kind::kStream, handle_value(stream));
  if (*out != nullptr) return use_context((*out)->context, context);
  const CUresult result = require_context(context);
  return result == CUDA_SUCCESS ? require_stream(*context, stream, out) : result;
}

Function* find_function(CUfunction function) {
  Process* program = process();
  const uint64_t value = handle_value(function);
  if (Function* found = program->kernels.find(Kind::kKernel, value)) return found;
  return program->functions.find(Kind::kFunction, value);
}

Object* find_object(Kind kind, uint64_t handle) {
  Process* program = process();
  switch (kind) {
    case Kind::kContext:
      return program->contexts.find(kind, handle);
    case Kind::kStream:
      return program->streams.find(kind, handle);
    case Kind::kEvent:
      return program->events.find(kind, handle);
    case Kind::kModule:
      return program->modules.find(kind, handle);
    case Kind::kLibrary:
      return program->libraries.find(kind, handle);
    case Kind::kFunction:
      return program->functions.find(kind, handle);
    case Kind::kKernel:
      return program->kernels.find(kind, handle);
    case Kind::kExec:
      return program->execs.find(kind, handle);
    default:
      return program->others[static_cast<int>(kind)].find(kind, handle);
  }
}

CUresult need_object(Kind kind, uint64_t handle, Object** out) {
  if (process() == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  *out = find_object(kind, handle);
  return *out != nullptr ? CUDA_SUCCESS : no_object(kind);
}

CUresult no_object(Kind kind) {
  switch (kind) {
    case Kind::kContext:
    case Kind::kGreenContext:
      return CUDA_ERROR_INVALID_CONTEXT;
    case Kind::kGraph:
    case Kind::kNode:
    case Kind::kExec:
    case Kind::kPool:
      return CUDA_ERROR_INVALID_VALUE;
    default:
      return CUDA_ERROR_INVALID_HANDLE;
  }
}

Object* create_object(Kind kind, Session* session, Context* context) {
  Process* program = process();
  const uint32_t server = session->index;
  switch (kind) {
    case Kind::kStream:
      return program->streams.create(kind, session, context, server);
    case Kind::kEvent:
      return program->events.create(kind, session, context, server);
    case Kind::kModule:
      return program->modules.create(kind, session, context, server);
    case Kind::kLibrary:
      return program->libraries.create(kind, session, context, server);
    case Kind::kFunction:
      return program->functions.create(kind, session, context, server);
    case Kind::kKernel:
      return program->kernels.create(kind, session, context, server);
    case Kind::kExec:
      return program->execs.create(kind, session, context, server);
    default:
      return program->others[static_cast<int>(kind)].create(kind, session, context, server);
  }
}

void destroy_object(Kind kind, Object* object) {
  Process* program = process();
  switch (kind) {
    case Kind::kContext:
      return program->contexts.destroy(static_cast<Context*>(object));
    case Kind::kStream:
      return program->streams.destroy(static_cast<Stream*>(object));
    case Kind::kEvent:
      return program->events.destroy(static_cast<Event*>(object));
    case Kind::kModule:
      return program->modules.destroy(static_cast<Module*>(object));
    case Kind::kLibrary:
      return program->libraries.destroy(static_cast<Library*>(object));
    case Kind::kFunction:
      return program->functions.destroy(static_cast<Function*>(object));
    case Kind::kKernel:
      return program->kernels.destroy(static_cast<Function*>(object));
    case Kind::kExec:
      return program->execs.destroy(static_cast<Exec*>(object));
    default:
      break;
  }
  Table<Object>& table = program->others[static_cast<int>(kind)];
  if (object->wire_id != object->handle.load() && object->session != nullptr)
    object->session->forget(object->wire_id);
  table.destroy(object);
}

Object* known_object(Kind kind, Session* session, Context* context, uint64_t wire_id) {
  if ((api::id_index(wire_id) & api::kWorkerBit) == 0) return find_object(kind, wire_id);
  if (core::Record* found = session->remembered(wire_id)) return static_cast<Object*>(found);
  Object* made = create_object(kind, session, context);
  if (made == nullptr) return nullptr;
  made->wire_id = wire_id;
  session->remember(wire_id, made);
  return made;
}

void Session::send_free(const FreedBlock& block) {
  wire::cuda::pool_free_request request;
  request.address = block.address;
  request.stream = block.stream;
  enqueue(block.context, request);
}

void Session::send_frees(uint64_t stream, uint64_t bytes_min) {
  freed.give_back(stream, bytes_min, [this](const FreedBlock& block) { send_free(block); });
}

bool Session::give_up_kept() {
  bool some = heap.keeps();
  if (some) heap.give_up(give_block_back);
  for (Device* device : devices)
    some |= device->arena.give_up([device](uint64_t bytes) { give_up_paid(device, bytes); });
  return some;
}

}  // namespace tendril::client::cuda

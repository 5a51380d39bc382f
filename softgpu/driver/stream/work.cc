// SPDX-License-Identifier: Apache-2.0
// Submission of work: queues it or records it. Also the works that concern streams only: host
// functions and memory operations.

#include "softgpu/driver/stream/work.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "softgpu/driver/config.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph/graph.h"
#include "softgpu/driver/memory/memory_map.h"
#include "softgpu/driver/stream/clock.h"

namespace tendril::softgpu {
namespace {

// A blocking stream of this context under capture would be ordered against the legacy stream. A
// graph cannot express that.
CUresult implicit_order(const StreamPtr& stream, const ContextPtr& context) {
  if (!stream->is_legacy) return CUDA_SUCCESS;
  for (const StreamPtr& other : context->streams()) {
    if (!other->capture || !other->blocking() ||
        other->capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED)
      continue;
    other->capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  return CUDA_SUCCESS;
}

CUresult capture_work(const StreamPtr& stream, WorkPtr work, const SubmitOptions& options) {
  if (stream->capture->invalidated) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!options.allow_capture) {
    stream->capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  NodePtr node = stream->capture->graph->add(std::move(work), stream->frontier);
  stream->frontier.assign(1, node);
  return CUDA_SUCCESS;
}

bool value_matches(uint64_t have, uint64_t want, unsigned flags, bool wide) {
  switch (flags & 3u) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return wide ? static_cast<int64_t>(have - want) >= 0 : static_cast<int32_t>(have - want) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return have == want;
    case CU_STREAM_WAIT_VALUE_AND:
      return (have & want) != 0;
    default:
      return ~(have | want) != 0 && (wide || static_cast<uint32_t>(~(have | want)) != 0);
  }
}

class Held {
 public:
  explicit Held(Context* context) : context_(context) {}
  ~Held() {
    if (held_) --context_->held_streams;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  void hold() {
    if (!held_) ++context_->held_streams;
    held_ = true;
  }

 private:
  Context* const context_;
  bool held_ = false;
};

CUresult wait_value(Context& context, uint64_t address, uint64_t want, unsigned flags, bool wide) {
  StepBound bound;
  Held held(&context);
  for (unsigned turn = 0; !*context.cancel(); ++turn) {
    if (!bound.again()) return CUDA_ERROR_LAUNCH_TIMEOUT;
    {
      std::shared_lock running(MemoryMap::instance().execution());
      const uint8_t* at = MemoryMap::instance().resolve(address, wide ? 8 : 4);
      if (at == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
      uint64_t have =
          wide ? __atomic_load_n(reinterpret_cast<const uint64_t*>(at), __ATOMIC_ACQUIRE)
               : __atomic_load_n(reinterpret_cast<const uint32_t*>(at), __ATOMIC_ACQUIRE);
      if (value_matches(have, want, flags, wide)) return CUDA_SUCCESS;
    }
    held.hold();
    const Clock::Pause pause;  // the thread that writes the value may need the clock to move
    std::this_thread::sleep_for(std::chrono::microseconds(turn < 100 ? 10 : 200));
  }
  return CUDA_SUCCESS;
}

CUresult write_value(uint64_t address, uint64_t value, bool wide) {
  std::shared_lock running(MemoryMap::instance().execution());
  uint8_t* at = MemoryMap::instance().resolve(address, wide ? 8 : 4);
  if (at == nullptr) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (wide) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(at), value, __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(reinterpret_cast<uint32_t*>(at), static_cast<uint32_t>(value),
                     __ATOMIC_RELEASE);
  }
  return CUDA_SUCCESS;
}

}  // namespace

void run_work(Context& context, Work& work) {
  if (context.error() != CUDA_SUCCESS) return;
  CUresult result;
  try {
    result = work.run(context);
  } catch (...) {
    result = CUDA_ERROR_UNKNOWN;
  }
  if (result != CUDA_SUCCESS) context.fail(result);
}

CUresult submit_work(const StreamPtr& stream, const ContextPtr& context, WorkPtr work,
                     const SubmitOptions& options) {
  if (any_capture()) {
    std::lock_guard guard(capture_lock());
    if (stream->capture) return capture_work(stream, std::move(work), options);
    if (CUresult bad = implicit_order(stream, context)) return bad;
  }
  QueuedOp op;
  op.run = [context, work = std::move(work)] { run_work(*context, *work); };
  for (const ContextPtr& other : options.contexts)
    other->add_pending(options.every_stream, &op.after);
  TokenPtr token = context->submit(stream, std::move(op), options.inline_ok);
  for (const ContextPtr& other : options.contexts) other->follow(token, options.every_stream);
  if (!options.wait) return CUDA_SUCCESS;
  token->wait();
  context->flush_print();
  return context->error();
}

CUresult submit_work(CUstream handle, WorkPtr work, const SubmitOptions& options) {
  StreamPtr stream;
  ContextPtr context;
  if (CUresult bad = find_stream(handle, &stream, &context)) return bad;
  return submit_work(stream, context, std::move(work), options);
}

CUresult HostWork::run(Context&) {
  bool before = in_host_function();
  in_host_function() = true;
  params.fn(params.userData);
  in_host_function() = before;
  return CUDA_SUCCESS;
}

CUresult MemOpWork::run(Context& context) {
  for (const CUstreamBatchMemOpParams& op : ops) {
    CUresult result = CUDA_SUCCESS;
    switch (op.operation) {
      case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        result = wait_value(context, op.waitValue.address, op.waitValue.value, op.waitValue.flags,
                            false);
        break;
      case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        result = wait_value(context, op.waitValue.address, op.waitValue.value64, op.waitValue.flags,
                            true);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        result = write_value(op.writeValue.address, op.writeValue.value, false);
        break;
      case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        result = write_value(op.writeValue.address, op.writeValue.value64, true);
        break;
      default:
        break;  // barriers and flushes: memory is coherent here
    }
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu

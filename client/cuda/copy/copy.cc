// SPDX-License-Identifier: Apache-2.0
// Linear copies. Small data rides in the command lane, large data beside it. A copy to the device
// returns when its source may be reused and costs no reply. A copy into pinned memory is announced,
// and arrives before any wait that covers it returns. A copy into pageable memory waits. Between
// GPUs of two servers the data travels between their workers (passages.h). Without such a passage
// it goes through this process.
//
// Each end of a copy is looked up once in the map of ranges (End). All later steps ask the End.
#include "client/cuda/copy/copy.h"

#include <string.h>

#include <algorithm>
#include <vector>

#include "client/cuda/copy/passages.h"
#include "client/cuda/memory/memory.h"
#include "client/cuda/memory/mirror.h"
#include "client/cuda/stream/callback.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {

Context* context_for(Context* current, uint64_t address) {
  return End(address, 0).context(current);
}

CUresult bring_home(Context* context, const Context* there, CopyStream* on) {
  const Session* home = on->stream != nullptr ? on->stream->session : context->session;
  if (__builtin_expect(home == there->session, 1)) return CUDA_SUCCESS;
  if (on->async)
    TENDRIL_TRY(look_before_wait("a copy in a stream of another server", context, on->stream));
  TENDRIL_TRY(synchronize_stream(context, on->stream));
  *on = {};
  return CUDA_SUCCESS;
}

uint64_t wire_stream(CopyStream on) {
  return on.async || on.stream != nullptr ? stream_wire_id(on.stream) : 0;
}

namespace {

constexpr uint64_t kBounceBytes = 8u << 20;

// The driver reports an unknown address at the call. So this function must do the same for an
// address that the map does not know.
CUresult judge(Context* context, const End& one, const End& other) {
  return one.known && other.known ? CUDA_SUCCESS : outcome_so_far(context);
}

// For memory that kernels or graphs write through its own address. The copy must see the results of
// earlier work, and earlier work must not overwrite the copy.
CUresult settle_mirror(Context* context, const End& host, CopyStream on) {
  if (process()->written_mirrors.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  if (!host.known) return CUDA_SUCCESS;
  if (!host.range.mirrored && !process()->reads.pending(host.address, host.bytes))
    return CUDA_SUCCESS;
  TENDRIL_TRY(synchronize_stream(context, on.stream));
  mirror_after_wait(context->session, context);
  return CUDA_SUCCESS;
}

// A copy into a graph under construction. The node names host memory by its own address, where
// every launch finds it.
CUresult capture_copy(Context* context, const End& to, const End& from, CopyStream on) {
  TENDRIL_TRY(check_work(context, on.stream, !on.async));
  if (!from.known || from.range.host())
    TENDRIL_TRY(
        mirror_for_node(context->session, context, from.address, from.bytes, kMirrorGraphReads));
  if (!to.known || to.range.host())
    TENDRIL_TRY(
        mirror_for_node(context->session, context, to.address, to.bytes, kMirrorGraphWrites));
  wire::cuda::copy_device_request request;
  request.destination = to.address;
  request.source = from.address;
  request.bytes = to.bytes;
  request.stream = stream_wire_id(on.stream);
  return context->session->enqueue(context, request);
}

// CUDA reads pinned memory when the stream gets there, but this library reads it now. So an
// asynchronous read-back or a host function that may still write the memory must end first.
CUresult settle_source(Context* context, const End& source, CopyStream on) {
  // This library does not see what GPUs write to shared pages. So all work before the copy must end
  // first.
  if (source.known && source.range.shared) return synchronize_stream(context, on.stream);
  TENDRIL_TRY(settle_mirror(context, source, on));
  if (!on.async || !source.is_host()) return CUDA_SUCCESS;
  PendingReads& reads = process()->reads;
  if (!reads.pending(source.address, source.bytes) && !callbacks_pending()) return CUDA_SUCCESS;
  TENDRIL_TRY(look_before_wait("an asynchronous copy from pinned memory", context, on.stream));
  TENDRIL_TRY(synchronize_stream(context, on.stream));
  reads.forget_memory(source.address, source.bytes);
  return CUDA_SUCCESS;
}

// A copy between addresses that the GPU reaches, as one more piece of work in its stream.
CUresult enqueue_copy(Context* context, uint64_t destination, uint64_t source, uint64_t bytes,
                      CopyStream on) {
  wire::cuda::copy_device_request request;
  request.destination = destination;
  request.source = source;
  request.bytes = bytes;
  request.stream = wire_stream(on);
  return context->session->enqueue(context, request);
}

// True: the GPU reaches this host memory itself. The copy is then one more piece of work in its
// stream, and no data passes through this process.
bool gpu_reaches(const Context* context, const End& host) {
  return host.is_host() && host.range.shared_with(context->session);
}

CUresult copy_directly(Context* context, const End& to, const End& from, CopyStream on) {
  TENDRIL_TRY(enqueue_copy(context, to.address, from.address, to.bytes, on));
  return on.async ? judge(context, to, from) : synchronize_stream(context, on.stream);
}

core::Staging::Block staging_for(Context* context, uint64_t bytes, CopyStream on) {
  const bool at_home = on.stream == nullptr || on.stream->session == context->session;
  return at_home ? context->session->staging.take(context->session, context, bytes)
                 : core::Staging::Block();
}

core::Staging::Queue queue_of(Context* context, Stream* stream) {
  if (stream == nullptr)
    return {context, &context->synchronised, &context->legacy_synchronised, nullptr};
  Context* owner = stream->context;
  return {owner, &owner->synchronised, &stream->synchronised, stream};
}

// True: the source is pinned memory of an asynchronous copy. The program does not change it until
// it has waited for the copy.
bool may_be_read_later(const End& source, CopyStream on) {
  return on.async && source.is_host() && !source.range.mirrored &&
         source.range.kind != RangeKind::kManaged;
}

CUresult hand_over_staged(Context* context, const core::Staging::Block& block, uint64_t destination,
                          const End& source, CopyStream on) {
  CUresult result = CUDA_SUCCESS;
  for (uint64_t at = 0; at < source.bytes && result == CUDA_SUCCESS; at += core::Staging::kPiece) {
    const uint64_t piece = std::min(source.bytes - at, core::Staging::kPiece);
    core::Staging::fill(block.data + at, source.memory() + at, piece);
    result = enqueue_copy(context, destination + at, reinterpret_cast<uint64_t>(block.data) + at,
                          piece, on);
  }
  context->session->staging.give_back_after(context->session, block, queue_of(context, on.stream));
  return result;
}

// When this returns, the program may change the source. Exception: pinned memory of an asynchronous
// copy.
CUresult hand_over(Context* context, uint64_t destination, const End& source, CopyStream on) {
  const core::Staging::Block block = staging_for(context, source.bytes, on);
  if (block.data != nullptr) return hand_over_staged(context, block, destination, source, on);
  Session* session = context->session;
  wire::cuda::copy_to_device_request request;
  request.destination = destination;
  request.bytes = source.bytes;
  request.stream = wire_stream(on);
  if (source.bytes <= wire::kInlineBytesMax) {
    request.data = {source.memory(), source.bytes};
    return session->enqueue(context, request);
  }
  request.transfer = session->lane->new_transfer_id();
  TENDRIL_TRY(session->enqueue(context, request));
  if (may_be_read_later(source, on) &&
      session->uploads.take(session, request.transfer, source.memory(), source.bytes)) {
    tally_bytes(source.bytes);
    return CUDA_SUCCESS;
  }
  return session->send_bulk(request.transfer, source.memory(), source.bytes)
             ? CUDA_SUCCESS
             : Session::lost_result();
}

// Like `bring`, but without staging. The data comes with the reply, or beside it.
CUresult bring_over_lane(Context* context, void* destination, uint64_t source, uint64_t bytes,
                         CopyStream on) {
  wire::cuda::copy_from_device_request request;
  wire::cuda::copy_from_device_reply reply;
  request.source = source;
  request.bytes = bytes;
  request.stream = wire_stream(on);
  if (!context->session->freed.empty()) context->session->send_frees();
  const uint64_t before = context->session->calls();
  TENDRIL_TRY(fetch(context, request, reply, destination, bytes));
  if (on.stream == nullptr || on.stream->session == context->session)
    note_idle(context, on.stream, before);
  return CUDA_SUCCESS;
}

// Waits for the data.
CUresult bring(Context* context, void* destination, uint64_t source, uint64_t bytes,
               CopyStream on) {
  const core::Staging::Block block = staging_for(context, bytes, on);
  if (block.data == nullptr) return bring_over_lane(context, destination, source, bytes, on);
  CUresult result =
      enqueue_copy(context, reinterpret_cast<uint64_t>(block.data), source, bytes, on);
  if (result == CUDA_SUCCESS) result = synchronize_stream(context, on.stream);
  if (result == CUDA_SUCCESS) memcpy(destination, block.data, bytes);
  context->session->staging.give_back(block);
  return result;
}

// Copies into pinned memory. The data comes unasked, before any wait that covers the copy returns.
CUresult bring_later(Context* context, const End& to, const End& from, CopyStream on) {
  session::Lane* lane = context->session->lane.get();
  wire::cuda::copy_from_device_async_request request;
  request.source = from.address;
  request.bytes = to.bytes;
  request.stream = wire_stream(on);
  request.host = to.address;
  if (to.bytes > wire::kReplyInlineMax) {
    request.transfer = lane->new_transfer_id();
    lane->expect_bulk_async(request.transfer, to.memory(), to.bytes);
    tally_bytes(to.bytes);
  }
  process()->reads.add({on.stream, context, request.host, to.bytes, true});
  lane->wait_is_near();
  TENDRIL_TRY(context->session->enqueue(context, request));
  return judge(context, from, from);
}

CUresult between_servers(Context* context, const End& destination, const End& source,
                         CopyStream on) {
  Context* from = source.context(context);
  Context* to = destination.context(context);
  const bool plain =
      source.known && destination.known && source.range.device() && destination.range.device();
  PassageEnd there, here;
  there.context = to;
  there.address = destination.address;
  here.context = from;
  here.address = source.address;
  CUresult result = CUDA_SUCCESS;
  if (plain && copy_over_passage(context, there, here, {source.bytes}, on, &result)) return result;
  if (on.stream != nullptr || on.async) {
    if (on.async)
      TENDRIL_TRY(
          look_before_wait("an asynchronous copy between GPUs of two servers", context, on.stream));
    TENDRIL_TRY(synchronize_stream(context, on.stream));
  }
  const uint64_t bytes = source.bytes;
  std::vector<uint8_t> bounce(std::min(bytes, kBounceBytes));
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t piece = std::min<uint64_t>(bytes - done, bounce.size());
    TENDRIL_TRY(copy_from_device(from, bounce.data(), source.address + done, piece, {}));
    TENDRIL_TRY(copy_to_device(to, destination.address + done, bounce.data(), piece, {}));
    done += piece;
  }
  // The pieces went through the default stream of the other server. Later work of the program may
  // run in any stream, and not all streams wait for the default one.
  return synchronize_stream(to, nullptr);
}

}  // namespace

// Later work of other streams comes after a copy on the legacy stream anyway. Exceptions: streams
// that do not wait for the legacy one; other contexts, which may see the memory as peers; other
// processes, which the program may notify next.
CUresult finish_copy(Context* context, CopyStream on) {
  if (on.stream != nullptr) return synchronize_stream(context, on.stream);
  // The note comes first, and then the look at the flags. A thread that sets a flag afterwards
  // waits for the noted copies, or orders itself behind them.
  context->copied.store(context->session->serial.fetch_add(1) + 1);
  const Process* program = process();
  const bool matters = program->streams_apart.load() || program->contexts_share.load() ||
                       program->memory_is_shared.load();
  return matters ? synchronize_stream(context, nullptr) : CUDA_SUCCESS;
}

void remember_graph_writes(Context* context, Stream* stream) {
  if (__builtin_expect(process()->graph_mirrors.load(std::memory_order_relaxed) == 0, 1)) return;
  struct Launch {
    Context* context;
    Stream* stream;
  } launch{context, stream};
  mirror_graph_writes(
      context->session,
      [](void* state, uint64_t base, uint64_t bytes) {
        const auto* of = static_cast<const Launch*>(state);
        PendingReads& reads = process()->reads;
        if (!reads.pending(base, bytes)) reads.add({of->stream, of->context, base, bytes});
      },
      &launch);
}

// Waits only for those copies. The legacy stream may have other work that cannot end before this
// returns.
void copies_matter(std::atomic<bool>* reason, const Session* session) {
  reason->store(true);
  process()->contexts.for_each([session](Context* context) {
    if (context->active.load() == 0 || (session != nullptr && context->session != session)) return;
    uint64_t copied = context->copied.load();
    if (copied <= context->synchronised.load() || copied <= context->legacy_synchronised.load())
      return;
    wire::cuda::copies_wait_request request;
    wire::cuda::copies_wait_reply reply;
    // An error here is ignored. The program gets a context's error when it uses the context.
    const CUresult result = context->session->call(context, request, reply);
    if (result == CUDA_SUCCESS) context->copied.compare_exchange_strong(copied, 0);
  });
}

namespace {

// True: the copy names managed or mapped host memory as memory of the device. Then what the program
// wrote there is sent before the copy. When a synchronous copy returns, the program sees what it
// wrote.
bool before_mirrored_copy(Context* context, const End& end) {
  if (process()->written_mirrors.load(std::memory_order_relaxed) == 0 || !end.known) return false;
  if (!end.range.host() || !end.range.mirrored || end.range.shared_with(context->session))
    return false;
  mirror_before_work(context->session, context);
  return true;
}

CUresult after_mirrored_copy(Context* context, CopyStream on) {
  if (on.async) return CUDA_SUCCESS;
  TENDRIL_TRY(synchronize_stream(context, on.stream));
  mirror_after_wait(context->session, context);
  return CUDA_SUCCESS;
}

// True: the worker has its own copy of the source, and copies from there.
bool has_mirror(Context* context, const End& source, CopyStream on) {
  return on.async && source.is_host() && source.range.mirrored &&
         source.range.kind != RangeKind::kManaged &&
         !process()->reads.pending(source.address, source.bytes) && !callbacks_pending() &&
         mirror_as_source(context->session, context, source.range.base);
}

CUresult to_device(Context* context, const End& to, const End& from, CopyStream on) {
  if (from.address == 0 || to.address == 0 || !to.fits()) return CUDA_ERROR_INVALID_VALUE;
  if (is_capturing(on.stream)) return capture_copy(context, to, from, on);
  Context* there = to.context(context);
  TENDRIL_TRY(bring_home(context, there, &on));
  if (gpu_reaches(there, from) || has_mirror(there, from, on))
    return copy_directly(there, to, from, on);
  TENDRIL_TRY(settle_source(context, from, on));
  const bool mirrored = before_mirrored_copy(there, to);
  TENDRIL_TRY(hand_over(there, to.address, from, on));
  if (mirrored) return after_mirrored_copy(there, on);
  TENDRIL_TRY(judge(there, to, to));
  return on.async ? CUDA_SUCCESS : finish_copy(there, on);
}

CUresult from_device(Context* context, const End& to, const End& from, CopyStream on) {
  if (to.address == 0 || from.address == 0 || !from.fits()) return CUDA_ERROR_INVALID_VALUE;
  if (is_capturing(on.stream)) return capture_copy(context, to, from, on);
  Context* there = from.context(context);
  TENDRIL_TRY(bring_home(context, there, &on));
  if (gpu_reaches(there, to)) return copy_directly(there, to, from, on);
  (void)before_mirrored_copy(there, from);
  TENDRIL_TRY(settle_mirror(there, to, on));
  if (on.async && to.is_host()) return bring_later(there, to, from, on);
  TENDRIL_TRY(bring(there, to.memory(), from.address, to.bytes, on));
  mirror_after_wait(there->session, there);  // earlier kernels are over too
  return CUDA_SUCCESS;
}

CUresult between_devices(Context* context, const End& to, const End& from, CopyStream on) {
  if (to.address == 0 || from.address == 0 || !to.fits() || !from.fits())
    return CUDA_ERROR_INVALID_VALUE;
  if (is_capturing(on.stream)) return capture_copy(context, to, from, on);
  Context* there = to.context(context);
  if (there->session != from.context(context)->session)
    return between_servers(context, to, from, on);
  TENDRIL_TRY(bring_home(context, there, &on));
  (void)before_mirrored_copy(there, from);
  const bool mirrored = before_mirrored_copy(there, to);
  TENDRIL_TRY(enqueue_copy(there, to.address, from.address, to.bytes, on));
  if (mirrored) return after_mirrored_copy(there, on);
  TENDRIL_TRY(judge(there, to, from));
  // Nothing else would order a synchronous copy between contexts before later work of the other
  // context.
  const bool between_contexts = to.known && from.known && to.range.context != from.range.context;
  return !on.async && between_contexts ? synchronize_stream(there, on.stream) : CUDA_SUCCESS;
}

// Unified addressing: the map says which ends are device memory. What it does not know is the
// program's own memory.
CUresult anywhere(Context* context, const End& to, const End& from, CopyStream on) {
  if (to.address == 0 || from.address == 0) return CUDA_ERROR_INVALID_VALUE;
  const bool into_device = to.known && !to.range.host();
  const bool out_of_device = from.known && !from.range.host();
  if (into_device && out_of_device) return between_devices(context, to, from, on);
  if (into_device) return to_device(context, to, from, on);
  if (out_of_device) return from_device(context, to, from, on);
  if (is_capturing(on.stream)) return capture_copy(context, to, from, on);
  // A copy from host to host still waits for its turn in the stream.
  TENDRIL_TRY(synchronize_stream(context, on.stream));
  mirror_after_wait(context->session, context);
  memmove(to.memory(), from.memory(), to.bytes);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult copy_to_device(Context* context, uint64_t destination, const void* source, uint64_t bytes,
                        CopyStream on) {
  if (bytes == 0) return CUDA_SUCCESS;
  return to_device(context, End(destination, bytes), End(source, bytes), on);
}

CUresult copy_from_device(Context* context, void* destination, uint64_t source, uint64_t bytes,
                          CopyStream on) {
  if (bytes == 0) return CUDA_SUCCESS;
  return from_device(context, End(destination, bytes), End(source, bytes), on);
}

CUresult copy_device(Context* context, uint64_t destination, uint64_t source, uint64_t bytes,
                     CopyStream on) {
  if (bytes == 0) return CUDA_SUCCESS;
  return between_devices(context, End(destination, bytes), End(source, bytes), on);
}

CUresult copy_any(Context* context, uint64_t destination, uint64_t source, uint64_t bytes,
                  CopyStream on) {
  if (bytes == 0) return CUDA_SUCCESS;
  return anywhere(context, End(destination, bytes), End(source, bytes), on);
}

CUresult settle_for_reading(Context* context, const void* source, uint64_t bytes, CopyStream on) {
  return settle_source(context, End(source, bytes), on);
}

CUresult settle_for_writing(Context* context, const void* destination, uint64_t bytes,
                            CopyStream on) {
  return settle_mirror(context, End(destination, bytes), on);
}

namespace {

// Runs `copy(context, stream)` in the given stream, without waiting for it.
template <typename Copy>
CUresult in_stream(CUstream handle, Copy&& copy) {
  Context* context = nullptr;
  CopyStream on;
  on.async = true;
  TENDRIL_TRY(require_context(&context));
  TENDRIL_TRY(require_stream(context, handle, &on.stream));
  if (on.stream != nullptr) context = on.stream->context;
  TENDRIL_TRY(check_work(context, on.stream));
  return copy(context, on);
}

// Runs `copy(context, stream)` as a synchronous one: on the legacy stream, or on this thread's
// default stream in a per-thread entry.
template <typename Copy>
CUresult synchronously(Copy&& copy) {
  Context* context = nullptr;
  CopyStream on;
  TENDRIL_TRY(require_context(&context));
  TENDRIL_TRY(require_stream(context, nullptr, &on.stream));
  TENDRIL_TRY(check_work(context, on.stream, true));
  return copy(context, on);
}

CUresult need_contexts(CUcontext one, CUcontext other) {
  const bool there = find_object(Kind::kContext, handle_value(one)) != nullptr &&
                     find_object(Kind::kContext, handle_value(other)) != nullptr;
  return there ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  return synchronously([&](Context* context, CopyStream on) {
    return copy_to_device(context, dstDevice, srcHost, ByteCount, on);
  });
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  return in_stream(hStream, [&](Context* context, CopyStream on) {
    return copy_to_device(context, dstDevice, srcHost, ByteCount, on);
  });
}

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  return synchronously([&](Context* context, CopyStream on) {
    return copy_from_device(context, dstHost, srcDevice, ByteCount, on);
  });
}

CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return in_stream(hStream, [&](Context* context, CopyStream on) {
    return copy_from_device(context, dstHost, srcDevice, ByteCount, on);
  });
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  return synchronously([&](Context* context, CopyStream on) {
    return copy_device(context, dstDevice, srcDevice, ByteCount, on);
  });
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  return in_stream(hStream, [&](Context* context, CopyStream on) {
    return copy_device(context, dstDevice, srcDevice, ByteCount, on);
  });
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return synchronously(
      [&](Context* context, CopyStream on) { return copy_any(context, dst, src, ByteCount, on); });
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  return in_stream(hStream, [&](Context* context, CopyStream on) {
    return copy_any(context, dst, src, ByteCount, on);
  });
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
  return in_stream(hStream, [&](Context* context, CopyStream on) {
    // The legacy stream takes no batches.
    if (on.stream == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (count == 0 || dsts == nullptr || srcs == nullptr || sizes == nullptr)
      return CUDA_ERROR_INVALID_VALUE;
    if (numAttrs == 0 || numAttrs > count || attrs == nullptr || attrsIdxs == nullptr ||
        attrsIdxs[0] != 0)
      return CUDA_ERROR_INVALID_VALUE;
    // The copies of a batch have no order among themselves, so any order is correct.
    for (size_t i = 0; i < count; ++i)
      TENDRIL_TRY(copy_any(context, dsts[i], srcs[i], sizes[i], on));
    return CUDA_SUCCESS;
  });
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                            size_t* failIdx, CUstream hStream) {
  if (failIdx != nullptr) *failIdx = SIZE_MAX;
  return cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  return synchronously([&](Context* context, CopyStream on) {
    TENDRIL_TRY(need_contexts(dstContext, srcContext));
    return copy_device(context, dstDevice, srcDevice, ByteCount, on);
  });
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  return in_stream(hStream, [&](Context* context, CopyStream on) {
    TENDRIL_TRY(need_contexts(dstContext, srcContext));
    return copy_device(context, dstDevice, srcDevice, ByteCount, on);
  });
}

}  // namespace tendril::client::cuda

// SPDX-License-Identifier: Apache-2.0
// Linear copies. Small data rides in the command lane, large data beside it. A copy to the device
// returns when its source may be reused and costs no reply; a copy into pinned memory is announced
// and arrives before any wait that covers it returns; a copy into pageable memory waits. Between
// GPUs of two servers the data passes through this process.
#include <string.h>

#include <algorithm>
#include <vector>

#include "client/cuda/memory/memory.h"
#include "client/cuda/memory/mirror.h"
#include "client/cuda/stream/callback.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {

Context* context_for(Context* current, uint64_t address) {
  Range range;
  if (process()->ranges.find(address, &range) && range.context != nullptr &&
      range.session != current->session)
    return range.context;
  return current;
}

uint64_t wire_stream(CopyStream on) {
  return on.async || on.stream != nullptr ? stream_wire_id(on.stream) : 0;
}

namespace {

constexpr uint64_t kBounceBytes = 8u << 20;

bool is_host_range(uint64_t address, uint64_t bytes, Range* range) {
  return process()->ranges.find(address, range) && range->host() &&
         bytes <= range->bytes - (address - range->base);
}

// Does the range fit into what the map knows? Unknown addresses are left to the driver.
bool fits(uint64_t address, uint64_t bytes) {
  Range range;
  return !process()->ranges.find(address, &range) || range.reaches(address, bytes);
}

// The driver tells at the call that it knows nothing at an address. So must we where the map does
// not know it either.
CUresult judge(Context* c, uint64_t one, uint64_t other) {
  Range range;
  if (process()->ranges.find(one, &range) &&
      (one == other || process()->ranges.find(other, &range)))
    return CUDA_SUCCESS;
  return outcome_so_far(c);
}

// Memory that kernels or graphs write through its own address: what runs before the copy must be
// seen by it, and not be undone by it.
CUresult settle_mirror(Context* c, const void* host, uint64_t bytes, CopyStream on) {
  Range range;
  if (process()->written_mirrors.load(std::memory_order_relaxed) == 0) return CUDA_SUCCESS;
  const uint64_t address = reinterpret_cast<uint64_t>(host);
  if (!process()->ranges.find(address, &range) ||
      (!range.mirrored && !process()->reads.pending(address, bytes)))
    return CUDA_SUCCESS;
  TENDRIL_TRY(synchronize_stream(c, on.stream));
  mirror_after_wait(c->session, c);
  return CUDA_SUCCESS;
}

// A copy into a graph under construction. The node names host memory by its own address, where
// every launch finds it.
CUresult capture_copy(Context* c, uint64_t destination, uint64_t source, uint64_t bytes,
                      CopyStream on) {
  TENDRIL_TRY(check_work(c, on.stream, !on.async));
  Range range;
  if (!process()->ranges.find(source, &range) || range.host())
    TENDRIL_TRY(mirror_for_node(c->session, c, source, bytes, kMirrorGraphReads));
  if (!process()->ranges.find(destination, &range) || range.host())
    TENDRIL_TRY(mirror_for_node(c->session, c, destination, bytes, kMirrorGraphWrites));
  wire::cuda::copy_device_request m;
  m.destination = destination;
  m.source = source;
  m.bytes = bytes;
  m.stream = stream_wire_id(on.stream);
  return c->session->enqueue(c, m);
}

// Pinned memory is read when the stream gets there, not when the copy is called. Something pending
// that may still write it (an asynchronous read-back, a host function) must be over before we take
// our snapshot.
CUresult settle_source(Context* c, const void* source, uint64_t bytes, CopyStream on) {
  Range range;
  // GPUs write there without our knowing: what comes before the copy must be over.
  if (process()->ranges.find(reinterpret_cast<uint64_t>(source), &range) && range.shared)
    return synchronize_stream(c, on.stream);
  TENDRIL_TRY(settle_mirror(c, source, bytes, on));
  if (!on.async || !is_host_range(reinterpret_cast<uint64_t>(source), bytes, &range))
    return CUDA_SUCCESS;
  if (!process()->reads.pending(reinterpret_cast<uint64_t>(source), bytes) && !callbacks_pending())
    return CUDA_SUCCESS;
  TENDRIL_TRY(look_before_wait("an asynchronous copy from pinned memory", c, on.stream));
  TENDRIL_TRY(synchronize_stream(c, on.stream));
  process()->reads.forget_memory(reinterpret_cast<uint64_t>(source), bytes);
  return CUDA_SUCCESS;
}

// A copy between addresses that the GPU reaches, as one more piece of work in its stream.
CUresult enqueue_copy(Context* c, uint64_t destination, uint64_t source, uint64_t bytes,
                      CopyStream on) {
  wire::cuda::copy_device_request m;
  m.destination = destination;
  m.source = source;
  m.bytes = bytes;
  m.stream = wire_stream(on);
  return c->session->enqueue(c, m);
}

// Host memory that the GPU reaches itself: the copy is one more piece of work in its stream, and no
// data passes here.
bool gpu_reaches(Context* c, const void* host, uint64_t bytes) {
  Range range;
  return is_host_range(reinterpret_cast<uint64_t>(host), bytes, &range) &&
         range.shared_with(c->session);
}

CUresult copy_directly(Context* c, uint64_t destination, uint64_t source, uint64_t bytes,
                       CopyStream on) {
  TENDRIL_TRY(enqueue_copy(c, destination, source, bytes, on));
  return on.async ? judge(c, destination, source) : synchronize_stream(c, on.stream);
}

core::Staging::Block staging_for(Context* c, uint64_t bytes, CopyStream on) {
  const bool at_home = on.stream == nullptr || on.stream->session == c->session;
  return at_home ? c->session->staging.take(c->session, c, bytes) : core::Staging::Block();
}

core::Staging::Queue queue_of(Context* c, Stream* stream) {
  if (stream == nullptr) return {c, &c->synchronised, &c->legacy_synchronised, nullptr};
  Context* owner = stream->context;
  return {owner, &owner->synchronised, &stream->synchronised, stream};
}

// The program leaves pinned memory alone until it has waited for an asynchronous copy from it.
bool may_be_read_later(const void* source, uint64_t bytes, CopyStream on) {
  Range range;
  return on.async && is_host_range(reinterpret_cast<uint64_t>(source), bytes, &range) &&
         !range.mirrored && range.kind != RangeKind::kManaged;
}

// The source is the program's again when this returns, but for pinned memory.
CUresult hand_over(Context* c, uint64_t destination, const void* source, uint64_t bytes,
                   CopyStream on) {
  const core::Staging::Block block = staging_for(c, bytes, on);
  if (block.data != nullptr) {
    CUresult result = CUDA_SUCCESS;
    for (uint64_t at = 0; at < bytes && result == CUDA_SUCCESS; at += core::Staging::kPiece) {
      const uint64_t piece =
          bytes - at < core::Staging::kPiece ? bytes - at : core::Staging::kPiece;
      core::Staging::fill(block.data + at, static_cast<const uint8_t*>(source) + at, piece);
      result =
          enqueue_copy(c, destination + at, reinterpret_cast<uint64_t>(block.data) + at, piece, on);
    }
    c->session->staging.give_back_after(c->session, block, queue_of(c, on.stream));
    return result;
  }
  wire::cuda::copy_to_device_request m;
  m.destination = destination;
  m.bytes = bytes;
  m.stream = wire_stream(on);
  if (bytes <= wire::kInlineBytesMax) {
    m.data = {static_cast<const uint8_t*>(source), bytes};
    return c->session->enqueue(c, m);
  }
  m.transfer = c->session->lane->new_transfer_id();
  TENDRIL_TRY(c->session->enqueue(c, m));
  if (may_be_read_later(source, bytes, on) &&
      c->session->uploads.take(c->session, m.transfer, source, bytes)) {
    tally_bytes(bytes);
    return CUDA_SUCCESS;
  }
  return c->session->send_bulk(m.transfer, source, bytes) ? CUDA_SUCCESS : Session::lost_result();
}

// As `bring` without staging: the data comes with the reply, or beside it.
CUresult bring_over_lane(Context* c, void* destination, uint64_t source, uint64_t bytes,
                         CopyStream on) {
  wire::cuda::copy_from_device_request m;
  wire::cuda::copy_from_device_reply r;
  m.source = source;
  m.bytes = bytes;
  m.stream = wire_stream(on);
  if (!c->session->freed.empty()) c->session->send_frees();
  const uint64_t before = c->session->calls();
  TENDRIL_TRY(fetch(c, m, r, destination, bytes));
  if (on.stream == nullptr || on.stream->session == c->session) note_idle(c, on.stream, before);
  return CUDA_SUCCESS;
}

// Waits for the data.
CUresult bring(Context* c, void* destination, uint64_t source, uint64_t bytes, CopyStream on) {
  const core::Staging::Block block = staging_for(c, bytes, on);
  if (block.data == nullptr) return bring_over_lane(c, destination, source, bytes, on);
  CUresult result = enqueue_copy(c, reinterpret_cast<uint64_t>(block.data), source, bytes, on);
  if (result == CUDA_SUCCESS) result = synchronize_stream(c, on.stream);
  if (result == CUDA_SUCCESS) memcpy(destination, block.data, bytes);
  c->session->staging.give_back(block);
  return result;
}

CUresult between_servers(Context* c, uint64_t destination, uint64_t source, uint64_t bytes,
                         CopyStream on) {
  Context* from = context_for(c, source);
  Context* to = context_for(c, destination);
  if (on.stream != nullptr || on.async) {
    if (on.async)
      TENDRIL_TRY(
          look_before_wait("an asynchronous copy between GPUs of two servers", c, on.stream));
    TENDRIL_TRY(synchronize_stream(c, on.stream));
  }
  std::vector<uint8_t> bounce(bytes < kBounceBytes ? bytes : kBounceBytes);
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t piece = bytes - done < bounce.size() ? bytes - done : bounce.size();
    TENDRIL_TRY(copy_from_device(from, bounce.data(), source + done, piece, {}));
    TENDRIL_TRY(copy_to_device(to, destination + done, bounce.data(), piece, {}));
    done += piece;
  }
  // Work that the program orders behind this copy may run in any stream over there, and such
  // streams do not wait for the default one, which the pieces went down.
  return synchronize_stream(to, nullptr);
}

}  // namespace

// What other streams are given next comes after a copy on the legacy stream by itself, but for
// those that do not wait for it, and those of other contexts, which may see the memory as peers;
// and the program may tell another process next.
CUresult finish_copy(Context* c, CopyStream on) {
  if (on.stream != nullptr) return synchronize_stream(c, on.stream);
  // First the note, then the look: whoever sets one of these waits for what is noted afterwards, or
  // orders itself behind it.
  c->copied.store(c->session->serial.fetch_add(1) + 1);
  const Process* p = process();
  const bool matters =
      p->streams_apart.load() || p->contexts_share.load() || p->memory_is_shared.load();
  return matters ? synchronize_stream(c, nullptr) : CUDA_SUCCESS;
}

// Waits for those copies alone, and not for the legacy stream: another might never come to its end
// before this returns.
void copies_matter(std::atomic<bool>* reason, const Session* session) {
  reason->store(true);
  process()->contexts.for_each([session](Context* c) {
    if (c->active.load() == 0 || (session != nullptr && c->session != session)) return;
    uint64_t copied = c->copied.load();
    if (copied <= c->synchronised.load() || copied <= c->legacy_synchronised.load()) return;
    wire::cuda::copies_wait_request m;
    wire::cuda::copies_wait_reply r;
    const CUresult result =
        c->session->call(c, m, r);  // an error of a context's is told where it is used
    if (result == CUDA_SUCCESS) c->copied.compare_exchange_strong(copied, 0);
  });
}

namespace {

// A copy names managed or mapped memory as memory of the device: what the program wrote there
// before the copy goes first, and what a synchronous copy wrote is the program's when it returns.
bool before_mirrored_copy(Context* c, uint64_t address) {
  Range range;
  if (process()->written_mirrors.load(std::memory_order_relaxed) == 0 ||
      !process()->ranges.find(address, &range))
    return false;
  if (!range.host() || !range.mirrored || range.shared_with(c->session)) return false;
  mirror_before_work(c->session, c);
  return true;
}

CUresult after_mirrored_copy(Context* c, CopyStream on) {
  if (on.async) return CUDA_SUCCESS;
  TENDRIL_TRY(synchronize_stream(c, on.stream));
  mirror_after_wait(c->session, c);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult copy_to_device(Context* c, uint64_t destination, const void* source, uint64_t bytes,
                        CopyStream on) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (source == nullptr || destination == 0 || !fits(destination, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (is_capturing(on.stream))
    return capture_copy(c, destination, reinterpret_cast<uint64_t>(source), bytes, on);
  if (Context* to = context_for(c, destination); gpu_reaches(to, source, bytes))
    return copy_directly(to, destination, reinterpret_cast<uint64_t>(source), bytes, on);
  TENDRIL_TRY(settle_source(c, source, bytes, on));
  c = context_for(c, destination);
  const bool mirrored = before_mirrored_copy(c, destination);
  TENDRIL_TRY(hand_over(c, destination, source, bytes, on));
  if (mirrored) return after_mirrored_copy(c, on);
  TENDRIL_TRY(judge(c, destination, destination));
  return on.async ? CUDA_SUCCESS : finish_copy(c, on);
}

CUresult copy_from_device(Context* c, void* destination, uint64_t source, uint64_t bytes,
                          CopyStream on) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (destination == nullptr || source == 0 || !fits(source, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (is_capturing(on.stream))
    return capture_copy(c, reinterpret_cast<uint64_t>(destination), source, bytes, on);
  c = context_for(c, source);
  if (gpu_reaches(c, destination, bytes))
    return copy_directly(c, reinterpret_cast<uint64_t>(destination), source, bytes, on);
  session::Lane* lane = c->session->lane.get();
  Range range;
  (void)before_mirrored_copy(c, source);
  TENDRIL_TRY(settle_mirror(c, destination, bytes, on));
  if (on.async && is_host_range(reinterpret_cast<uint64_t>(destination), bytes, &range)) {
    wire::cuda::copy_from_device_async_request m;
    m.source = source;
    m.bytes = bytes;
    m.stream = wire_stream(on);
    m.host = reinterpret_cast<uint64_t>(destination);
    if (bytes > wire::kReplyInlineMax) {
      m.transfer = lane->new_transfer_id();
      lane->expect_bulk_async(m.transfer, destination, bytes);
      tally_bytes(bytes);
    }
    process()->reads.add({on.stream, c, m.host, bytes, true});
    lane->wait_is_near();
    TENDRIL_TRY(c->session->enqueue(c, m));
    return judge(c, source, source);
  }
  TENDRIL_TRY(bring(c, destination, source, bytes, on));
  mirror_after_wait(c->session, c);  // the kernels before it are over too
  return CUDA_SUCCESS;
}

CUresult copy_device(Context* c, uint64_t destination, uint64_t source, uint64_t bytes,
                     CopyStream on) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (destination == 0 || source == 0 || !fits(destination, bytes) || !fits(source, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (is_capturing(on.stream)) return capture_copy(c, destination, source, bytes, on);
  if (context_for(c, destination)->session != context_for(c, source)->session)
    return between_servers(c, destination, source, bytes, on);
  c = context_for(c, destination);
  (void)before_mirrored_copy(c, source);
  const bool mirrored = before_mirrored_copy(c, destination);
  TENDRIL_TRY(enqueue_copy(c, destination, source, bytes, on));
  if (mirrored) return after_mirrored_copy(c, on);
  TENDRIL_TRY(judge(c, destination, source));
  // Between contexts nothing else would order a synchronous copy before what the other context does
  // next.
  Range to, from;
  const bool known =
      process()->ranges.find(destination, &to) && process()->ranges.find(source, &from);
  return !on.async && known && to.context != from.context ? synchronize_stream(c, on.stream)
                                                          : CUDA_SUCCESS;
}

// Unified addressing: the map says which ends are device memory; what it does not know is the
// program's own memory.
CUresult copy_any(Context* c, uint64_t destination, uint64_t source, uint64_t bytes,
                  CopyStream on) {
  if (bytes == 0) return CUDA_SUCCESS;
  if (destination == 0 || source == 0) return CUDA_ERROR_INVALID_VALUE;
  Range to, from;
  const bool to_device = process()->ranges.find(destination, &to) && !to.host();
  const bool from_device = process()->ranges.find(source, &from) && !from.host();
  if (to_device && from_device) return copy_device(c, destination, source, bytes, on);
  if (to_device)
    return copy_to_device(c, destination, reinterpret_cast<const void*>(source), bytes, on);
  if (from_device)
    return copy_from_device(c, reinterpret_cast<void*>(destination), source, bytes, on);
  if (is_capturing(on.stream)) return capture_copy(c, destination, source, bytes, on);
  // Host to host still takes its turn in the stream.
  TENDRIL_TRY(synchronize_stream(c, on.stream));
  mirror_after_wait(c->session, c);
  memmove(reinterpret_cast<void*>(destination), reinterpret_cast<const void*>(source), bytes);
  return CUDA_SUCCESS;
}

namespace {

CUresult on_stream(CUstream hStream, Context** c, CopyStream* on) {
  TENDRIL_TRY(require_context(c));
  on->async = true;
  TENDRIL_TRY(require_stream(*c, hStream, &on->stream));
  if (on->stream != nullptr) *c = on->stream->context;
  return check_work(*c, on->stream);
}

// The stream of a synchronous copy: legacy, or this thread's default in a per-thread entry.
CUresult on_default(Context** c, CopyStream* on) {
  TENDRIL_TRY(require_context(c));
  TENDRIL_TRY(require_stream(*c, nullptr, &on->stream));
  return check_work(*c, on->stream, true);
}

}  // namespace

CUresult settle_for_reading(Context* c, const void* source, uint64_t bytes, CopyStream on) {
  return settle_source(c, source, bytes, on);
}
CUresult settle_for_writing(Context* c, const void* destination, uint64_t bytes, CopyStream on) {
  return settle_mirror(c, destination, bytes, on);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount) {
  Context* c = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_default(&c, &on));
  return copy_to_device(c, dstDevice, srcHost, ByteCount, on);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dstDevice, const void* srcHost, size_t ByteCount,
                              CUstream hStream) {
  Context* c = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_stream(hStream, &c, &on));
  return copy_to_device(c, dstDevice, srcHost, ByteCount, on);
}

CUresult cuMemcpyDtoH_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  Context* c = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_default(&c, &on));
  return copy_from_device(c, dstHost, srcDevice, ByteCount, on);
}

CUresult cuMemcpyDtoHAsync_v2(void* dstHost, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  Context* c = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_stream(hStream, &c, &on));
  return copy_from_device(c, dstHost, srcDevice, ByteCount, on);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount) {
  Context* c = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_default(&c, &on));
  return copy_device(c, dstDevice, srcDevice, ByteCount, on);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                              CUstream hStream) {
  Context* c = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_stream(hStream, &c, &on));
  return copy_device(c, dstDevice, srcDevice, ByteCount, on);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  Context* c = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_default(&c, &on));
  return copy_any(c, dst, src, ByteCount, on);
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream) {
  Context* c = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_stream(hStream, &c, &on));
  return copy_any(c, dst, src, ByteCount, on);
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                               CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
  Context* c = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_stream(hStream, &c, &on));
  if (on.stream == nullptr) return CUDA_ERROR_INVALID_VALUE;  // the legacy stream takes no batches
  if (count == 0 || dsts == nullptr || srcs == nullptr || sizes == nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  if (numAttrs == 0 || numAttrs > count || attrs == nullptr || attrsIdxs == nullptr ||
      attrsIdxs[0] != 0)
    return CUDA_ERROR_INVALID_VALUE;
  // Copies of a batch have no order among themselves; the order of the list is as good as any.
  for (size_t i = 0; i < count; ++i) TENDRIL_TRY(copy_any(c, dsts[i], srcs[i], sizes[i], on));
  return CUDA_SUCCESS;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* dsts, CUdeviceptr* srcs, size_t* sizes, size_t count,
                            CUmemcpyAttributes* attrs, size_t* attrsIdxs, size_t numAttrs,
                            size_t* failIdx, CUstream hStream) {
  if (failIdx != nullptr) *failIdx = SIZE_MAX;
  return cuMemcpyBatchAsync_v2(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, hStream);
}

CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                      CUcontext srcContext, size_t ByteCount) {
  Context* c = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_default(&c, &on));
  if (find_object(Kind::kContext, handle_value(dstContext)) == nullptr ||
      find_object(Kind::kContext, handle_value(srcContext)) == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return copy_device(c, dstDevice, srcDevice, ByteCount, on);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
  Context* c = nullptr;
  CopyStream on;
  TENDRIL_TRY(on_stream(hStream, &c, &on));
  if (find_object(Kind::kContext, handle_value(dstContext)) == nullptr ||
      find_object(Kind::kContext, handle_value(srcContext)) == nullptr) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return copy_device(c, dstDevice, srcDevice, ByteCount, on);
}

}  // namespace tendril::client::cuda

// SPDX-License-Identifier: Apache-2.0
// Copies between any two places, for the bodies of copies and for calls that must come after
// copies. Linear ones are in copy.cc, shaped ones in copy_shape.cc.
#pragma once

#include <atomic>
#include <cstdint>

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

// The place of a copy in the order of work. `stream` null and `async` false: the call is
// synchronous on the legacy stream.
struct CopyStream {
  Stream* stream = nullptr;  // null: the legacy stream
  bool async = false;
};

// The context of the memory at an address, if another server has it; else `current`.
Context* context_for(Context* current, uint64_t address);
// One end of a copy, with what the map of ranges knows of it.
struct End {
  uint64_t address, bytes;
  Range range;  // if known
  bool known;

  End(uint64_t address_, uint64_t bytes_)
      : address(address_), bytes(bytes_), known(process()->ranges.find(address_, &range)) {}
  End(const void* memory, uint64_t bytes_) : End(reinterpret_cast<uint64_t>(memory), bytes_) {}

  uint8_t* memory() const { return reinterpret_cast<uint8_t*>(address); }
  // All of it is pinned, registered or managed memory.
  bool is_host() const {
    return known && range.host() && bytes <= range.bytes - (address - range.base);
  }
  // Unknown addresses are left to the driver.
  bool fits() const { return !known || range.reaches(address, bytes); }
  // The context through which it is reached. If the memory is on another server: its own context.
  Context* context(Context* current) const {
    const bool elsewhere = known && range.context != nullptr && range.session != current->session;
    return elsewhere ? range.context : current;
  }
};
// A copy through `there`, in the order of `on`, whose stream may be another server's. Then this
// waits for that stream, and makes the copy a synchronous one.
CUresult bring_home(Context* context, const Context* there, CopyStream* on);

// The stream as calls name it: 0 for a synchronous copy on the legacy stream.
uint64_t wire_stream(CopyStream on);
// Asks for `bytes` bytes and waits until they are in `into`. A small number comes with the reply, a
// large one beside it.
template <typename Request, typename Answer>
CUresult fetch(Context* context, Request& request, Answer& reply, void* into, uint64_t bytes) {
  if (bytes <= wire::kReplyInlineMax)
    return context->session->call_for_bytes(context, request, into, bytes);
  session::Lane* lane = context->session->lane.get();
  request.transfer = lane->new_transfer_id();
  lane->expect_bulk(request.transfer, into, bytes);
  const CUresult result = context->session->call(context, request, reply);
  if (result != CUDA_SUCCESS)
    lane->cancel_bulk(request.transfer);
  else if (!context->session->wait_bulk(request.transfer, bytes))
    return Session::lost_result();
  return result;
}

CUresult copy_to_device(Context* context, uint64_t destination, const void* source, uint64_t bytes,
                        CopyStream on);
CUresult copy_from_device(Context* context, void* destination, uint64_t source, uint64_t bytes,
                          CopyStream on);
CUresult copy_device(Context* context, uint64_t destination, uint64_t source, uint64_t bytes,
                     CopyStream on);
// The map of ranges says what each end is.
CUresult copy_any(Context* context, uint64_t destination, uint64_t source, uint64_t bytes,
                  CopyStream on);

// For host memory that a shaped copy is about to read or write. Waits for the work that must come
// first.
CUresult settle_for_reading(Context* context, const void* source, uint64_t bytes, CopyStream on);
CUresult settle_for_writing(Context* context, const void* destination, uint64_t bytes,
                            CopyStream on);

// Ends a synchronous copy to the device, which was enqueued. All work that the program enqueues
// later, in any stream, comes after the copy. The worker makes the first stream that does not wait
// for the legacy one wait for the copies.
CUresult finish_copy(Context* context, CopyStream on);
// `reason` is a flag of Process. From now on every synchronous copy is waited for. Also waits for
// the earlier copies in the contexts of `session` (null: of all sessions) that nobody has waited
// for.
void copies_matter(std::atomic<bool>* reason, const Session* session);
// From now on other processes see memory of this one, or this one sees theirs. So when a
// synchronous copy returns, its data must be there.
inline void memory_is_shared() { copies_matter(&process()->memory_is_shared, nullptr); }

// A graph was launched in `stream`. What its copies write reaches pinned memory only with a wait.
void remember_graph_writes(Context* context, Stream* stream);

}  // namespace tendril::client::cuda

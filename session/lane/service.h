// SPDX-License-Identifier: Apache-2.0
// The worker's end of a session. It takes calls off the lane in order and sends replies, deliveries
// and bulk data. One executor thread calls `next`. Any thread may reply, push, send bulk or attend.
//
// The peer is hostile. Every length is checked before it is used. A malformed record ends the
// session with a clear message and does nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "transport/transport.h"
#include "wire/frame.h"
#include "wire/session_counts.h"

namespace tendril::session {

struct Call {
  uint16_t opcode = 0;
  uint16_t flags = 0;
  uint32_t context = 0;
  uint32_t reply_id = 0;
  const uint8_t* body = nullptr;  // 8-byte aligned; valid until the next call of `next`
  uint32_t bytes = 0;
};

// A piece of an incoming bulk transfer, in a slot of the pool below. Return it with release. Hold
// at most half of the pool's slots at a time. The other half keeps the network busy and the session
// free of deadlock.
struct Piece {
  uint8_t* data = nullptr;
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t slot = 0;
  // So many of its first bytes are not in the slot, but where `aim` wanted them.
  uint32_t placed = 0;
};

// A GPU's memory, as a service reads it where no card does. Any thread; blocks.
class DeviceReader {
 public:
  // False: it cannot be read, so what is in `into` means nothing.
  virtual bool read(uint64_t address, void* into, uint64_t bytes) = 0;

 protected:
  ~DeviceReader() = default;
};

// Memory for bulk slots of kChunkBytesMax each. The worker passes pinned memory once its context
// exists. 64 slots hide the latency of a fast network; 4 are the minimum. If empty, the service
// uses pageable memory of its own.
struct SlotPool {
  uint8_t* base = nullptr;
  uint32_t slots = 0;
};

class Service {
 public:
  // `counts`: where traffic is counted; must outlive the service. Null: nobody reads the counts.
  static std::unique_ptr<Service> open(std::unique_ptr<transport::Channel> command,
                                       std::unique_ptr<transport::Channel>* bulk, size_t bulk_count,
                                       SlotPool pool, wire::SessionCounts* counts = nullptr);
  virtual ~Service() = default;
  virtual wire::SessionCounts& counts() = 0;

  // The next call, in order. Spins for spin_us before it sleeps. kTimeout after timeout_ms; kClosed
  // at the end of the session.
  virtual base::Result<Call> next(transport::Wait wait) = 0;
  // Takes up to `max` calls that follow the current one and are like it: same opcode, same context,
  // no reply, completely received. Their bodies stay valid as long as the current call's. Returns
  // how many. Executor only.
  virtual size_t take_alike(const Call& current, Call* calls, size_t max) = 0;
  // For calls that must not wait in line, because the executor may be waiting for their content.
  // `attend` shows every call that it finds to `taken`. If `taken` returns true, `next` will not
  // return that call. `taken` must not call the service. Set it before the first `next`.
  virtual void on_sight(std::function<bool(const Call&)> taken) = 0;
  // Receives what has arrived, unless another thread is receiving. Shows `taken` the calls that
  // `next` has not returned. Never waits. A thread that waits for such a call must attend now and
  // then. False: the session has ended.
  virtual bool attend() = 0;
  // True when a call, or part of one, has arrived. The executor uses it to decide whether to go on
  // polling. It sends waiting replies, so an executor that polls with it need not flush. Executor
  // only.
  virtual bool pending() = 0;

  virtual void reply(uint32_t reply_id, int32_t result, const void* body, uint32_t bytes) = 0;
  // Sends `body` followed by `more`, without copying them together.
  virtual void reply2(uint32_t reply_id, int32_t result, const void* body, uint32_t bytes,
                      const void* more, uint32_t more_bytes) = 0;
  // Puts bytes into the client's memory at `address`, before the client looks at any later frame.
  // At most kReplyInlineMax bytes.
  virtual void deliver(uint64_t address, const void* data, uint32_t bytes) = 0;
  virtual void push(wire::FrameKind kind, int32_t result, const void* body, uint32_t bytes) = 0;
  // Announces that every byte of `transfer` has been handed to send_bulk.
  virtual void transfer_sent(uint64_t transfer) = 0;
  // Replaces transfer_sent when not all bytes will come. The client ends its registration. result
  // != 0.
  virtual void transfer_failed(uint64_t transfer, int32_t result) = 0;
  // Frames of the executor's thread are collected while it has more calls to run. Frames of other
  // threads leave at once. flush sends the collected frames now. `next` flushes before it sleeps,
  // before it returns a call that wants a reply, and after 10 us. Flush before anything slow.
  virtual void flush() = 0;

  // Incoming bulk: blocks until the next piece of `transfer` has arrived. Pieces come in any order.
  // False: the session has ended. The first take lets the client send the rest. Take every piece,
  // or call discard. Executor only, when the session has no bulk channels.
  virtual bool take(uint64_t transfer, Piece* piece) = 0;
  virtual void release(const Piece& piece) = 0;
  // From now on cards may put the transfer's data straight to a GPU's memory, `bytes` from
  // `address`, each piece at its offset (transport/device_memory.h). `take` says what they put
  // there. Before the first take; end it with `unaim`.
  virtual void aim(uint64_t transfer, uint64_t address, uint64_t bytes) = 0;
  // Afterwards nothing is put there any more. Blocks until what is on the way has come or failed.
  virtual void unaim(uint64_t transfer) = 0;
  // Transfers will be aimed. So data that come before their call wait a moment for it, outside of
  // the slots.
  virtual void expect_aims() = 0;
  // Incoming bulk whose place is known: blocks until all `bytes` of `transfer` lie at `into`. What
  // has not come yet is received there; what has come is copied. False: the session has ended, also
  // because the pieces are not those `bytes`. Afterwards nothing writes to `into`. Executor only.
  virtual bool take_into(uint64_t transfer, void* into, uint64_t bytes) = 0;
  // For a transfer whose call has failed: drops the pieces that have come and will come, and lets
  // the client go on.
  virtual void discard(uint64_t transfer) = 0;
  // Outgoing bulk: sends data[0, bytes) as the part of `transfer` at `offset`. Blocks for flow
  // control. Any thread.
  virtual bool send_bulk(uint64_t transfer, uint64_t offset, const void* data, uint64_t bytes) = 0;
  // The same from a GPU's memory: by cards, as far as they do; `reader` reads the rest. Not in a
  // session without bulk channels. False: the session has ended, or the reader failed; then what
  // has been sent means nothing.
  virtual bool send_device_bulk(uint64_t transfer, uint64_t offset, uint64_t address,
                                uint64_t bytes, DeviceReader* reader) = 0;

  // Ends the session: tells the client why, then closes. May be called repeatedly, from any thread.
  virtual void end(const char* why) = 0;
};

}  // namespace tendril::session

// SPDX-License-Identifier: Apache-2.0
// The worker's end of a session: takes calls off the lane in order, sends replies, deliveries and
// bulk data. One executor thread calls `next`; any thread may reply, push, send bulk or attend. The
// peer is hostile: every length is checked before it is believed, and a malformed record ends the
// session with a clear message, nothing else.
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
  const uint8_t* body = nullptr;  // 8-byte aligned, valid until the next `next`
  uint32_t bytes = 0;
};

// A piece of an incoming bulk transfer, in a slot of the pool below. Give it back with release.
// Hold at most half of the pool's slots at a time: the others are what keeps the network busy and
// the session free of deadlock.
struct Piece {
  uint8_t* data = nullptr;
  uint64_t offset = 0;
  uint32_t bytes = 0;
  uint32_t slot = 0;
};

// Memory for bulk slots: the worker gives pinned memory once its context exists. Slots are
// kChunkBytesMax each; 64 of them hide the latency of a fast network, 4 are the least. Empty: the
// service uses pageable memory of its own.
struct SlotPool {
  uint8_t* base = nullptr;
  uint32_t slots = 0;
};

class Service {
 public:
  // `counts`: where to count what passes; outlives the service. Null: nobody looks.
  static std::unique_ptr<Service> open(std::unique_ptr<transport::Channel> command,
                                       std::unique_ptr<transport::Channel>* bulk, size_t bulk_count,
                                       SlotPool pool, wire::SessionCounts* counts = nullptr);
  virtual ~Service() = default;
  virtual wire::SessionCounts& counts() = 0;

  // The next call, in order. spin_us: burn this long before sleeping. kTimeout when timeout_ms
  // passed; kClosed at the end.
  virtual base::Result<Call> next(transport::Wait wait) = 0;
  // Takes up to `max` of the calls that follow the current one and are like it: same opcode and
  // context, no reply, arrived whole. Their bodies are valid as long as the current one's. How
  // many. Executor only.
  virtual size_t take_alike(const Call& current, Call* calls, size_t max) = 0;
  // For calls that must not wait for their turn, because the executor may be waiting for what they
  // tell: `taken` sees every call that `attend` finds, and when it answers true, `next` will not
  // return that call. It must not call back. Set before the first next.
  virtual void on_sight(std::function<bool(const Call&)> taken) = 0;
  // Receives what has arrived, unless another thread does, and shows the calls that `next` has not
  // returned to `taken`. Never waits. Any thread that waits for such a call attends now and then.
  // False: the session has ended.
  virtual bool attend() = 0;
  // True when a call (or part of one) has already arrived: the executor uses it to decide whether
  // to keep polling waits. Executor only; sends replies that are waiting, so an executor that polls
  // with it need not flush.
  virtual bool pending() = 0;

  virtual void reply(uint32_t reply_id, int32_t result, const void* body, uint32_t bytes) = 0;
  // `prefix` then `data`: gathers without copying.
  virtual void reply2(uint32_t reply_id, int32_t result, const void* body, uint32_t bytes,
                      const void* more, uint32_t more_bytes) = 0;
  // Puts bytes into the client's memory at `address`, before any later frame is looked at. bytes <=
  // kReplyInlineMax.
  virtual void deliver(uint64_t address, const void* data, uint32_t bytes) = 0;
  virtual void push(wire::FrameKind kind, int32_t result, const void* body, uint32_t bytes) = 0;
  // Announces that every byte of `transfer` was handed to send_bulk.
  virtual void transfer_sent(uint64_t transfer) = 0;
  // In place of transfer_sent when the bytes will not (all) come: the client ends its registration.
  // result != 0.
  virtual void transfer_failed(uint64_t transfer, int32_t result) = 0;
  // What the executor's thread replies and pushes is coalesced while it has more calls to run
  // (other threads' frames leave at once); flush sends it now. `next` flushes before it sleeps,
  // before a call that wants a reply, and after 10 us. Flush before anything slow.
  virtual void flush() = 0;

  // Incoming bulk: blocks until the next piece of `transfer` is there (pieces come in any order).
  // False: session ended. The first take lets the client send the rest. Take every piece, or
  // discard. Executor only when the session has no bulk channels.
  virtual bool take(uint64_t transfer, Piece* piece) = 0;
  virtual void release(const Piece& piece) = 0;
  // The call that names the transfer failed: what has come and what will come of it is dropped, and
  // the client is let go.
  virtual void discard(uint64_t transfer) = 0;
  // Outgoing bulk: sends data[0, bytes) as the part of `transfer` at `offset`. Blocks for flow
  // control. Any thread.
  virtual bool send_bulk(uint64_t transfer, uint64_t offset, const void* data, uint64_t bytes) = 0;

  // Ends the session: tells the client why, then closes. Idempotent, any thread.
  virtual void end(const char* why) = 0;
};

}  // namespace tendril::session

// SPDX-License-Identifier: Apache-2.0
// The client's end of a session: one totally ordered lane of calls to one worker, with replies,
// deliveries and bulk transfers. Client threads share a lane. A thread holds the lane's lock only
// while it encodes one call. Enqueuing allocates nothing. It makes no system call, except that it
// sends now and then. Nothing here knows what a call means.
//
// Order: calls reach the worker in the order of `commit`, over all threads. A caller sees a reply
// after every delivery and transfer that the worker announced before it.
//
// Loss: when the peer is lost, every reply says so (Reply::lost), for ever. Nothing is retried.
// Once a function here has reported the loss, nothing writes to the program's memory any more,
// registered or not.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace tendril::session {

// What the client library supplies to a lane. The lane calls it on the thread that is receiving,
// and never holds its lock meanwhile. The callee may begin and commit calls. It must not wait on
// the lane.
class LaneEvents {
 public:
  virtual ~LaneEvents() = default;
  // May the worker write here? True only for host memory that an earlier call named as a
  // destination.
  virtual bool accepts_delivery(uint64_t address, uint64_t bytes) = 0;
  // The data of an asynchronous copy has arrived. That copy writes this memory no more.
  virtual void delivered(uint64_t address, uint64_t bytes) = 0;
  virtual void output(const char* text, size_t bytes) = 0;  // device printf
  virtual void callback(const uint8_t* body,
                        size_t bytes) = 0;  // a host function: run it, then answer with a call
  virtual bool awaits_callbacks() = 0;      // may a callback come? Then some thread must receive
  virtual void sticky_error(int32_t result, const char* text, size_t bytes) = 0;
  virtual void memory_written() = 0;  // GPUs wrote host memory: ask which
  virtual void news(const uint8_t* /*body*/, size_t /*bytes*/) {}  // the API's own
  virtual void lost(const base::Status& why) = 0;                  // exactly once
};

// A reply. `body` stays valid until the same thread's next wait on the same lane.
struct Reply {
  int32_t result = 0;
  const uint8_t* body = nullptr;
  uint32_t bytes = 0;
  bool placed = false;  // the bytes are where expect_bytes wanted them
  bool lost = false;    // no answer: the session is lost
};

struct LaneStats {
  std::atomic<uint64_t> calls{0}, round_trips{0}, bytes_sent{0}, bytes_received{0}, sends{0},
      bulk_bytes{0};
};

class Lane {
 public:
  // Takes ownership of the channels. If `bulk` is empty, large data travels on the command lane in
  // pieces.
  static std::unique_ptr<Lane> open(std::unique_ptr<transport::Channel> command,
                                    std::unique_ptr<transport::Channel>* bulk, size_t bulk_count,
                                    LaneEvents* events);
  virtual ~Lane() = default;

  // Starts one call and returns where its body goes, 8-byte aligned. `body_bytes` is at most
  // kCallBytesMax - 16. The lane stays locked until commit. Null means that the session is lost:
  // then do not commit.
  //
  // reply_id 0: no reply is wanted. Otherwise the caller must wait for the reply. Until wait, flush
  // or send_bulk, a call with a reply id may stay unsent, because a thread that wants a reply soon
  // waits for it.
  virtual uint8_t* begin(uint16_t opcode, uint32_t context, uint32_t body_bytes,
                         uint32_t reply_id) = 0;
  virtual void commit() = 0;
  // The caller will wait soon after the next call, as after a copy to the client. For some
  // microseconds nobody else sends that call, so that it and the call that is waited for make one
  // message.
  virtual void wait_is_near() = 0;

  // begin blocks while the worker still has wire::kCallsAheadMax calls to run. Exceptions: the
  // receiving thread, and from here on this thread. The worker may be waiting for what they send.
  static void exempt_this_thread();

  // A new reply id, never 0. Thread-safe.
  virtual uint32_t new_reply_id() = 0;
  // Call it between begin and commit. Expects a reply body of 8 bytes, then `bytes` bytes, padded.
  // The latter go straight to `into`, which must stay valid until the wait is over. A body of
  // another length stays with the reply, as usual.
  virtual void expect_bytes(uint32_t reply_id, void* into, uint32_t bytes) = 0;
  // Sends pending calls and waits for the reply. Any number of threads may wait. One of them
  // receives for all.
  virtual Reply wait(uint32_t reply_id) = 0;
  // Whether wait would return at once. For threads that wait on several lanes: they pump each.
  virtual bool answered(uint32_t reply_id) = 0;
  // For a call whose answer has no body, and that nobody may come to wait for. True: the answer is
  // there, *result has it, and the reply is over.
  virtual bool take_result(uint32_t reply_id, int32_t* result) = 0;
  // Nobody wants the reply any more. It is dropped when it comes.
  virtual void drop_reply(uint32_t reply_id) = 0;
  // Handles frames that have already arrived, without waiting. For threads that poll (event
  // queries) and for idle times.
  virtual void pump() = 0;
  // Sends pending calls now.
  virtual void flush() = 0;

  // Bulk, client -> worker. Returns when `data` may be reused; false when the session is lost.
  // Flushes pending calls.
  //
  // Commit the call that names the transfer *first*. After a few chunks the rest is not sent until
  // the worker takes the transfer. That bounds the worker's memory and prevents deadlock, however
  // many threads send at once.
  virtual uint64_t new_transfer_id() = 0;
  // Without them large data travels on the command lane.
  virtual bool has_bulk_channels() const = 0;
  virtual bool send_bulk(uint64_t transfer, const void* data, uint64_t bytes) = 0;
  // From now on what send_bulk has handed over is added here, chunk by chunk. It outlives the lane.
  // Call it before the first transfer.
  virtual void count_into(std::atomic<uint64_t>* sent_bytes) = 0;
  // Bulk, worker -> client. Register before committing the call that asks for the data. `wait_bulk`
  // returns when every byte has arrived, or false when the session is lost. It also ends the
  // registration.
  virtual void expect_bulk(uint64_t transfer, void* into, uint64_t bytes) = 0;
  virtual bool wait_bulk(uint64_t transfer) = 0;
  // Ends a registration whose bytes will not come, because the reply said so. After it returns,
  // nothing writes to that memory. Does nothing for a transfer that is not registered.
  virtual void cancel_bulk(uint64_t transfer) = 0;
  // Like expect_bulk, for asynchronous copies. The registration ends by itself when the worker's
  // kTransfer frame and all bytes have arrived. So whoever receives a later reply knows that the
  // data is there.
  virtual void expect_bulk_async(uint64_t transfer, void* into, uint64_t bytes) = 0;

  // Starts a thread that receives even when nobody waits. Host functions need one. A second call
  // starts none, but makes the thread look at once.
  virtual void start_receiver() = 0;

  virtual bool is_lost() const = 0;
  virtual const char* transport_kind() const = 0;
  virtual const LaneStats& stats() const = 0;
  // For the child, after fork: forgets the peer without sending or waiting. The lane is lost from
  // then on. It may be deleted.
  virtual void abandon_after_fork() = 0;
  // Ends the session politely: flush, goodbye, wait until the worker has finished, shutdown. Never
  // blocks longer than timeout_ms. Does not call `lost`.
  virtual void close(int timeout_ms) = 0;
};

}  // namespace tendril::session

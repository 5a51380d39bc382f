// SPDX-License-Identifier: Apache-2.0
// The client's end of a session: one totally ordered lane of calls to one worker, replies,
// deliveries and bulk transfers. Client threads share a lane. Its lock is held only while one call
// is encoded. Enqueuing allocates nothing, and makes no system call except, now and then, the send.
// Nothing here knows what a call means.
//
// Order: calls reach the worker in the order in which `commit` was called, over all threads. A
// reply is seen after every delivery and transfer that the worker announced before it. When the
// peer is lost, every reply says so (Reply::lost), for ever; nothing is retried. After any function
// here has told of the loss, nothing is written to the program's memory, registered or not.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "transport/transport.h"
#include "wire/frame.h"

namespace tendril::session {

// What the client library supplies to a lane. Called on the thread that receives just then, never
// with the lane locked. It may begin and commit calls, and must not wait on the lane.
class LaneEvents {
 public:
  virtual ~LaneEvents() = default;
  // May the worker write here? Must return true only for host memory that an earlier call named as
  // a destination.
  virtual bool accepts_delivery(uint64_t address, uint64_t bytes) = 0;
  // What an asynchronous copy had to bring is there: nothing writes this memory any more on that
  // call's account.
  virtual void delivered(uint64_t address, uint64_t bytes) = 0;
  virtual void output(const char* text, size_t bytes) = 0;  // device printf
  virtual void callback(const uint8_t* body,
                        size_t bytes) = 0;  // run it; answer with a call of your own
  virtual bool awaits_callbacks() = 0;      // may one come? Then somebody must receive
  virtual void sticky_error(int32_t result, const char* text, size_t bytes) = 0;
  virtual void memory_written() = 0;               // by GPUs: ask what they wrote
  virtual void lost(const base::Status& why) = 0;  // exactly once
};

// A reply in the caller's hands. `body` lives until the next wait of the same thread on the same
// lane.
struct Reply {
  int32_t result = 0;
  const uint8_t* body = nullptr;
  uint32_t bytes = 0;
  bool placed = false;  // what expect_bytes asked for is there
  bool lost = false;    // no answer: the session is gone
};

struct LaneStats {
  std::atomic<uint64_t> calls{0}, round_trips{0}, bytes_sent{0}, bytes_received{0}, sends{0},
      bulk_bytes{0};
};

class Lane {
 public:
  // Takes the channels over. `bulk` may be empty: large data then travels on the command lane in
  // pieces.
  static std::unique_ptr<Lane> open(std::unique_ptr<transport::Channel> command,
                                    std::unique_ptr<transport::Channel>* bulk, size_t bulk_count,
                                    LaneEvents* events);
  virtual ~Lane() = default;

  // Starts one call with `body_bytes` of body (at most kCallBytesMax - 16) and returns where the
  // body goes, 8-byte aligned; the lane stays locked until commit. Null when the session is lost
  // (then do not commit). reply_id 0: enqueue only. A call with a reply id may stay here until
  // wait, flush or send_bulk: a thread that asks for a reply soon waits for it. Every reply id must
  // be waited for.
  virtual uint8_t* begin(uint16_t opcode, uint32_t context, uint32_t body_bytes,
                         uint32_t reply_id) = 0;
  virtual void commit() = 0;
  // A wait follows the next call soon, as after a copy to the client: for some microseconds that
  // call is left to it, so that both are one message.
  virtual void wait_is_near() = 0;

  // Beyond wire::kCallsAheadMax calls that the worker has not run, begin waits for it. Not so for
  // the receiving thread and, from here on, for this one: what it sends may be what the worker is
  // waiting for.
  static void exempt_this_thread();

  // A fresh reply id (never 0). Thread-safe.
  virtual uint32_t new_reply_id() = 0;
  // Between begin and commit: the reply's body is to be 8 bytes and then `bytes` bytes, padded, and
  // these go straight to `into`, which must stay until the wait is over. A body of another length
  // stays with the reply as any does.
  virtual void expect_bytes(uint32_t reply_id, void* into, uint32_t bytes) = 0;
  // Sends what is pending and waits for the reply. Any number of threads may wait; one of them
  // receives for all.
  virtual Reply wait(uint32_t reply_id) = 0;
  // Handles frames that have already arrived, without waiting. For pollers (event queries) and idle
  // times.
  virtual void pump() = 0;
  // Pushes pending calls to the wire now.
  virtual void flush() = 0;

  // Bulk, client -> worker. Returns when `data` may be reused; false: lost. Commit the call that
  // names the transfer *first*: beyond a few chunks the worker must take the transfer before the
  // rest is sent, which is what keeps its memory bounded and free of deadlock however many threads
  // send at once. Calls pending on the lane are flushed.
  virtual uint64_t new_transfer_id() = 0;
  // Otherwise large data travels on the command lane.
  virtual bool has_bulk_channels() const = 0;
  virtual bool send_bulk(uint64_t transfer, const void* data, uint64_t bytes) = 0;
  // Bulk, worker -> client. Register before committing the call that asks for it. `wait_bulk`
  // returns when every byte has arrived (false: lost); it also ends the registration.
  virtual void expect_bulk(uint64_t transfer, void* into, uint64_t bytes) = 0;
  virtual bool wait_bulk(uint64_t transfer) = 0;
  // Ends a registration whose bytes will not come (the reply said so). Nothing is written to its
  // memory after this returns. For a transfer not registered (any more): nothing.
  virtual void cancel_bulk(uint64_t transfer) = 0;
  // As expect_bulk, for asynchronous copies: the registration ends by itself when the worker's
  // kTransfer frame has been seen and all bytes are in; waiters of later replies then know the data
  // is there.
  virtual void expect_bulk_async(uint64_t transfer, void* into, uint64_t bytes) = 0;

  // A thread that receives even when nobody waits (host functions need one). Started once, on
  // demand; called again, it looks at once.
  virtual void start_receiver() = 0;

  virtual bool is_lost() const = 0;
  virtual const char* transport_kind() const = 0;
  virtual const LaneStats& stats() const = 0;
  // After fork, in the child: forget the peer without sending or waiting for anything. The lane is
  // lost from then on; it may be deleted.
  virtual void abandon_after_fork() = 0;
  // Polite end: flush, goodbye, wait for the worker to finish, shutdown. Never blocks longer than
  // timeout_ms. Does not call `lost`.
  virtual void close(int timeout_ms) = 0;
};

}  // namespace tendril::session

// SPDX-License-Identifier: Apache-2.0
// The contract of a channel: ordered, reliable bytes between two processes. It knows no calls, no
// handles, no API. session/ builds lanes and bulk transfers on it; tcp/ and shm/ implement it, and
// testing/ wraps any. What a whole transport is, says registry.h.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace tendril::transport {

// How long a receiver may burn CPU before it sleeps, and how long it may sleep. timeout_ms < 0: for
// ever.
struct Wait {
  uint32_t spin_us = 0;
  int32_t timeout_ms = -1;
};

// The sending half of a channel whose bytes lie in memory shared with the peer: the sender writes
// them in place. One sender at a time.
class OutgoingRing {
 public:
  virtual ~OutgoingRing() = default;
  // `bytes` contiguous writable bytes after what was published, or null while there is no room (or
  // the peer is gone).
  virtual uint8_t* reserve(size_t bytes) = 0;
  // Hands the first `bytes` of the reservation to the peer and wakes it if it sleeps.
  virtual void publish(size_t bytes) = 0;
  // Sleeps until `bytes` are free, at most timeout_ms. kTimeout, kClosed.
  virtual base::Status wait_room(size_t bytes, int timeout_ms) = 0;
};

// The destructor closes descriptors and unmaps memory, nothing else: no goodbye, no shutdown. A
// forked child may run it.
class Channel {
 public:
  virtual ~Channel() = default;

  // Sends every byte of every part, in one system call where the kernel takes it whole. Blocks for
  // flow control. One sender at a time (callers lock). kClosed when the peer is gone; never raises
  // SIGPIPE.
  virtual base::Status send(const iovec* parts, int count) = 0;

  // As send, but takes only what fits: waits at most timeout_ms for room; the number of bytes
  // taken, 0 when there was no room.
  virtual base::Result<size_t> send_some(const iovec* parts, int count, int timeout_ms) = 0;

  // The memory that send would copy into, when the transport has such; else null. Lives as long as
  // the channel.
  virtual OutgoingRing* ring() { return nullptr; }

  // Receives at least `min` and at most `max` bytes; min = 0 polls. One receiver at a time. kClosed
  // at end of stream, kTimeout when not even one byte came in time; once the first byte is there
  // the rest of `min` is waited for.
  virtual base::Result<size_t> receive(void* into, size_t min, size_t max, Wait wait) = 0;

  // Wakes both directions on both ends; any thread, any number of times. Later calls answer
  // kClosed.
  virtual void shutdown() = 0;

  // "tcp", "shm", "loopback", ...; wrappers say "shaped(tcp)".
  virtual const char* kind() const = 0;
};

}  // namespace tendril::transport

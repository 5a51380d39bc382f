// SPDX-License-Identifier: Apache-2.0
// The contract of a channel: ordered, reliable bytes between two processes. A channel knows no
// calls, no handles and no API. session/ builds lanes and bulk transfers on it. tcp/ and shm/
// implement it, and testing/ wraps any channel. registry.h describes a whole transport.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace tendril::transport {

// How long a receiver may spin before it sleeps, and how long it may sleep. timeout_ms < 0: for
// ever.
struct Wait {
  uint32_t spin_us = 0;
  int32_t timeout_ms = -1;
};

// The sending half of a channel in memory shared with the peer. The sender writes the bytes in
// place. One sender at a time.
class OutgoingRing {
 public:
  virtual ~OutgoingRing() = default;
  // `bytes` contiguous writable bytes after the published ones. Null while there is no room, or if
  // the peer is gone.
  virtual uint8_t* reserve(size_t bytes) = 0;
  // Hands the first `bytes` of the reservation to the peer and wakes it if it sleeps.
  virtual void publish(size_t bytes) = 0;
  // Sleeps until `bytes` are free, at most timeout_ms. kTimeout, kClosed.
  virtual base::Status wait_room(size_t bytes, int timeout_ms) = 0;
};

// The destructor only closes descriptors and unmaps memory: no goodbye, no shutdown. A forked child
// may run it.
class Channel {
 public:
  virtual ~Channel() = default;

  // Sends every byte of every part, in one system call if the kernel takes it all. Blocks for flow
  // control. One sender at a time (callers lock). kClosed when the peer is gone. Never raises
  // SIGPIPE.
  virtual base::Status send(const iovec* parts, int count) = 0;

  // Like send, but takes only what fits. Waits at most timeout_ms for room. Returns the number of
  // bytes taken, 0 if there was no room.
  virtual base::Result<size_t> send_some(const iovec* parts, int count, int timeout_ms) = 0;

  // The memory that send would copy into; null if the transport has none. Lives as long as the
  // channel.
  virtual OutgoingRing* ring() { return nullptr; }

  // Receives at least `min` and at most `max` bytes; min = 0 polls. One receiver at a time. kClosed
  // at the end of the stream. kTimeout if not even one byte came in time. After the first byte it
  // waits for the rest of `min`.
  virtual base::Result<size_t> receive(void* into, size_t min, size_t max, Wait wait) = 0;

  // The same for a GPU's memory (device_memory.h), which no processor touches. They move what goes
  // without one, and wait as send_some and receive do. kUnsupported: the next bytes do not go so,
  // or not any more; send_some and receive take them from other memory. Whoever got 0 from sending
  // must offer the same again, until it gets something else. Nothing reads or writes the memory
  // after any other answer.
  virtual base::Result<size_t> send_from_device(uint64_t /*address*/, size_t /*bytes*/,
                                                int /*timeout_ms*/) {
    return base::Status(base::Code::kUnsupported, "no card of this channel reaches GPUs");
  }
  virtual base::Result<size_t> receive_to_device(uint64_t /*address*/, size_t /*max*/) {
    return base::Status(base::Code::kUnsupported, "no card of this channel reaches GPUs");
  }

  // Wakes both directions on both ends. Any thread, any number of times. Later calls return
  // kClosed.
  virtual void shutdown() = 0;

  // "tcp", "shm", "loopback", ...; wrappers say "shaped(tcp)".
  virtual const char* kind() const = 0;
};

}  // namespace tendril::transport

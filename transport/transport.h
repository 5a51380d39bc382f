// SPDX-License-Identifier: Apache-2.0
// The contract every transport fulfils: ordered, reliable byte channels between two processes. Knows bytes only: no calls, no
// handles, no API. session/ builds lanes and bulk transfers on it; tcp/, shm/, loopback/ implement it; faulty.h and shaped.h wrap any.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace tendril::transport {

// How long a receiver may burn CPU before it sleeps, and how long it may sleep. timeout_ms < 0: for ever.
struct Wait {
  uint32_t spin_us = 0;
  int32_t timeout_ms = -1;
};

class Channel {
 public:
  virtual ~Channel() = default;

  // Sends every byte of every part, in one system call where the kernel takes it whole. Blocks for flow control. One sender at a
  // time (callers lock). kClosed when the peer is gone; never raises SIGPIPE.
  virtual base::Status send(const iovec* parts, int count) = 0;

  // Receives at least `min` and at most `max` bytes; min = 0 polls. One receiver at a time. kClosed at end of stream, kTimeout.
  virtual base::Result<size_t> receive(void* into, size_t min, size_t max, Wait wait) = 0;

  // Wakes both directions on both ends; any thread, any number of times. Later calls answer kClosed.
  virtual void shutdown() = 0;

  // "tcp", "shm", "loopback", ...; wrappers say "shaped(tcp)".
  virtual const char* kind() const = 0;
};

}  // namespace tendril::transport

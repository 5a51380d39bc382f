// SPDX-License-Identifier: Apache-2.0
// A channel that misbehaves on purpose, reproducibly: it ends after n bytes, moves bytes in short
// pieces, or flips a bit. Wraps any channel; for tests. The code above it must end with an error.
// It must never hang or believe what it reads.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace tendril::transport {

inline constexpr uint64_t kNever = UINT64_MAX;

struct Faults {
  uint64_t seed = 1;
  bool short_pieces = false;         // sends and receives in pieces of about 1 to 64 bytes
  uint64_t end_after_sent = kNever;  // both directions end once this many bytes were sent
  uint64_t end_after_received = kNever;
  uint64_t corrupt_sent_at = kNever;  // one bit of the byte at this position is flipped
  uint64_t corrupt_received_at = kNever;
};

std::unique_ptr<Channel> faulty(std::unique_ptr<Channel> inner, const Faults& faults);

}  // namespace tendril::transport

// SPDX-License-Identifier: Apache-2.0
// A channel that misbehaves on purpose, reproducibly: ends after n bytes, moves bytes in short
// pieces, flips a bit. Wraps any channel; for tests. What is above it must end with an error, never
// hang or believe what it reads.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace tendril::transport {

inline constexpr uint64_t kNever = UINT64_MAX;

struct Faults {
  uint64_t seed = 1;
  bool short_pieces = false;         // sends and receives in pieces of 1 to 64 bytes or so
  uint64_t end_after_sent = kNever;  // both directions end once this many bytes were sent
  uint64_t end_after_received = kNever;
  uint64_t corrupt_sent_at = kNever;  // one bit of the byte at this position is flipped
  uint64_t corrupt_received_at = kNever;
};

std::unique_ptr<Channel> faulty(std::unique_ptr<Channel> inner, const Faults& faults);

}  // namespace tendril::transport

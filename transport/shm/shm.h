// SPDX-License-Identifier: Apache-2.0
// Channels through memory that two processes of one host share: one memory object per session, two
// byte rings per channel, futexes in the memory. The peer may scribble over all of it: indices are
// read once and checked, sizes are fixed by seals. Beside the memory a connected socket stays open;
// when it ends, the peer is dead and every channel of the session is closed within 100 ms.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "transport/transport.h"

namespace tendril::transport {

// Rings go round: each page of one is touched for the first time by some copy, which then takes
// several times as long, and what is larger than the processor's caches is copied through memory.
// So they are no larger than calls and the pipelining of copies need.
struct ShmSizes {
  uint32_t channels = 1;              // the first is the command lane
  uint64_t command_bytes = 2u << 20;  // of each ring; powers of two
  uint64_t bulk_bytes = 2u << 20;
};

// The mapping; the channels made from it share it.
class ShmMemory;

// A sealed memory object, laid out for the session.
base::Result<base::Fd> create_shm(const ShmSizes& sizes);
// Maps what create_shm made; refuses anything else (the descriptor came from a peer).
base::Result<std::shared_ptr<ShmMemory>> map_shm(const base::Fd& memory);

enum class ShmSide { kClient, kWorker };
// The channels of one side. `connection` is the socket whose end means the peer's death; invalid:
// none (tests, loopback).
std::vector<std::unique_ptr<Channel>> shm_channels(std::shared_ptr<ShmMemory> memory, ShmSide side,
                                                   base::Fd connection);

// Both sides inside this process, "loopback" kind.
base::Result<std::unique_ptr<Channel>> loopback_pair(std::unique_ptr<Channel>* other,
                                                     uint64_t ring_bytes = 4u << 20);

}  // namespace tendril::transport

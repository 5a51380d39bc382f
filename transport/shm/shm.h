// SPDX-License-Identifier: Apache-2.0
// Channels through memory that two processes of one host share. There is one memory object per
// session with two byte rings per channel and futexes. The peer may overwrite all of it. So indices
// are read once and checked, and seals fix the sizes. A connected socket stays open beside the
// memory. When it ends, the peer is dead, and every channel of the session is closed within 100 ms.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "transport/transport.h"

namespace tendril::transport {

// Rings are no larger than calls and the pipelining of copies need. The first copy to touch a page
// of a ring takes several times as long. A ring larger than the processor's caches is copied
// through memory.
struct ShmSizes {
  uint32_t channels = 1;              // the first is the command lane
  uint64_t command_bytes = 2u << 20;  // of each ring; powers of two
  uint64_t bulk_bytes = 2u << 20;
};

// The mapping. The channels made from it share it.
class ShmMemory;

// A sealed memory object, laid out for the session.
base::Result<base::Fd> create_shm(const ShmSizes& sizes);
// Maps an object that create_shm made. Refuses anything else, because the descriptor came from a
// peer.
base::Result<std::shared_ptr<ShmMemory>> map_shm(const base::Fd& memory);

enum class ShmSide { kClient, kWorker };
// The channels of one side. When the socket `connection` ends, the peer is dead. Invalid: there is
// none (tests, loopback).
std::vector<std::unique_ptr<Channel>> shm_channels(const std::shared_ptr<ShmMemory>& memory,
                                                   ShmSide side, base::Fd connection);

// Both sides inside this process, "loopback" kind.
base::Result<std::unique_ptr<Channel>> loopback_pair(std::unique_ptr<Channel>* other,
                                                     uint64_t ring_bytes = 4u << 20);

}  // namespace tendril::transport

// SPDX-License-Identifier: Apache-2.0
// A request to a pool, and where it was placed. Plain data, used by every part of the room. Shares
// are parts of a GPU in millionths, as in the lease protocol. Processors are in thousandths.
#pragma once

#include <cstdint>
#include <vector>

namespace tendril::pool {

inline constexpr uint32_t kWholeGpu = 1'000'000;
inline constexpr uint32_t kMostSlices = 64;  // of one request
inline constexpr uint32_t kMostGpus = 64;    // of one server

// What a request takes of its servers besides GPUs. 0: nothing.
struct HostNeed {
  uint32_t cpu_milli = 0;
  uint64_t memory_bytes = 0;
};

enum class Spread : uint8_t {
  kOneServer,   // all slices on one server
  kAnyServers,  // each slice wherever it fits
  kPack,        // on few servers
  kSpread,      // on many servers
};

// What keeps a request from a GPU besides room: filters, reservations, promises to others. Asked
// only about GPUs with room.
class Veto {
 public:
  virtual ~Veto() = default;
  virtual bool allows(uint32_t server, uint32_t gpu) const = 0;
};

// Every slice is on a GPU of its own. No slices: the request takes processors and memory only.
struct Request {
  uint32_t slices = 1;
  // Of each slice. 0: of each GPU as much as the slice has of its memory.
  uint32_t share_millionths = kWholeGpu;
  uint64_t gpu_memory_bytes = 0;  // of each slice
  HostNeed host;  // of the whole request; over several servers each slice brings an equal part
  Spread spread = Spread::kOneServer;
  std::vector<uint32_t> models;       // Fleet::model_id; empty: any
  bool memory_follows_share = false;  // of each GPU's memory as much as of its time
  bool packed = false;                // shares a GPU with packed slices only
  const Veto* veto = nullptr;
};

// The part of a request that is on one server.
struct Piece {
  uint32_t server = 0;
  std::vector<uint32_t> gpus;
  HostNeed host;
};

struct Placement {
  uint32_t share_millionths = 0;
  uint64_t gpu_memory_bytes = 0;
  std::vector<Piece> pieces;
};

}  // namespace tendril::pool

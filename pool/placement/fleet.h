// SPDX-License-Identifier: Apache-2.0
// The servers of a pool and what is free on each. Plain book-keeping: it decides nothing, and it
// never promises more than there is. Strategies read it; only the Placer changes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "pool/placement/request.h"

namespace tendril::pool {

struct ServerSpec {
  std::string name;
  std::string model;  // of its GPUs; a server with several models joins once for each
  uint32_t gpus = 0;
  uint64_t gpu_memory_bytes = 0;  // usable memory of each GPU; 0: memory is not looked at
  uint32_t cpu_milli = 0;
  uint64_t host_memory_bytes = 0;
};

struct Gpu {
  uint32_t share_free = kWholeGpu;
  uint64_t memory_free_bytes = 0;
};

struct Server {
  ServerSpec spec;
  uint32_t model = 0;
  std::vector<Gpu> gpus;
  uint32_t cpu_free_milli = 0;
  uint64_t host_memory_free_bytes = 0;
  uint64_t share_free = 0;  // of all its GPUs
  uint32_t version = 1;     // grows with each change
  bool open = true;         // false: nothing new is put here

  // True if the GPU has room for one slice of the request.
  bool has_room(const Gpu& gpu, const Request& request) const;
  // True if the server may take the whole request: model, processors, memory, enough GPUs.
  bool fits(const Request& request) const;
  // The first GPUs with room, the one with the least room first if `tightest`. As many as slices.
  std::vector<uint32_t> first_gpus(const Request& request, bool tightest) const;
};

class Fleet {
 public:
  // The number by which servers and requests name a model. Known models keep theirs.
  uint32_t model_id(std::string_view name);
  // Adds a server and returns its number. Numbers count up from 0 and are never used again.
  base::Result<uint32_t> add(ServerSpec spec);
  void set_open(uint32_t server, bool open);

  // Takes or gives back one piece. TENDRIL_CHECK: the piece fits, or was taken before.
  void take(const Piece& piece, uint32_t share_millionths, uint64_t gpu_memory_bytes);
  void give(const Piece& piece, uint32_t share_millionths, uint64_t gpu_memory_bytes);

  const std::vector<Server>& servers() const { return servers_; }
  const Server& server(uint32_t number) const { return servers_[number]; }
  size_t model_count() const { return models_.size(); }
  uint64_t share_total() const { return share_total_; }
  uint64_t share_free() const { return share_free_; }

 private:
  std::vector<Server> servers_;
  std::vector<std::string> models_;
  uint64_t share_total_ = 0;
  uint64_t share_free_ = 0;
};

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// The servers of a pool and what is free on each. Plain book-keeping: it decides nothing, and
// take() never promises more than there is. Strategies read it; only the Placer and the engine
// change it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "pool/placement/request.h"

namespace tendril::pool {

// Memory of a slice that goes by its share is rounded down to this, as servers do.
inline constexpr uint64_t kPageBytes = 2u << 20;

struct GpuSpec {
  uint32_t model = 0;          // Fleet::model_id
  uint64_t memory_bytes = 0;   // usable; 0: memory is not looked at
  uint64_t process_bytes = 0;  // a slice with less memory is of no use
  bool usable = true;          // false: nothing new is put here
};

struct ServerSpec {
  std::string name;
  std::string model;  // of its GPUs
  uint32_t gpus = 0;
  uint64_t gpu_memory_bytes = 0;  // usable memory of each GPU; 0: memory is not looked at
  uint32_t cpu_milli = 0;
  uint64_t host_memory_bytes = 0;
};

// What one slice takes of one GPU.
struct SliceNeed {
  uint32_t share_millionths = 0;
  uint64_t memory_bytes = 0;
};

struct Gpu {
  GpuSpec spec;
  uint32_t share_free = kWholeGpu;
  uint64_t memory_free_bytes = 0;
  uint64_t share_held = 0;  // may be more than there is: put()
  uint64_t memory_held_bytes = 0;
  uint32_t slices = 0;
  bool packed = false;  // the slices that are there are packed; never both kinds

  SliceNeed need(const Request& request) const;
  bool has_room(const SliceNeed& need, bool packed_slice) const;
};

struct Server {
  ServerSpec spec;
  uint32_t number = 0;
  std::vector<Gpu> gpus;
  uint32_t cpu_free_milli = 0;
  uint64_t host_memory_free_bytes = 0;
  uint64_t share_free = 0;  // of all its GPUs
  uint32_t version = 1;     // grows with each change
  bool open = true;         // false: nothing new is put here

  uint32_t model() const { return gpus.empty() ? 0 : gpus[0].spec.model; }
  // True if the GPU may take one slice of the request: model, room, mode, veto.
  bool has_room(uint32_t gpu, const Request& request) const;
  // True if the server may take the whole request: processors, memory, enough GPUs.
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
  // The same with GPUs that differ.
  base::Result<uint32_t> add(ServerSpec spec, std::vector<GpuSpec> gpus);
  // Its GPUs are these now. What is held stays, also of GPUs that are not there any more.
  base::Status set_gpus(uint32_t server, const std::vector<GpuSpec>& gpus);
  void set_open(uint32_t server, bool open);

  // Takes or gives back one piece. TENDRIL_CHECK: the piece fits, or was taken before.
  void take(const Piece& piece, uint32_t share_millionths, uint64_t gpu_memory_bytes);
  void give(const Piece& piece, uint32_t share_millionths, uint64_t gpu_memory_bytes);
  // One slice of a GPU, whether there is room or not: a server's word counts. TENDRIL_CHECK in
  // lift(): it was put there. Unknown GPUs are added, and not usable.
  void put(uint32_t server, uint32_t gpu, const SliceNeed& slice, bool packed);
  void lift(uint32_t server, uint32_t gpu, const SliceNeed& slice);

  const std::vector<Server>& servers() const { return servers_; }
  const Server& server(uint32_t number) const { return servers_[number]; }
  size_t model_count() const { return models_.size(); }
  uint64_t share_total() const { return share_total_; }
  uint64_t share_free() const { return share_free_; }

 private:
  void changed(Server& server);

  std::vector<Server> servers_;
  std::vector<std::string> models_;
  uint64_t share_total_ = 0;
  uint64_t share_free_ = 0;
};

}  // namespace tendril::pool

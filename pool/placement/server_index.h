// SPDX-License-Identifier: Apache-2.0
// Servers sorted by what is free on them, for strategy Snug. For each GPU model, servers are listed
// by the gaps on their GPUs, by how many whole GPUs they have free, and all together. A server with
// several models is listed for each. Each list is kept in two orders. A change of one server
// touches only its own entries.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "pool/placement/fleet.h"
#include "pool/placement/gap_waste.h"

namespace tendril::pool {

// One number about many servers, sorted, in one block of memory.
class SortedServers {
 public:
  static uint64_t key(int32_t value, uint32_t server) {
    return uint64_t{static_cast<uint32_t>(value) ^ 0x8000'0000U} << 32 | server;
  }
  static int32_t value_of(uint64_t key) {
    return static_cast<int32_t>(static_cast<uint32_t>(key >> 32) ^ 0x8000'0000U);
  }
  static uint32_t server_of(uint64_t key) { return static_cast<uint32_t>(key); }

  void insert(int32_t value, uint32_t server);
  void erase(int32_t value, uint32_t server);
  // The place of the first entry with at least this value.
  size_t lower_bound(int32_t value) const;
  const std::vector<uint64_t>& keys() const { return keys_; }

 private:
  std::vector<uint64_t> keys_;
};

struct ServerList {
  SortedServers by_free;     // share free on all GPUs (thousandths), the fullest first
  SortedServers by_balance;  // ServerIndex::Entry::balance
};

class ServerIndex {
 public:
  // What a server has of one model.
  struct Kind {
    uint32_t model = 0;
    uint32_t gpus = 0;
    uint32_t whole = 0;          // GPUs without any lease
    std::vector<uint16_t> gaps;  // the different ones on its GPUs, thousandths, none of 0
  };
  struct Entry {
    bool listed = false;
    int32_t free = 0;  // share free on all its GPUs, thousandths
    // Share free (thousandths) less what its free processors can serve. Above 0: GPUs will be left
    // over when the processors are used up. Below 0: processors will be left over.
    int32_t balance = 0;
    std::vector<Kind> kinds;  // usually one
  };
  struct Model {
    std::array<ServerList, kGapSteps + 1> by_gap;  // a server is listed once for each of its gaps
    std::array<uint64_t, kGapSteps / 64 + 1> gaps_present{};
    std::array<ServerList, kMostGpus + 1> by_whole;
    ServerList all;
    uint64_t most_gpu_memory_bytes = 0;  // of a GPU of this model, on any server
  };

  // Lists everything again with processors counted this way. 0: processors do not matter.
  void rebuild(const Fleet& fleet, double cpu_milli_per_gpu);
  void update(const Fleet& fleet, uint32_t server);

  size_t model_count() const { return models_.size(); }
  const Model& model(size_t number) const { return *models_[number]; }
  const Entry& entry(uint32_t server) const { return entries_[server]; }
  // Servers with several models.
  const ServerList& mixed() const { return mixed_; }

  // The gap of a GPU in thousandths, rounded down: what is free of its share and of its memory,
  // whichever is less. Not 0 while share is free: a slice may ask for no memory.
  static uint32_t gap_of(const Gpu& gpu);

 private:
  Kind& kind_of(Entry& entry, const Gpu& gpu);
  void list(uint32_t server);
  void unlist(uint32_t server);

  double cpu_milli_per_gpu_ = 0;
  std::vector<std::unique_ptr<Model>> models_;
  ServerList mixed_;
  std::vector<Entry> entries_;
};

}  // namespace tendril::pool

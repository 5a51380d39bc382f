// SPDX-License-Identifier: Apache-2.0
// The places of the engine: which GPUs there are, what is held on each and until when at the
// latest, and where a request fits. It knows nothing of accounts and order.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "pool/engine/engine.h"
#include "pool/placement/fleet.h"
#include "pool/placement/strategy.h"

namespace tendril::pool {

class Room {
 public:
  Room();

  base::Result<uint32_t> add(const EngineServer& server);
  base::Status update(uint32_t server, const EngineServer& what);
  void set_state(uint32_t server, ServerState state);
  void set_maintenance(uint32_t server, std::vector<Interval> windows);

  // A place for all slices in that class, or nothing.
  std::vector<PlacedSlice> find(const Ask& ask, uint32_t gpu_class, int64_t ends_by_s);
  void hold(uint64_t id, const std::vector<PlacedSlice>& slices, bool packed, int64_t ends_by_s);
  void release(uint64_t id);

  const Fleet& fleet() const { return fleet_; }

 private:
  struct Host {
    EngineServer what;
    ServerState state = ServerState::kOpen;
    std::vector<Interval> maintenance;
    bool removed = false;
  };
  struct Held {
    std::vector<PlacedSlice> slices;
    bool packed = false;
    int64_t ends_by_s = kNever;
  };

  std::vector<GpuSpec> specs(const EngineServer& server);

  Fleet fleet_;
  std::unique_ptr<Strategy> strategy_;
  std::vector<Host> hosts_;
  std::unordered_map<uint64_t, Held> held_;
  std::map<uint32_t, std::vector<uint32_t>> kinds_;  // of a class
};

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// Places requests on a fleet with a strategy: all slices or none. The pool's scheduler calls it,
// one call at a time. What it decides is a proposal: servers admit by their own lease books.
#pragma once

#include <memory>

#include "base/result.h"
#include "pool/placement/strategy.h"

namespace tendril::pool {

class Placer {
 public:
  explicit Placer(std::unique_ptr<Strategy> strategy) : strategy_(std::move(strategy)) {}

  uint32_t model_id(std::string_view name) { return fleet_.model_id(name); }
  base::Result<uint32_t> add_server(ServerSpec spec);
  // A closed server keeps what it has and gets nothing new.
  void set_open(uint32_t server, bool open);
  void learn(const Demand& demand) { strategy_->learn(fleet_, demand); }

  // Takes room for every slice. kUnavailable: there is not enough room now. kInvalid: never.
  base::Result<Placement> place(const Request& request);
  // Gives back what place() took. Once for each placement.
  void release(const Placement& placement);

  const Fleet& fleet() const { return fleet_; }

 private:
  base::Result<Placement> place_over_servers(const Request& request);
  void take(const Piece& piece, uint32_t share_millionths, uint64_t gpu_memory_bytes);
  void give(const Piece& piece, uint32_t share_millionths, uint64_t gpu_memory_bytes);

  Fleet fleet_;
  std::unique_ptr<Strategy> strategy_;
};

}  // namespace tendril::pool

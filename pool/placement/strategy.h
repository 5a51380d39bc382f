// SPDX-License-Identifier: Apache-2.0
// A strategy chooses the server and GPUs for a request that fits on one server. It keeps whatever
// index it needs. The Placer reports every change of the fleet to it. It has no clock and no lock:
// one caller at a time. Random, BestFit and FGD are the published strategies, kept for comparison.
// They look at every server for each request. Snug is the pool's own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "pool/placement/demand.h"
#include "pool/placement/fleet.h"
#include "pool/placement/request.h"

namespace tendril::pool {

class Strategy {
 public:
  virtual ~Strategy() = default;
  // A piece that fits now, or nothing if the request fits on no server.
  virtual std::optional<Piece> choose(const Fleet& fleet, const Request& request) = 0;
  // The server is new, or what is free on it changed.
  virtual void changed(const Fleet& fleet, uint32_t server) {
    (void)fleet;
    (void)server;
  }
  // What the pool is asked for. May take milliseconds.
  virtual void learn(const Fleet& fleet, const Demand& demand) {
    (void)fleet;
    (void)demand;
  }
};

std::unique_ptr<Strategy> make_random(uint64_t seed);
std::unique_ptr<Strategy> make_best_fit();
std::unique_ptr<Strategy> make_fragmentation_gradient();
std::unique_ptr<Strategy> make_snug();
// By name: random, bestfit, fgd, snug. Null for any other. Only random uses the seed.
std::unique_ptr<Strategy> make_strategy(std::string_view name, uint64_t seed);

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// For tests of placement: small fleets, random requests, and the invariants that hold after every
// step whatever the strategy.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "pool/placement/placer.h"

namespace tendril::pool::testing {

inline ServerSpec server(uint32_t gpus, uint32_t cpu_milli = 64'000, const char* model = "H100",
                         uint64_t gpu_memory_bytes = 80) {
  return ServerSpec{"", model, gpus, gpu_memory_bytes, cpu_milli, 1 << 20};
}

inline Request slices(uint32_t count, uint32_t share_millionths, uint32_t cpu_milli = 1000) {
  Request request;
  request.slices = count;
  request.share_millionths = share_millionths;
  request.host.cpu_milli = cpu_milli;
  return request;
}

inline Request any_request(std::mt19937_64& dice, uint32_t models) {
  Request request = slices(1, (1 + dice() % 20) * 50'000, dice() % 16'000);
  if (dice() % 5 == 0) request.share_millionths = 1'000'000 / (1 + dice() % 7);
  request.gpu_memory_bytes = dice() % 3 == 0 ? dice() % 80 : 0;
  request.host.memory_bytes = dice() % 1000;
  switch (dice() % 8) {
    case 0:
      request.slices = 0;
      break;
    case 1:
      request.slices = 2 + dice() % 3;
      request.share_millionths = kWholeGpu;
      break;
    case 2:
      request.slices = 2 + dice() % 6;
      request.spread = Spread::kAnyServers;
      break;
    case 3:
      request.slices = 2;
      break;
    default:
      break;
  }
  if (dice() % 4 == 0) request.models.push_back(static_cast<uint32_t>(dice() % models));
  return request;
}

// True if the fleet as it is has room for the request on one server.
inline bool fits_somewhere(const Fleet& fleet, const Request& request) {
  for (const Server& each : fleet.servers())
    if (each.fits(request)) return true;
  return false;
}

// What is free, plus what is held, is what there is; and the placement is what was asked for.
inline void expect_sums(const Fleet& fleet, const std::vector<Placement>& held) {
  struct Sum {
    std::vector<uint64_t> share, memory;
    uint64_t cpu = 0, host_memory = 0;
  };
  std::vector<Sum> sums;
  for (const Server& each : fleet.servers()) {
    sums.push_back(Sum{{}, {}, each.cpu_free_milli, each.host_memory_free_bytes});
    for (const Gpu& gpu : each.gpus) {
      sums.back().share.push_back(gpu.share_free);
      sums.back().memory.push_back(gpu.memory_free_bytes);
    }
  }
  for (const Placement& placement : held)
    for (const Piece& piece : placement.pieces) {
      Sum& sum = sums[piece.server];
      sum.cpu += piece.host.cpu_milli;
      sum.host_memory += piece.host.memory_bytes;
      for (uint32_t gpu : piece.gpus) {
        sum.share[gpu] += placement.share_millionths;
        sum.memory[gpu] += placement.gpu_memory_bytes;
      }
    }
  for (size_t i = 0; i < sums.size(); ++i) {
    const ServerSpec& spec = fleet.server(static_cast<uint32_t>(i)).spec;
    EXPECT_EQ(sums[i].cpu, spec.cpu_milli);
    EXPECT_EQ(sums[i].host_memory, spec.host_memory_bytes);
    for (uint64_t share : sums[i].share) EXPECT_EQ(share, kWholeGpu);
    if (spec.gpu_memory_bytes == 0) continue;  // then it is not looked at
    for (uint64_t memory : sums[i].memory) EXPECT_EQ(memory, spec.gpu_memory_bytes);
  }
}

inline void expect_as_asked(const Fleet& fleet, const Request& request,
                            const Placement& placement) {
  std::vector<std::pair<uint32_t, uint32_t>> gpus;
  for (const Piece& piece : placement.pieces) {
    const Server& on = fleet.server(piece.server);
    EXPECT_TRUE(on.open);
    for (uint32_t gpu : piece.gpus) gpus.emplace_back(piece.server, gpu);
    if (!request.models.empty() && request.slices != 0) {
      EXPECT_EQ(on.model(), request.models[0]);
    }
  }
  std::sort(gpus.begin(), gpus.end());
  EXPECT_EQ(gpus.size(), request.slices);
  EXPECT_EQ(std::adjacent_find(gpus.begin(), gpus.end()), gpus.end()) << "two slices on one GPU";
  if (request.spread == Spread::kOneServer) {
    EXPECT_EQ(placement.pieces.size(), 1U);
  }
}

}  // namespace tendril::pool::testing

// SPDX-License-Identifier: Apache-2.0
// Replays a trace on a fleet, as the experiment of the FGD paper does: the requests in a random
// order, then more of them drawn at random until together they ask for 130 % of all GPUs. Nothing
// ends. What does not fit when it arrives is refused. The result is the part of all GPUs that is
// given away at the end. Pure and seeded: equal seeds give equal results.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "pool/replay/trace.h"

namespace tendril::pool {

// What a request takes of its server's processors and memory.
enum class HostSide : uint8_t {
  kTrace,   // what the trace says: the program runs on the GPU server
  kWorker,  // one processor for each slice: the program runs elsewhere, as Tendril's programs do
};

// What strategies learn the requests from.
enum class Learning : uint8_t {
  kTrace,     // from the whole trace before the first request, as in the paper
  kArrivals,  // from the requests so far; at first often, then every 500
};

struct ReplayOptions {
  std::string strategy;
  uint64_t seed = 42;
  double arrivals = 1.3;  // of all GPUs
  HostSide host = HostSide::kTrace;
  Learning learning = Learning::kTrace;
  // If set, called around each decision; the differences are returned.
  std::function<uint64_t()> now_ns;
};

struct ReplayResult {
  uint64_t share_total = 0;  // millionths
  uint64_t share_given = 0;
  uint64_t share_asked = 0;
  uint32_t requests = 0;
  uint32_t refused = 0;
  std::vector<uint64_t> decision_ns;  // sorted
  double allocation_percent() const {
    return 100.0 * static_cast<double>(share_given) / static_cast<double>(share_total);
  }
};

// kInvalid: no such strategy, or a server that a fleet does not take.
base::Result<ReplayResult> replay(const Trace& trace, const ReplayOptions& options);

struct ChurnResult {
  size_t leases = 0;                  // held throughout
  std::vector<uint64_t> decision_ns;  // sorted; of place() only
};

// Fills the fleet with slices until this many leases are held. Their sizes are a third of those in
// the trace. Then, `rounds` times, it ends a random lease and places one. It measures the time of
// decisions.
base::Result<ChurnResult> churn(const Trace& trace, const ReplayOptions& options, size_t leases,
                                size_t rounds);

}  // namespace tendril::pool

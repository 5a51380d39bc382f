// SPDX-License-Identifier: Apache-2.0
// What the same machine does with bare channels and nothing on top: the measure for lanes
// (transport_bench.cc) and for whole sessions (tendril-bench).
#pragma once

#include <cstddef>
#include <vector>

namespace tendril::bench {

// One trip in ten is quicker than this: what a trip takes while nobody else has the processors.
// Sorts.
double undisturbed_us(std::vector<double>* trips_us);
// Each of some trips: so many bytes there and 64 back, over one connection, both ends spinning.
// `transport` as in transport/testing/test_channels.h.
inline constexpr size_t kAnswerBytes = 64;
std::vector<double> bare_trips_us(const char* transport, size_t bytes = kAnswerBytes);
// GB/s over n connections, a thread on each end of each; sends of 1 MiB, received in whole chunks
// as bulk channels do.
double bare_bulk_gbs(const char* transport, size_t n);

}  // namespace tendril::bench

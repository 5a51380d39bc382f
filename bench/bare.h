// SPDX-License-Identifier: Apache-2.0
// The speed of bare channels on this machine, with nothing on top. It is the yardstick for lanes
// (transport_bench.cc) and whole sessions (tendril-bench).
#pragma once

#include <cstddef>
#include <vector>

namespace tendril::bench {

// The time of a trip while nobody else uses the processors: one trip in ten is faster. Sorts its
// argument.
double undisturbed_us(std::vector<double>* trips_us);
// Times of single trips over one connection: the given number of bytes there, and 64 bytes back.
// Both ends spin. `transport` is as in transport/testing/test_channels.h.
inline constexpr size_t kAnswerBytes = 64;
std::vector<double> bare_trips_us(const char* transport, size_t bytes = kAnswerBytes);
// GB/s over n connections. Each end of each connection has a thread. It sends 1 MiB at a time and
// receives whole chunks, as bulk channels do.
double bare_bulk_gbs(const char* transport, size_t n);

}  // namespace tendril::bench

// SPDX-License-Identifier: Apache-2.0
// What this machine does with bare channels and nothing on top. Lanes (transport_bench.cc) and
// whole sessions (tendril-bench) are compared with it.
#pragma once

#include <cstddef>
#include <vector>

namespace tendril::bench {

// One trip in ten is quicker than this: the time of a trip while nobody else has the processors.
// Sorts.
double undisturbed_us(std::vector<double>* trips_us);
// Times of single trips: so many bytes there and 64 back, over one connection, with both ends
// spinning. `transport` as in transport/testing/test_channels.h.
inline constexpr size_t kAnswerBytes = 64;
std::vector<double> bare_trips_us(const char* transport, size_t bytes = kAnswerBytes);
// GB/s over n connections, with a thread on each end of each. Sends of 1 MiB, received in whole
// chunks, as bulk channels do it.
double bare_bulk_gbs(const char* transport, size_t n);

}  // namespace tendril::bench

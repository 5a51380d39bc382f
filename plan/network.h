// SPDX-License-Identifier: Apache-2.0
// What a network would make of a program that was measured once, from the table that TENDRIL_STATS
// prints. It gives two bounds, because the table does not say which waits the GPU's work hides.
// The text may be anybody's: reading is bounded. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tendril::plan {

// Of one process, over all its servers.
struct ProgramCosts {
  double run_s = 0;
  double blocked_s = 0;  // of all threads, in which calls waited for servers
  uint64_t round_trips = 0, bytes_out = 0, bytes_in = 0;
  size_t servers = 0;
  std::string transports;  // "shm", "tcp": as they were measured; several are "shm tcp"
};

// kInvalid: the text has no such table, or more than one.
base::Result<ProgramCosts> read_program_costs(std::string_view text);

struct NetworkLine {
  double gigabits = 10;  // 10^9 bits a second, in each direction at once
  double delay_us = 50;  // of a round trip
};
struct NetworkBounds {
  double waits_s = 0;     // all round trips, one after the other
  double transfer_s = 0;  // the bytes of the busier direction
  double at_least_s = 0;  // everything is hidden that can be
  double at_most_s = 0;   // nothing is hidden
};
NetworkBounds bounds_on(const ProgramCosts& costs, const NetworkLine& line);

// A table with a row for each line.
std::string network_text(const ProgramCosts& costs, const std::vector<NetworkLine>& lines);
std::string network_json(const ProgramCosts& costs, const std::vector<NetworkLine>& lines);

}  // namespace tendril::plan

// SPDX-License-Identifier: Apache-2.0
// What an operator may set of the way between two cards, at each end for what that end sends.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace tendril::transport::rdma {

struct PathSettings {
  uint8_t traffic_class = 0;  // of RoCE's packets: their DSCP and ECN bits
  uint8_t mtu_code = 5;       // at most: 1: 256 bytes, ... 5: 4,096 bytes; ports may have less
  // A card repeats what was not answered after 4.096 us * 2^answer_timer, so many times.
  uint8_t answer_timer = 14, repetitions = 7;
};

// The text of each variable; null: it is not set. kInvalid says which is wrong, and what to write.
base::Result<PathSettings> read_path_settings(const char* traffic_class, const char* mtu,
                                              const char* timer, const char* repetitions);
// From the environment: TENDRIL_RDMA_TRAFFIC_CLASS, _MTU, _TIMEOUT and _RETRIES.
base::Result<PathSettings> path_settings();

}  // namespace tendril::transport::rdma

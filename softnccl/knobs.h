// SPDX-License-Identifier: Apache-2.0
// What makes this double misbehave: environment variables, read once by a process. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "softnccl/nccl.h"

namespace tendril::softnccl {

struct Failure {
  std::string call;  // with its prefix, as in "ncclAllReduce"
  uint64_t first = 1;
  bool from_there_on = false;
  ncclResult_t code = ncclInternalError;
};

struct Knobs {
  int version = 22803;
  std::string address = "127.0.0.1";  // where this process listens
  uint32_t connect_delay_ms = 0;
  uint32_t queue = 1024;  // launches of a communicator that may be under way
  uint64_t lose = 0;      // 0: none
  uint64_t flip = 0;
  uint32_t buffer_mb = 0;  // of GPU memory, for each communicator
  uint32_t peer_mb = 0;    // more of it, when a communicator connects to others
  std::vector<Failure> failures;
};

// `variable` answers for a name without the prefix TENDRIL_SOFTNCCL_, or null. What does not parse
// is named in `problem`.
Knobs read_knobs(const std::function<const char*(const char*)>& variable, std::string* problem);

const Knobs& knobs();

// Counts the call of `name`. Success, or what the knob wants it to answer.
ncclResult_t wanted_failure(const char* name);

}  // namespace tendril::softnccl

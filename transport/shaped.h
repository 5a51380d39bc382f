// SPDX-License-Identifier: Apache-2.0
// A channel with the delay and bandwidth of a longer line, each way, accurate to a few microseconds. Wraps one end of any channel; for
// tests and for planning ("what would this program do over 10 Gb/s and 200 us?"). Two threads per channel.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace tendril::transport {

struct Shape {
  uint32_t delay_us = 0;          // one way, added in each direction
  uint64_t bytes_per_second = 0;  // each way; 0: unlimited
};

std::unique_ptr<Channel> shaped(std::unique_ptr<Channel> inner, const Shape& shape);

}  // namespace tendril::transport

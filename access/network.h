// SPDX-License-Identifier: Apache-2.0
// Networks as people write them, and whether an address is in one. Pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::access {

// IPv4 is kept as the IPv6 addresses that stand for it, so that both forms of a peer are the same.
struct Network {
  std::array<uint8_t, 16> address = {};
  uint8_t prefix_bits = 0;  // of 128
};

// "10.0.0.0/8", "fd00::/8", or one address. Bits behind the prefix must be zero.
base::Result<Network> parse_network(const std::string& text);
// `peer`: "192.0.2.7:4711", "[fd00::1]:4711" or the address alone. False if it is no address.
bool contains(const std::vector<Network>& networks, const std::string& peer);

}  // namespace tendril::access

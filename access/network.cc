// SPDX-License-Identifier: Apache-2.0
// See network.h.
#include "access/network.h"

#include <arpa/inet.h>

#include <cstring>

namespace tendril::access {
namespace {

using base::Code;
using base::Status;

constexpr uint8_t kBits = 128, kBitsBeforeV4 = 96;

bool parse_address(const std::string& text, std::array<uint8_t, 16>* address, bool* v4) {
  in_addr four;
  *v4 = inet_pton(AF_INET, text.c_str(), &four) == 1;
  if (!*v4) return inet_pton(AF_INET6, text.c_str(), address->data()) == 1;
  address->fill(0);
  (*address)[10] = (*address)[11] = 0xff;
  memcpy(address->data() + 12, &four, sizeof four);
  return true;
}

bool bit(const std::array<uint8_t, 16>& address, unsigned index) {
  return (address[index / 8] >> (7 - index % 8) & 1) != 0;
}

bool is_in(const Network& network, const std::array<uint8_t, 16>& address) {
  for (unsigned index = 0; index < network.prefix_bits; ++index) {
    if (bit(network.address, index) != bit(address, index)) return false;
  }
  return true;
}

// Without brackets, port and zone.
std::string bare(const std::string& peer) {
  std::string host = peer;
  if (!host.empty() && host[0] == '[') {
    const size_t end = host.find(']');
    host = host.substr(1, end == std::string::npos ? std::string::npos : end - 1);
  } else if (host.find(':') == host.rfind(':')) {
    host = host.substr(0, host.find(':'));
  }
  return host.substr(0, host.find('%'));
}

}  // namespace

base::Result<Network> parse_network(const std::string& text) {
  const Status bad(Code::kInvalid,
                   "'" + text.substr(0, 80) +
                       "' is no network; write an address and the bits that count, as in "
                       "10.0.0.0/8 or fd00::/8");
  const size_t slash = text.find('/');
  Network network;
  bool v4 = false;
  if (text.find('\0') != std::string::npos ||
      !parse_address(text.substr(0, slash), &network.address, &v4)) {
    return bad;
  }
  const unsigned most = v4 ? 32 : kBits;
  unsigned bits = most;
  if (slash != std::string::npos) {
    const std::string digits = text.substr(slash + 1);
    if (digits.empty() || digits.size() > 3) return bad;
    bits = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9') return bad;
      bits = bits * 10 + static_cast<unsigned>(c - '0');
    }
    if (bits > most) return bad;
  }
  network.prefix_bits = static_cast<uint8_t>(v4 ? bits + kBitsBeforeV4 : bits);
  for (unsigned index = network.prefix_bits; index < kBits; ++index) {
    if (bit(network.address, index)) {
      return Status(Code::kInvalid, "'" + text +
                                        "' has bits behind its prefix; write the network's "
                                        "own address, as in 10.0.0.0/8");
    }
  }
  return network;
}

bool contains(const std::vector<Network>& networks, const std::string& peer) {
  std::array<uint8_t, 16> address;
  bool v4 = false;
  if (!parse_address(bare(peer), &address, &v4)) return false;
  for (const Network& network : networks) {
    if (is_in(network, address)) return true;
  }
  return false;
}

}  // namespace tendril::access

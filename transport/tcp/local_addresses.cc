// SPDX-License-Identifier: Apache-2.0
// See local_addresses.h.
#include "transport/tcp/local_addresses.h"

#include <arpa/inet.h>
#include <ifaddrs.h>

#include <cstring>

namespace tendril::transport {
namespace {

struct Bytes {
  const uint8_t* at = nullptr;
  unsigned count = 0;
};

// The address alone; none for what is no IP address.
Bytes bytes_of(const sockaddr* address) {
  if (address == nullptr) return {};
  if (address->sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
    return {reinterpret_cast<const uint8_t*>(&v4), 4};
  }
  if (address->sa_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    return {v6.s6_addr, 16};
  }
  return {};
}

bool of_link_alone(const Bytes& bytes) {
  if (bytes.count == 4) return bytes.at[0] == 169 && bytes.at[1] == 254;
  return bytes.at[0] == 0xfe && (bytes.at[1] & 0xc0) == 0x80;
}

unsigned bits_set(const Bytes& mask) {
  unsigned bits = 0;
  for (unsigned i = 0; i < mask.count; ++i) bits += unsigned(__builtin_popcount(mask.at[i]));
  return bits;
}

bool in_network(const LocalAddress& own, const Bytes& other) {
  const Bytes bytes = bytes_of(reinterpret_cast<const sockaddr*>(&own.address));
  for (unsigned bit = 0; bit < own.network_bits && bit < 8 * bytes.count; ++bit) {
    const unsigned mask = 0x80u >> (bit % 8);
    if (((bytes.at[bit / 8] ^ other.at[bit / 8]) & mask) != 0) return false;
  }
  return true;
}

void add_addresses(const ifaddrs* all, const std::string& interface, int family,
                   std::vector<LocalAddress>* found) {
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    const Bytes bytes = bytes_of(at->ifa_addr);
    if (interface != at->ifa_name || bytes.count == 0 || at->ifa_addr->sa_family != family ||
        of_link_alone(bytes))
      continue;
    LocalAddress own;
    own.interface = interface;
    own.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    memcpy(&own.address, at->ifa_addr, own.bytes);
    own.network_bits = bits_set(bytes_of(at->ifa_netmask));
    char text[INET6_ADDRSTRLEN] = {};
    if (inet_ntop(family, bytes.at, text, sizeof text) != nullptr) own.text = text;
    found->push_back(own);
  }
}

}  // namespace

std::vector<LocalAddress> local_addresses(const std::vector<std::string>& interfaces) {
  std::vector<LocalAddress> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const std::string& each : interfaces)
    for (const int family : {AF_INET, AF_INET6}) add_addresses(all, each, family, &found);
  freeifaddrs(all);
  return found;
}

const LocalAddress* address_towards(const std::vector<LocalAddress>& all, const sockaddr* to) {
  const LocalAddress* first = nullptr;
  for (const LocalAddress& each : all) {
    if (each.address.ss_family != to->sa_family) continue;
    if (in_network(each, bytes_of(to))) return &each;
    if (first == nullptr) first = &each;
  }
  return first;
}

}  // namespace tendril::transport

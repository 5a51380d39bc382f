// SPDX-License-Identifier: Apache-2.0
// Networks as people write them, and addresses as the daemon knows them.
#include "access/network.h"

#include <gtest/gtest.h>

namespace tendril::access {
namespace {

std::vector<Network> networks(std::initializer_list<const char*> texts) {
  std::vector<Network> all;
  for (const char* text : texts) {
    const auto network = parse_network(text);
    EXPECT_TRUE(network.ok()) << text;
    if (network.ok()) all.push_back(network.value());
  }
  return all;
}

TEST(Networks, ContainAddressesInEachForm) {
  const auto lab = networks({"10.0.0.0/8", "192.0.2.7", "fd00::/8"});
  for (const char* peer : {"10.1.2.3:4711", "10.255.255.255", "192.0.2.7:1", "[fd12::1]:4711",
                           "fd12::1", "[::ffff:10.0.0.1]:7", "[fd12::1%eth0]:7"}) {
    EXPECT_TRUE(contains(lab, peer)) << peer;
  }
  for (const char* peer : {"11.1.2.3:4711", "192.0.2.8:1", "[fe80::1]:4711", "", "unix pid 1 uid 0",
                           "[::ffff:11.0.0.1]:7", "10.1.2"}) {
    EXPECT_FALSE(contains(lab, peer)) << peer;
  }
  EXPECT_FALSE(contains({}, "10.0.0.1"));
  EXPECT_TRUE(contains(networks({"0.0.0.0/0"}), "203.0.113.9:1"));
  EXPECT_FALSE(contains(networks({"0.0.0.0/0"}), "[fd00::1]:1"));
}

TEST(Networks, RefuseOtherTexts) {
  for (const char* text : {"", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/8x", "10.0.0.1/8", "fd00::1/8",
                           "fd00::/129", "example.org", "10.0.0.0/-1", "10.0.0.0/0008"}) {
    EXPECT_FALSE(parse_network(text).ok()) << text;
  }
}

}  // namespace
}  // namespace tendril::access

// SPDX-License-Identifier: Apache-2.0
// From which address a connection comes that shall leave by certain interfaces.
#include "transport/tcp/local_addresses.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

namespace tendril::transport {
namespace {

sockaddr_storage address(const char* text) {
  sockaddr_storage made = {};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&made);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&made);
  if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
    made.ss_family = AF_INET;
  else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1)
    made.ss_family = AF_INET6;
  return made;
}
LocalAddress own(const char* text, unsigned network_bits) {
  return {"eth4", address(text), 0, network_bits, text};
}
std::string towards(const std::vector<LocalAddress>& all, const char* text) {
  const sockaddr_storage to = address(text);
  const LocalAddress* found = address_towards(all, reinterpret_cast<const sockaddr*>(&to));
  return found == nullptr ? "none" : found->text;
}

TEST(LocalAddresses, TheOneInThePeersNetworkComesFirst) {
  const std::vector<LocalAddress> all = {own("10.1.0.5", 16), own("10.2.3.5", 23),
                                         own("fd00:1::5", 64)};
  EXPECT_EQ(towards(all, "10.1.200.1"), "10.1.0.5");
  EXPECT_EQ(towards(all, "10.2.2.9"), "10.2.3.5");
  EXPECT_EQ(towards(all, "10.2.4.9"), "10.1.0.5") << "over a router: the first one";
  EXPECT_EQ(towards(all, "fd00:2::1"), "fd00:1::5");
  EXPECT_EQ(towards({own("10.1.0.5", 16)}, "fd00:2::1"), "none");
  EXPECT_EQ(towards({}, "10.1.0.1"), "none");
}

TEST(LocalAddresses, ThoseOfThisMachineAreFound) {
  const std::vector<LocalAddress> all = local_addresses({"no-such-one", "lo"});
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0].text, "127.0.0.1");
  EXPECT_EQ(all[0].interface, "lo");
  EXPECT_EQ(all[0].network_bits, 8u);
}

}  // namespace
}  // namespace tendril::transport

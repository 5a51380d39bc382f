// SPDX-License-Identifier: Apache-2.0
// The rule of sealing, over all its cases.
#include "daemon/sealing.h"

#include <gtest/gtest.h>

namespace tendril::daemon {
namespace {

session::Peer peer(const char* text, bool local) {
  session::Peer out;
  out.text = text;
  out.local = local;
  return out;
}

TEST(Sealing, FollowsTheRule) {
  const session::Peer here = peer("127.0.0.1:4711", true), lab = peer("10.1.2.3:4711", false),
                      far = peer("192.0.2.7:4711", false);
  const std::vector<std::string> networks = {"10.0.0.0/8"};
  struct Case {
    const char* encrypt;
    bool here, lab, far;
  };
  for (const Case& each : {Case{"", false, false, true},
                           {"untrusted", false, false, true},
                           {"always", true, true, true},
                           {"never", false, false, false}}) {
    const auto sealing = read_sealing(each.encrypt, networks);
    ASSERT_TRUE(sealing.ok());
    EXPECT_EQ(must_seal(sealing.value(), here, true, false).value(), each.here) << each.encrypt;
    EXPECT_EQ(must_seal(sealing.value(), lab, true, false).value(), each.lab) << each.encrypt;
    EXPECT_EQ(must_seal(sealing.value(), far, true, false).value(), each.far) << each.encrypt;
  }
}

TEST(Sealing, NeverSealsUnixSockets) {
  session::Peer local = peer("unix pid 1 uid 0", true);
  local.unix_socket = true;
  const auto sealing = read_sealing("always", {});
  EXPECT_FALSE(must_seal(sealing.value(), local, true, true).value());
  EXPECT_FALSE(must_seal(sealing.value(), local, false, false).value());
}

TEST(Sealing, AClientMayInsist) {
  const session::Peer lab = peer("10.1.2.3:4711", false);
  const auto trusting = read_sealing("", {"10.0.0.0/8"});
  EXPECT_TRUE(must_seal(trusting.value(), lab, true, true).value());
  const auto never = read_sealing("never", {});
  EXPECT_FALSE(must_seal(never.value(), lab, true, true).ok());
}

TEST(Sealing, WithoutAKeyNothingIsSealedAndNothingPretended) {
  const session::Peer here = peer("127.0.0.1:4711", true);
  EXPECT_FALSE(must_seal(read_sealing("", {}).value(), here, false, true).value());
  EXPECT_FALSE(must_seal(read_sealing("always", {}).value(), here, false, false).ok());
}

// A card sends in clear, and nothing keeps it inside a network.
TEST(Sealing, CardsAreLentWhereANetworkIsTrusted) {
  const Sealing none = read_sealing("", {}).value();
  const Sealing trusting = read_sealing("", {"10.0.0.0/8"}).value();
  EXPECT_EQ(lent_cards("auto", "", none), "");
  EXPECT_EQ(lent_cards("auto", "", trusting), "any");
  EXPECT_EQ(lent_cards("auto", "", read_sealing("never", {}).value()), "any");
  EXPECT_EQ(lent_cards("auto", "", read_sealing("always", {"10.0.0.0/8"}).value()), "");
  EXPECT_EQ(lent_cards("auto", "mlx5_0", none), "mlx5_0");
  EXPECT_EQ(lent_cards("off", "mlx5_0", trusting), "none");
  EXPECT_EQ(lent_cards("mlx5_1:2,mlx5_0", "any", none), "mlx5_1:2,mlx5_0");
}

TEST(Sealing, RefusesOtherWords) {
  EXPECT_FALSE(read_sealing("sometimes", {}).ok());
  EXPECT_FALSE(read_sealing("", {"10.0.0.1/8"}).ok());
}

}  // namespace
}  // namespace tendril::daemon

// SPDX-License-Identifier: Apache-2.0
// The handshake against the published vector of NNpsk0 (cacophony), and with messages of others.
#include "session/control/handshake.h"

#include <gtest/gtest.h>

#include "transport/testing/hex.h"

namespace tendril::session {
namespace {

using transport::CurveBytes;
using transport::Digest;
using transport::from_hex;
using transport::to_hex;
using transport::view_of;

Digest digest(const char* hex) {
  Digest out;
  const std::string bytes = from_hex(hex);
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

std::string seal(const Digest& key, uint8_t number, std::string data) {
  transport::Aead aead;
  aead.set_key(key.data(), key.size());
  uint8_t nonce[transport::kAeadNonceBytes] = {}, tag[transport::kAeadTagBytes];
  nonce[11] = number;
  aead.seal(nonce, {nullptr, 0}, {data.data(), data.size()}, &data[0], tag);
  return to_hex(data + std::string(reinterpret_cast<char*>(tag), sizeof tag));
}

TEST(Handshake, IsAsPublished) {
  const Digest secret = digest("54686973206973206d7920417573747269616e20706572737065637469766521");
  const std::string prologue = from_hex("4a6f686e2047616c74");
  Handshake initiator(secret, prologue), responder(secret, prologue);
  initiator.set_secret_for_test(
      digest("893e28b9dc6ca8d611ab664754b8ceb7bac5117349a4439a6b0569da977c464a"));
  responder.set_secret_for_test(
      digest("bbdb4cdbd309f1a1f2e1456967fe288cadd6f712d65dc7b7793d5e63da6b375b"));
  const std::string first = *initiator.write_first(from_hex("4c756477696720766f6e204d69736573"));
  EXPECT_EQ(to_hex(first),
            "ca35def5ae56cec33dc2036731ab14896bc4c75dbb07a61f879f8e3afa4c7944"
            "7c37a89fc17813788d30df2d59501d6066f5f8aecc3406bbd9829f2d24a531b1");
  EXPECT_EQ(to_hex(*responder.read_first(first)), "4c756477696720766f6e204d69736573");
  ASSERT_TRUE(responder.prepare_second().ok());
  const std::string second = responder.write_second(from_hex("4d757272617920526f746862617264"));
  EXPECT_EQ(to_hex(second),
            "95ebc60d2b1fa672c1f46a8aa265ef51bfe38e7ccb39ec5be34069f144808843"
            "2f29d79368ef9de4e1ae7a362fb05bf0ad668e026bf5714554497b3a720461");
  EXPECT_EQ(to_hex(*initiator.read_second(second)), "4d757272617920526f746862617264");
  EXPECT_EQ(to_hex(view_of(initiator.hash())),
            "9f3b1f9afd7767767b5b9d1069844a6154fdbdcc36dfb3e31c0fffc5c973d530");
  EXPECT_EQ(initiator.hash(), responder.hash());
  EXPECT_EQ(initiator.binding(), responder.binding());
  const Handshake::Keys keys = initiator.split();
  EXPECT_EQ(keys.initiator, responder.split().initiator);
  EXPECT_EQ(keys.responder, responder.split().responder);
  EXPECT_EQ(seal(keys.initiator, 0, from_hex("462e20412e20486179656b")),
            "7c01e898a6201f36aecee532e29cd0b7f8ffa29d3366ad0dce39a6");
  EXPECT_EQ(seal(keys.responder, 0, from_hex("4361726c204d656e676572")),
            "a9ff535aace3db6a1da1a7fb00fe2de2622bb373abad9fb42c00e0");
  EXPECT_EQ(seal(keys.initiator, 1, from_hex("4a65616e2d426170746973746520536179")),
            "6cfc49a3e65472edc2d0152abe5ce950170a8a47c959f30bd48b5f0aacf29adbfd");
  EXPECT_EQ(seal(keys.responder, 1, from_hex("457567656e2042f6686d20766f6e2042617765726b")),
            "9bc86e6d974ed21ba04604a94aa68de21677eb409ead070c0cd569b069ee19ba142aa4c1a9");
}

TEST(Handshake, FitsNoOtherSecretOrPrologue) {
  Handshake initiator(Digest{1}, "here");
  const std::string first = *initiator.write_first("hello");
  EXPECT_FALSE(Handshake(Digest{2}, "here").read_first(first).ok());
  EXPECT_FALSE(Handshake(Digest{1}, "there").read_first(first).ok());
  EXPECT_TRUE(Handshake(Digest{1}, "here").read_first(first).ok());
}

TEST(Handshake, NoticesEveryChange) {
  for (size_t i = 0;; ++i) {
    Handshake initiator(Digest{1}, ""), responder(Digest{1}, "");
    std::string first = *initiator.write_first("hello");
    if (i == first.size()) break;
    first[i] = char(first[i] ^ 0x10);
    EXPECT_FALSE(responder.read_first(first).ok()) << i;
    EXPECT_FALSE(responder.read_first(first.substr(0, i)).ok()) << i;
  }
  for (size_t i = 0;; ++i) {
    Handshake initiator(Digest{1}, ""), responder(Digest{1}, "");
    ASSERT_TRUE(responder.read_first(*initiator.write_first("hello")).ok());
    ASSERT_TRUE(responder.prepare_second().ok());
    std::string second = responder.write_second("answer");
    if (i == second.size()) break;
    second[i] = char(second[i] ^ 1);
    EXPECT_FALSE(initiator.read_second(second).ok()) << i;
  }
}

}  // namespace
}  // namespace tendril::session

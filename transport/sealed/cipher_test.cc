// SPDX-License-Identifier: Apache-2.0
// The primitives against published vectors, with the processor's instructions and without.
#include "transport/sealed/cipher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "transport/sealed/records.h"
#include "transport/testing/hex.h"

namespace tendril::transport {
namespace {

struct GcmCase {
  const char *key, *nonce, *associated, *plain, *sealed, *tag;
};

// "The Galois/Counter Mode of Operation" (GCM), test cases 1 to 4 and 13 to 16.
constexpr GcmCase kGcmCases[] = {
    {"00000000000000000000000000000000", "000000000000000000000000", "", "", "",
     "58e2fccefa7e3061367f1d57a4e7455a"},
    {"00000000000000000000000000000000", "000000000000000000000000", "",
     "00000000000000000000000000000000", "0388dace60b6a392f328c2b971b2fe78",
     "ab6e47d42cec13bdf53a67b21257bddf"},
    {"feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888", "",
     "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
     "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
     "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
     "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985",
     "4d5c2af327cd64a62cf35abd2ba6fab4"},
    {"feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
     "feedfacedeadbeeffeedfacedeadbeefabaddad2",
     "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
     "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
     "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
     "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
     "5bc94fbc3221a5db94fae95ae7121a47"},
    {"0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000",
     "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"},
    {"0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000",
     "", "00000000000000000000000000000000", "cea7403d4d606b6e074ec5d3baf39d18",
     "d0d1c8a799996bf0265b98b5d48ab919"},
    {"feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
     "",
     "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
     "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
     "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
     "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad",
     "b094dac5d93471bdec1a502270e3cc6c"},
    {"feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
     "feedfacedeadbeeffeedfacedeadbeefabaddad2",
     "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
     "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
     "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
     "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
     "76fc6ece0f4e1768cddf8853bb2d551b"},
};

constexpr Aead::Engine kEngines[] = {Aead::Engine::kBest, Aead::Engine::kNarrow,
                                     Aead::Engine::kPortable};

Aead::Text text(const std::string& bytes) { return {bytes.data(), bytes.size()}; }

TEST(Cipher, SealsAsPublished) {
  for (const Aead::Engine engine : kEngines) {
    for (const GcmCase& each : kGcmCases) {
      const std::string key = from_hex(each.key), nonce = from_hex(each.nonce);
      const std::string associated = from_hex(each.associated);
      Aead aead;
      aead.set_key(key.data(), key.size(), engine);
      std::string data = from_hex(each.plain);
      uint8_t tag[kAeadTagBytes];
      const auto* at = reinterpret_cast<const uint8_t*>(nonce.data());
      aead.seal(at, text(associated), text(data), &data[0], tag);
      EXPECT_EQ(to_hex(data), each.sealed);
      EXPECT_EQ(to_hex(std::string(reinterpret_cast<char*>(tag), sizeof tag)), each.tag);
      EXPECT_TRUE(aead.open(at, text(associated), text(data), &data[0], tag));
      EXPECT_EQ(to_hex(data), each.plain);
    }
  }
}

TEST(Cipher, OpensNothingThatWasChanged) {
  for (const Aead::Engine engine : kEngines) {
    Aead aead;
    aead.set_key("0123456789abcdef", 16, engine);
    uint8_t nonce[kAeadNonceBytes] = {1}, tag[kAeadTagBytes];
    std::string associated = "header", data(100, 'x');
    aead.seal(nonce, text(associated), text(data), &data[0], tag);
    const std::string sealed = data;
    for (size_t i = 0; i < data.size() * 8; ++i) {
      data[i / 8] = char(data[i / 8] ^ (1 << i % 8));
      const std::string changed = data;
      EXPECT_FALSE(aead.open(nonce, text(associated), text(data), &data[0], tag));
      EXPECT_EQ(data, changed) << "nothing may be decrypted before the tag is right";
      data = sealed;
    }
    for (size_t i = 0; i < sizeof tag * 8; ++i) {
      tag[i / 8] = uint8_t(tag[i / 8] ^ (1 << i % 8));
      EXPECT_FALSE(aead.open(nonce, text(associated), text(data), &data[0], tag));
      tag[i / 8] = uint8_t(tag[i / 8] ^ (1 << i % 8));
    }
    EXPECT_FALSE(aead.open(nonce, text("Header"), text(data), &data[0], tag));
    nonce[11] = 1;
    EXPECT_FALSE(aead.open(nonce, text("header"), text(data), &data[0], tag));
  }
}

// What one engine seals, the others open, in all lengths around the blocks' and the loops', at odd
// addresses, from one place to another.
TEST(Cipher, EnginesAgree) {
  Aead aeads[3];
  for (int i = 0; i < 3; ++i) aeads[i].set_key("0123456789abcdef", 16, kEngines[i]);
  uint8_t nonce[kAeadNonceBytes] = {7}, tag[kAeadTagBytes];
  std::string plain, sealed(3000, 0), opened(3000, 0);
  for (size_t bytes = 0; bytes < 1400; ++bytes) {
    const size_t odd = bytes % 31;
    for (const Aead& sealing : aeads) {
      sealing.seal(nonce, text("five!"), text(plain), &sealed[odd], tag);
      for (const Aead& opening : aeads) {
        const Aead::Text there = {&sealed[odd], bytes};
        ASSERT_TRUE(opening.open(nonce, text("five!"), there, &opened[30 - odd], tag)) << bytes;
        ASSERT_EQ(opened.substr(30 - odd, bytes), plain);
      }
    }
    plain += char(bytes * 31);
  }
}

TEST(Cipher, RunsFromTheMiddle) {
  const std::string plain(5000, 'p');
  for (const Aead::Engine engine : kEngines) {
    Aead aead;
    aead.set_key("0123456789abcdef", 16, engine);
    const uint8_t nonce[kAeadNonceBytes] = {0xff, 0xff};
    std::string whole = plain, parts = plain;
    aead.run(nonce, 0, text(plain), &whole[0]);
    for (size_t at = 0; at < plain.size(); at += 16 * 37) {
      const size_t bytes = std::min<size_t>(16 * 37, plain.size() - at);
      aead.run(nonce, at, {&plain[at], bytes}, &parts[at]);
    }
    EXPECT_EQ(whole, parts);
  }
}

CurveBytes curve(const std::string& hex) {
  CurveBytes out;
  const std::string bytes = from_hex(hex);
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

// RFC 7748, 5.2 and 6.1.
TEST(Cipher, AgreesOnSecretsAsPublished) {
  CurveBytes shared;
  ASSERT_TRUE(curve_shared(
      curve("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4"),
      curve("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c"), &shared));
  EXPECT_EQ(to_hex(view_of(shared)),
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552");
  const CurveBytes alice = {1, 2, 3};
  const CurveBytes bob = curve("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb");
  EXPECT_EQ(to_hex(view_of(curve_public(bob))),
            "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f");
  CurveBytes other;
  EXPECT_TRUE(curve_shared(alice, curve_public(bob), &shared));
  EXPECT_TRUE(curve_shared(bob, curve_public(alice), &other));
  EXPECT_EQ(shared, other);
}

TEST(Cipher, RefusesPointsThatGiveZero) {
  CurveBytes shared;
  const CurveBytes secret = {5};
  EXPECT_FALSE(curve_shared(secret, CurveBytes{}, &shared));
  EXPECT_FALSE(curve_shared(secret, CurveBytes{1}, &shared));
}

// FIPS 180-4, RFC 4231 case 2, RFC 5869 case 1.
TEST(Cipher, DigestsAsPublished) {
  EXPECT_EQ(to_hex(view_of(sha256({"a", "", "bc"}))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(view_of(hmac_sha256("Jefe", {"what do ya ", "want for nothing?"}))),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  const std::string secret(22, '\x0b');
  const Digest key = hkdf_extract(from_hex("000102030405060708090a0b0c"), secret);
  EXPECT_EQ(to_hex(view_of(key)),
            "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
  EXPECT_EQ(to_hex(hkdf_expand(key, from_hex("f0f1f2f3f4f5f6f7f8f9"), 42)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
}

// RFC 8448, 3: what client and server send with their application keys. The server's record has
// the number 1.
TEST(Cipher, MakesRecordsAsPublished) {
  struct Case {
    const char *secret, *record;
    int before;
  };
  const Case cases[] = {
      {"9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
       "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20"
       "441e2b62974e1f5a6292a2977014bd1e3deae63aeebb21694915e4",
       0},
      {"a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
       "17030300432e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d90e6dffc602dcb50"
       "1a59a8fcc49c4bf2e5f0a21c0047c2abf332540dd032e167c2955d",
       1},
  };
  for (const Case& each : cases) {
    Digest secret;
    const std::string bytes = from_hex(each.secret);
    std::copy(bytes.begin(), bytes.end(), secret.begin());
    RecordWriter writer(secret);
    uint8_t record[kRecordBytesMax];
    std::string data;
    for (int i = 0; i < 50; ++i) data += char(i);
    size_t size = 0;
    for (int i = 0; i <= each.before; ++i) {
      const iovec part{&data[0], data.size()};
      Parts parts(&part, 1);
      size = writer.seal(&parts, record);
    }
    EXPECT_EQ(to_hex(std::string(reinterpret_cast<char*>(record), size)), each.record);
  }
}

}  // namespace
}  // namespace tendril::transport

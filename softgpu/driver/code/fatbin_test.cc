// SPDX-License-Identifier: Apache-2.0
// Containers and their compressions, well-formed and hostile.

#include "softgpu/driver/code/fatbin.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <cstring>

#include "base/lz4.h"

namespace tendril::softgpu {
namespace {

using base::lz4_decode;

const std::string kText = ".version 7.0\n.target sm_70\n.address_size 64\n";

std::vector<uint8_t> packed(const std::string& text, std::vector<uint8_t> payload, uint64_t flags,
                            unsigned sm) {
  std::vector<uint8_t> image = make_fatbin("", sm);
  uint32_t compressed = static_cast<uint32_t>(payload.size());
  payload.resize((payload.size() + 7) / 8 * 8);
  image.resize(16 + 64);
  uint64_t padded = payload.size(), total = 64 + padded, bytes = text.size();
  memcpy(&image[8], &total, 8);
  memcpy(&image[16 + 8], &padded, 8);
  memcpy(&image[16 + 16], &compressed, 4);
  flags |= 0x11;
  memcpy(&image[16 + 40], &flags, 8);
  memcpy(&image[16 + 56], &bytes, 8);
  image.insert(image.end(), payload.begin(), payload.end());
  return image;
}

TEST(Lz4, DecodesLiteralsAndOverlappingMatches) {
  // 3 literals "abc", then a match of 9 at distance 3, then the last literals "xyzzy".
  const uint8_t block[] = {0x35, 'a', 'b', 'c', 3, 0, 0x50, 'x', 'y', 'z', 'z', 'y'};
  uint8_t out[32];
  ASSERT_EQ(17, lz4_decode(block, sizeof block, out, sizeof out));
  EXPECT_EQ("abcabcabcabcxyzzy", std::string(reinterpret_cast<char*>(out), 17));
  EXPECT_EQ(-1, lz4_decode(block, sizeof block, out, 16));
}

TEST(Lz4, RefusesWhatIsMalformed) {
  uint8_t out[64];
  const uint8_t far[] = {0x10, 'a', 9, 0, 0x10, 'b'};
  const uint8_t zero[] = {0x10, 'a', 0, 0, 0x10, 'b'};
  const uint8_t cut[] = {0xf0, 255, 255};
  EXPECT_EQ(-1, lz4_decode(far, sizeof far, out, sizeof out));
  EXPECT_EQ(-1, lz4_decode(zero, sizeof zero, out, sizeof out));
  EXPECT_EQ(-1, lz4_decode(cut, sizeof cut, out, sizeof out));
  EXPECT_EQ(-1, lz4_decode(cut, 0, out, sizeof out));
  // Any prefix of any bytes must either fail or stay inside.
  uint32_t state = 1;
  for (int round = 0; round < 2000; ++round) {
    uint8_t noise[40];
    for (uint8_t& byte : noise)
      byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
    lz4_decode(noise, sizeof noise, out, sizeof out);
  }
}

TEST(Fatbin, RoundTripStored) {
  std::vector<uint8_t> image = make_fatbin(kText, 70);
  std::string text;
  ASSERT_EQ(ImageStatus::kOk, image_ptx(image.data(), 90, image.size(), &text));
  EXPECT_EQ(kText, text);
  EXPECT_EQ(ImageStatus::kTooNew, image_ptx(image.data(), 60, image.size(), &text));
}

TEST(Fatbin, ReadsWrapper) {
  std::vector<uint8_t> image = make_fatbin(kText, 70);
  struct {
    uint32_t magic, version;
    const void *container, *more;
  } wrapper = {kWrapperMagic, 2, image.data(), nullptr};
  std::string text;
  ASSERT_EQ(ImageStatus::kOk, image_ptx(&wrapper, 90, SIZE_MAX, &text));
  EXPECT_EQ(kText, text);
}

TEST(Fatbin, ReadsZstd) {
  std::vector<uint8_t> payload(ZSTD_compressBound(kText.size()));
  payload.resize(ZSTD_compress(payload.data(), payload.size(), kText.data(), kText.size(), 3));
  std::vector<uint8_t> image = packed(kText, payload, kFatbinZstd, 70);
  std::string text;
  ASSERT_EQ(ImageStatus::kOk, image_ptx(image.data(), 90, image.size(), &text));
  EXPECT_EQ(kText, text);
}

TEST(Fatbin, ReadsLz4) {
  std::vector<uint8_t> payload = {0xf0, static_cast<uint8_t>(kText.size() - 15)};  // all literals
  payload.insert(payload.end(), kText.begin(), kText.end());
  std::vector<uint8_t> image = packed(kText, payload, kFatbinLz4, 70);
  std::string text;
  ASSERT_EQ(ImageStatus::kOk, image_ptx(image.data(), 90, image.size(), &text));
  EXPECT_EQ(kText, text);
}

TEST(Fatbin, RefusesWhatIsMalformed) {
  std::vector<uint8_t> image = make_fatbin(kText, 70);
  std::string text;
  for (size_t bytes = 0; bytes < image.size(); ++bytes) {
    std::vector<uint8_t> cut(image.begin(), image.begin() + bytes);
    cut.resize(bytes + 1);  // never an empty buffer
    EXPECT_NE(ImageStatus::kOk, image_ptx(cut.data(), 90, bytes, &text)) << bytes;
  }
  for (size_t at = 0; at < 80; ++at) {
    std::vector<uint8_t> bad = image;
    bad[at] ^= 0xff;
    image_ptx(bad.data(), 90, bad.size(), &text);  // any answer, no crash
  }
}

TEST(Fatbin, TextAndMachineCode) {
  std::string text;
  EXPECT_EQ(ImageStatus::kOk, image_ptx("\n  \t.version 7.0\n", 90, SIZE_MAX, &text));
  EXPECT_EQ(ImageStatus::kInvalid, image_ptx("", 90, SIZE_MAX, &text));
  EXPECT_EQ(ImageStatus::kInvalid, image_ptx("hello", 90, SIZE_MAX, &text));
  EXPECT_EQ(ImageStatus::kNoPtx, image_ptx("\x7f"
                                           "ELF...",
                                           90, SIZE_MAX, &text));
}

}  // namespace
}  // namespace tendril::softgpu

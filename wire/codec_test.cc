// SPDX-License-Identifier: Apache-2.0
// Tests of the encoder and decoder: round trips, truncation at every byte, counts that lie, sticky
// failure.
#include <gtest/gtest.h>

#include "wire/decoder.h"
#include "wire/encoder.h"

namespace tendril::wire {
namespace {

std::vector<uint8_t> sample() {
  std::vector<uint8_t> buffer;
  Encoder out(&buffer);
  out.u8(1);
  out.align(8);
  out.u64(0x1122334455667788u);
  out.text("hello");
  const uint32_t numbers[] = {1, 2, 3};
  out.array(numbers, 3);
  out.i32(-5);
  EXPECT_TRUE(out.finish());
  return buffer;
}

TEST(Codec, RoundTrip) {
  std::vector<uint8_t> buffer = sample();
  Decoder in(buffer.data(), buffer.size());
  EXPECT_EQ(in.u8(), 1);
  in.align(8);
  EXPECT_EQ(in.u64(), 0x1122334455667788u);
  EXPECT_EQ(in.text(), "hello");
  EXPECT_EQ(in.array<uint32_t>(), (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(in.i32(), -5);
  EXPECT_TRUE(in.done());
}

TEST(Codec, EveryTruncationFails) {
  std::vector<uint8_t> buffer = sample();
  for (size_t cut = 0; cut < buffer.size(); ++cut) {
    std::vector<uint8_t> part(buffer.begin(), buffer.begin() + long(cut));
    Decoder in(part.data(), part.size());
    in.u8();
    in.align(8);
    in.u64();
    in.text();
    in.array<uint32_t>();
    in.i32();
    EXPECT_FALSE(in.ok()) << cut;
  }
}

TEST(Codec, LyingCountsAllocateNothing) {
  std::vector<uint8_t> buffer;
  Encoder out(&buffer);
  out.u32(0xffffffffu);
  out.u64(0);
  out.finish();
  Decoder in(buffer.data(), buffer.size());
  EXPECT_TRUE(in.array<uint64_t>().empty());
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(in.u64(), 0u);  // sticky
  EXPECT_EQ(in.view(1), nullptr);
}

TEST(Codec, FixedSpanIsNeverLeft) {
  uint8_t memory[16];
  memset(memory, 0xee, sizeof memory);
  Encoder out(memory, 8);
  out.u64(1);
  out.u8(2);
  EXPECT_FALSE(out.ok());
  EXPECT_EQ(memory[8], 0xee);
  Encoder none(static_cast<void*>(nullptr), 0);
  none.bytes(memory, 0);
  EXPECT_TRUE(none.ok());
  none.u8(1);
  EXPECT_FALSE(none.ok());
}

TEST(Codec, GrowthHasALimit) {
  std::vector<uint8_t> buffer;
  Encoder out(&buffer, 1000);
  for (int i = 0; i < 1000; ++i) out.u8(uint8_t(i));
  EXPECT_TRUE(out.ok());
  out.u8(0);
  EXPECT_FALSE(out.finish());
  EXPECT_EQ(buffer.size(), 1000u);
}

}  // namespace
}  // namespace tendril::wire

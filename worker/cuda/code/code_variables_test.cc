// SPDX-License-Identifier: Apache-2.0
// What code_variables finds in PTX, cubins and containers, made by hand here so that the sizes are
// known.
#include "worker/cuda/code/code_variables.h"

#include <gtest/gtest.h>
#include <zstd.h>

#include <cstring>
#include <string>
#include <vector>

#include "api/cuda/code_image.h"
#include "worker/cuda/code/packed_code.h"

namespace tendril::worker::cuda {
namespace {

constexpr char kHead[] = ".version 8.0\n.target sm_90\n.address_size 64\n";

CodeVariables of(const std::string& ptx) {
  const std::string text = kHead + ptx;
  return code_variables(reinterpret_cast<const uint8_t*>(text.c_str()), text.size() + 1);
}

TEST(CodeVariables, TypesAndShapes) {
  EXPECT_EQ(of("").bytes, 0u);
  EXPECT_EQ(of(".global .u32 a;").bytes, 4u);
  EXPECT_EQ(of(".visible .global .align 16 .b8 big[1048576];").bytes, 1048576u);
  EXPECT_EQ(of(".const .f64 table[10][0x20];").bytes, 8u * 10 * 32);
  EXPECT_EQ(of(".global .v4 .f32 vectors[3];").bytes, 48u);
  EXPECT_EQ(of(".global .f16x2 pairs[3]; .global .b128 wide;").bytes, 12u + 16);
  EXPECT_EQ(of(".global .s16 a, b[4], c;").bytes, 12u);
  EXPECT_EQ(of(".weak .global .attribute(.managed) .align 4 .u32 m[2];").bytes, 8u);
  EXPECT_EQ(of(".global .align 8 .u64 x = 5;").bytes, 8u);
}

TEST(CodeVariables, Initialisers) {
  EXPECT_EQ(of(".global .f32 bias[] = {-1.0, 1.0};").bytes, 8u);
  EXPECT_EQ(of(".global .u8 rows[][3] = {{1,2,3},{4,5,6}}; .global .u8 one;").bytes, 7u);
  EXPECT_EQ(of(".global .u8 filled[5] = {1,2};").bytes, 5u);
}

TEST(CodeVariables, WhatIsNoVariable) {
  EXPECT_EQ(of(".extern .global .u32 elsewhere[100];").bytes, 0u);
  EXPECT_EQ(of(".shared .b8 tile[4096]; .extern .shared .b8 more[];").bytes, 0u);
  EXPECT_EQ(of("// .global .u32 a;\n/* .global .u32 b; */").bytes, 0u);
  EXPECT_EQ(
      of(".entry k(.param .u64 .ptr .global .align 4 p) { .reg .b32 r; { ld.global.u32 r, [p]; } }")
          .bytes,
      0u);
  EXPECT_EQ(of(".func (.param .b32 r) f(.param .b64 a) { ret; }\n.global .u32 after;").bytes, 4u);
  EXPECT_EQ(of(".section .debug_info { .b8 1,2,3 }\n.global .u32 after;").bytes, 4u);
}

TEST(CodeVariables, NonsenseSaturatesAndEnds) {
  EXPECT_GE(of(".global .u64 a[99999999999999999999][99999999999999999999];").bytes,
            uint64_t{1} << 60);
  for (const char* text : {".global", ".global .u32 a[", ".global .u32 a[] = {",
                           ".global .u32 a = {{{", "/*", "\"", ".entry k {"})
    EXPECT_EQ(of(text).bytes, 0u) << text;
}

// A cubin with a section of names and two of variables, as small as one can be.
std::vector<uint8_t> cubin(uint64_t bytes) {
  const std::string names = std::string("\0.nv.global\0.nv.constant3\0.text.k\0", 35);
  std::vector<uint8_t> elf(64 + 4 * 64);
  const auto put = [&](size_t at, auto value) {
    std::memcpy(elf.data() + at, &value, sizeof value);
  };
  put(0, api::kElfMagic);
  elf[4] = 2, elf[5] = 1;
  put(18, api::kElfMachineCuda);
  put(40, uint64_t{64});
  put(58, uint16_t{64});
  put(60, uint16_t{4});
  put(62, uint16_t{1});
  const auto section = [&](size_t i, uint32_t name, uint32_t type, uint64_t offset, uint64_t size) {
    put(64 + i * 64, name), put(64 + i * 64 + 4, type), put(64 + i * 64 + 24, offset),
        put(64 + i * 64 + 32, size);
  };
  section(1, 0, 3, elf.size(), names.size());
  section(2, 1, 8, 0, bytes);  // takes no room in the file
  section(3, 12, 1, 64, 100);
  elf.insert(elf.end(), names.begin(), names.end());
  return elf;
}

TEST(CodeVariables, SectionsOfACubin) {
  const std::vector<uint8_t> elf = cubin(uint64_t{1} << 33);
  const CodeVariables found = code_variables(elf.data(), elf.size());
  EXPECT_EQ(found.bytes, (uint64_t{1} << 33) + 100);
  EXPECT_TRUE(found.all);
}

TEST(CodeVariables, TheLargestEntryOfAContainer) {
  const std::vector<uint8_t> elf = cubin(1000);
  const std::string text = std::string(kHead) + ".global .b8 a[5000];";
  std::vector<uint8_t> image(sizeof(api::CodeContainer));
  const auto append = [&](uint16_t kind, const void* payload, uint64_t bytes, uint32_t stored) {
    api::CodeEntry entry{};
    entry.kind = kind;
    entry.header_bytes = sizeof entry;
    entry.payload_bytes = bytes;
    entry.stored_bytes = stored;
    const auto* at = reinterpret_cast<const uint8_t*>(&entry);
    image.insert(image.end(), at, at + sizeof entry);
    at = static_cast<const uint8_t*>(payload);
    image.insert(image.end(), at, at + bytes);
  };
  const auto looked_at = [&] {
    constexpr uint16_t kHeader = sizeof(api::CodeContainer);
    const api::CodeContainer head{api::kContainerMagic, 1, kHeader, image.size() - kHeader};
    std::memcpy(image.data(), &head, sizeof head);
    return code_variables(image.data(), image.size());
  };
  append(api::kEntryCubin, elf.data(), elf.size(), 0);
  EXPECT_EQ(looked_at().bytes, 1100u);
  append(api::kEntryPtx, text.c_str(), text.size() + 1, 0);
  EXPECT_EQ(looked_at().bytes, 5000u);
  EXPECT_TRUE(looked_at().all);
  append(api::kEntryPtx, text.c_str(), text.size() + 1, 10);
  EXPECT_FALSE(looked_at().all) << "nobody knows how it is packed";
}

// A container of one packed entry.
CodeVariables of_packed(uint16_t kind, uint64_t flag, const std::vector<uint8_t>& stored,
                        uint64_t unpacked_bytes) {
  api::CodeEntry entry{};
  entry.kind = kind;
  entry.header_bytes = sizeof entry;
  entry.payload_bytes = stored.size();
  entry.stored_bytes = static_cast<uint32_t>(stored.size());
  entry.flags = flag | 0x11;
  entry.unpacked_bytes = unpacked_bytes;
  constexpr uint16_t kHeader = sizeof(api::CodeContainer);
  const api::CodeContainer head{api::kContainerMagic, 1, kHeader, sizeof entry + stored.size()};
  std::vector<uint8_t> image(kHeader + sizeof entry);
  std::memcpy(image.data(), &head, sizeof head);
  std::memcpy(image.data() + kHeader, &entry, sizeof entry);
  image.insert(image.end(), stored.begin(), stored.end());
  return code_variables(image.data(), image.size());
}

std::vector<uint8_t> with_zstd(const std::vector<uint8_t>& plain) {
  std::vector<uint8_t> stored(ZSTD_compressBound(plain.size()));
  stored.resize(ZSTD_compress(stored.data(), stored.size(), plain.data(), plain.size(), 3));
  return stored;
}

// What nvcc makes by default. A program of 3 kB took 64 MiB of a card, and the slice paid nothing.
TEST(CodeVariables, PackedEntriesAreUnpacked) {
  const std::vector<uint8_t> elf = cubin(uint64_t{64} << 20);
  CodeVariables found = of_packed(api::kEntryCubin, api::kEntryZstd, with_zstd(elf), elf.size());
  EXPECT_EQ(found.bytes, (uint64_t{64} << 20) + 100);
  EXPECT_TRUE(found.all);
  const std::string text = std::string(kHead) + ".global .b8 a[5000];";
  std::vector<uint8_t> literals = {0xf0};
  for (size_t left = text.size() - 15;; left -= 255) {
    literals.push_back(static_cast<uint8_t>(left < 255 ? left : 255));
    if (left < 255) break;
  }
  literals.insert(literals.end(), text.begin(), text.end());
  found = of_packed(api::kEntryPtx, api::kEntryLz4, literals, text.size());
  EXPECT_EQ(found.bytes, 5000u);
  EXPECT_TRUE(found.all);
}

TEST(CodeVariables, PackedEntriesThatLie) {
  const std::vector<uint8_t> elf = cubin(1000), stored = with_zstd(elf);
  const auto read = [&](uint64_t unpacked_bytes) {
    return of_packed(api::kEntryCubin, api::kEntryZstd, stored, unpacked_bytes);
  };
  constexpr uint64_t kNoRoom = uint64_t{1} << 60;
  EXPECT_GE(read(elf.size() - 1).bytes, kNoRoom) << "more than it says";
  EXPECT_GE(read(0).bytes, kNoRoom);
  EXPECT_GE(read(kUnpackedMax + 1).bytes, kNoRoom);
  EXPECT_GE(read(~uint64_t{0}).bytes, kNoRoom);
  EXPECT_EQ(read(elf.size() + 100).bytes, 1100u) << "less than it says";
  EXPECT_GE(of_packed(api::kEntryCubin, api::kEntryLz4, stored, elf.size()).bytes, kNoRoom);
  EXPECT_FALSE(of_packed(api::kEntryCubin, 0, stored, elf.size()).all);
  std::vector<uint8_t> broken = stored;
  for (size_t at = 0; at < broken.size(); ++at) {
    broken[at] ^= 0xff;
    of_packed(api::kEntryCubin, api::kEntryZstd, broken, elf.size());  // any answer, no crash
    broken[at] ^= 0xff;
  }
}

}  // namespace
}  // namespace tendril::worker::cuda

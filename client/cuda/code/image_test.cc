// SPDX-License-Identifier: Apache-2.0
// Recognising device code and leaving out what a GPU cannot use, on containers and cubins built by
// hand.
#include "client/cuda/code/image.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace tendril::client::cuda {
namespace {

struct Part {
  uint16_t kind;
  uint32_t sm;
  uint64_t flags;
  std::string payload;
};

constexpr uint64_t kPlain = 0x11;

std::vector<uint8_t> container(const std::vector<Part>& parts) {
  std::vector<uint8_t> out(sizeof(api::CodeContainer));
  for (const Part& part : parts) {
    api::CodeEntry entry{};
    entry.kind = part.kind;
    entry.version = 0x0101;
    entry.header_bytes = sizeof entry;
    entry.payload_bytes = (part.payload.size() + 7) & ~uint64_t{7};
    entry.sm = part.sm;
    entry.flags = part.flags;
    const size_t at = out.size();
    out.resize(at + sizeof entry + entry.payload_bytes);
    std::memcpy(out.data() + at, &entry, sizeof entry);
    std::memcpy(out.data() + at + sizeof entry, part.payload.data(), part.payload.size());
  }
  const api::CodeContainer head{api::kContainerMagic, 1, sizeof head, out.size() - sizeof head};
  std::memcpy(out.data(), &head, sizeof head);
  return out;
}

// Payloads of the entries that are left, for a device.
std::string left(const std::vector<Part>& parts, Target target, bool keep_ptx = false,
                 bool* reduced = nullptr) {
  const std::vector<uint8_t> bytes = container(parts);
  const Payload payload = reduce(api::code_image(bytes.data(), bytes.size()), &target, 1, keep_ptx);
  EXPECT_EQ(api::container_bytes(payload.data, payload.bytes), payload.bytes);
  if (reduced != nullptr) *reduced = payload.reduced;
  std::string out;
  for (uint64_t at = sizeof(api::CodeContainer); at < payload.bytes;) {
    const api::CodeEntry entry = api::code_read<api::CodeEntry>(payload.data + at);
    out += reinterpret_cast<const char*>(payload.data + at + entry.header_bytes);
    out += ' ';
    at += entry.header_bytes + entry.payload_bytes;
  }
  return out;
}

const std::vector<Part> kTypical = {
    {api::kEntryCubin, 80, kPlain, "c80"},
    {api::kEntryCubin, 86, kPlain, "c86"},
    {api::kEntryCubin, 90, kPlain, "c90"},
    {api::kEntryCubin, 90, kPlain | api::kEntryArchSpecific, "c90a"},
    {api::kEntryCubin, 100, kPlain | api::kEntryFamily, "c100f"},
    {api::kEntryPtx, 80, kPlain, "p80"},
    {api::kEntryPtx, 90, kPlain, "p90"},
};

TEST(Image, KeepsWhatTheDeviceRuns) {
  EXPECT_EQ(left(kTypical, {9, 0}), "c90 c90a ");
  EXPECT_EQ(left(kTypical, {8, 0}), "c80 ");
  EXPECT_EQ(left(kTypical, {8, 9}), "c80 c86 ");
  EXPECT_EQ(left(kTypical, {10, 3}), "c100f ");
}

TEST(Image, ArchitectureSpecificCodeIsExact) {
  const std::vector<Part> parts = {
      {api::kEntryCubin, 100, kPlain | api::kEntryArchSpecific, "c100a"},
      {api::kEntryPtx, 90, kPlain | api::kEntryArchSpecific, "p90a"},
      {api::kEntryPtx, 80, kPlain, "p80"}};
  EXPECT_EQ(left(parts, {10, 0}), "c100a ");
  EXPECT_EQ(left(parts, {10, 3}), "p80 ");
  EXPECT_EQ(left(parts, {9, 0}), "p90a ");
}

TEST(Image, FamilyCodeStaysInItsFamily) {
  const std::vector<Part> parts = {{api::kEntryPtx, 100, kPlain | api::kEntryFamily, "p100f"},
                                   {api::kEntryPtx, 90, kPlain, "p90"}};
  EXPECT_EQ(left(parts, {10, 3}), "p100f ");
  EXPECT_EQ(left(parts, {12, 0}), "p90 ");
}

TEST(Image, NewestPtxOnlyWithoutCubin) {
  EXPECT_EQ(left(kTypical, {12, 0}), "p90 ");
  EXPECT_EQ(left(kTypical, {9, 0}, true), "c90 c90a p90 ");
  EXPECT_EQ(left(kTypical, {8, 6}, true), "c80 c86 p80 ");
}

TEST(Image, SendsTheWholeWhenNothingFits) {
  bool reduced = true;
  EXPECT_EQ(left(kTypical, {7, 5}, false, &reduced), "c80 c86 c90 c90a c100f p80 p90 ");
  EXPECT_FALSE(reduced);
}

TEST(Image, OneContainerForSeveralDevices) {
  const std::vector<uint8_t> bytes = container(kTypical);
  const Target targets[] = {{9, 0}, {12, 0}};
  const Payload payload = reduce(api::code_image(bytes.data(), bytes.size()), targets, 2, false);
  const std::vector<uint8_t> expected = container({kTypical[2], kTypical[3], kTypical[6]});
  EXPECT_EQ(payload.rebuilt, expected);
}

TEST(Image, UntouchedContainerIsNotCopied) {
  const std::vector<uint8_t> bytes = container({kTypical[2]});
  const Target target{9, 0};
  const Payload payload = reduce(api::code_image(bytes.data(), bytes.size()), &target, 1, false);
  EXPECT_EQ(payload.data, bytes.data());
  EXPECT_FALSE(payload.reduced);
}

TEST(Image, EntryBeyondItsContainerGoesToTheDriverAsItIs) {
  std::vector<uint8_t> bytes = container(kTypical);
  const uint64_t lie = uint64_t{1} << 60;
  std::memcpy(bytes.data() + sizeof(api::CodeContainer) + 8, &lie, sizeof lie);
  const Target target{9, 0};
  EXPECT_EQ(reduce(api::code_image(bytes.data(), bytes.size()), &target, 1, false).bytes,
            bytes.size());
}

TEST(Image, FollowsWrappersOfBothVersions) {
  const std::vector<uint8_t> bytes = container(kTypical);
  const void* relocatable[] = {bytes.data(), nullptr};
  for (const uint32_t version : {1u, 2u}) {
    const api::CodeWrapper wrapper{api::kWrapperMagic, version, bytes.data(),
                                   version == 2 ? relocatable : nullptr};
    const CodeImage image = recognise(&wrapper);
    EXPECT_EQ(image.kind, CodeKind::kContainer);
    EXPECT_EQ(image.data, bytes.data());
    EXPECT_EQ(image.bytes, bytes.size());
  }
  const api::CodeWrapper empty{api::kWrapperMagic, 1, nullptr, nullptr};
  EXPECT_EQ(recognise(&empty).kind, CodeKind::kNone);
}

TEST(Image, PtxIsTextWithItsNul) {
  const char text[] = "\n  .version 8.0\n";
  EXPECT_EQ(recognise(text).kind, CodeKind::kPtx);
  EXPECT_EQ(recognise(text).bytes, sizeof text);
  EXPECT_EQ(recognise("// comment").kind, CodeKind::kPtx);
  EXPECT_EQ(recognise("").kind, CodeKind::kNone);
  EXPECT_EQ(recognise("garbage").kind, CodeKind::kNone);
  EXPECT_EQ(recognise(nullptr).kind, CodeKind::kNone);
  EXPECT_EQ(api::code_image(reinterpret_cast<const uint8_t*>(text), 5).kind,
            CodeKind::kNone);  // no NUL within
}

// A cubin of header, one section of 100 bytes, one without bytes, and the section table behind
// them.
std::vector<uint8_t> cubin() {
  constexpr uint64_t kSections = 168;
  std::vector<uint8_t> out(kSections + 3 * 64);
  const auto put = [&](size_t at, auto value) {
    std::memcpy(out.data() + at, &value, sizeof value);
  };
  put(0, api::kElfMagic);
  out[4] = 2;
  out[5] = 1;
  put(18, api::kElfMachineCuda);
  put(40, kSections);
  put(58, uint16_t{64});
  put(60, uint16_t{3});
  put(kSections + 64 + 4, uint32_t{1});
  put(kSections + 64 + 24, uint64_t{64});
  put(kSections + 64 + 32, uint64_t{100});
  put(kSections + 128 + 4, uint32_t{8});
  put(kSections + 128 + 32, uint64_t{1} << 40);
  return out;
}

TEST(Image, CubinIsMeasuredByItsSections) {
  std::vector<uint8_t> bytes = cubin();
  EXPECT_EQ(recognise(bytes.data()).kind, CodeKind::kCubin);
  EXPECT_EQ(recognise(bytes.data()).bytes, bytes.size());
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    const std::vector<uint8_t> part(bytes.begin(), bytes.begin() + static_cast<long>(cut));
    EXPECT_EQ(api::code_image(part.data(), part.size()).kind, CodeKind::kNone) << cut;
  }
  bytes[18] = 62;  // x86-64
  EXPECT_EQ(recognise(bytes.data()).kind, CodeKind::kNone);
}

TEST(Image, CubinWithMoreSectionsThanFitTheHeader) {
  std::vector<uint8_t> bytes = cubin();
  const uint64_t sections = 3;
  std::memset(bytes.data() + 60, 0, 2);
  std::memcpy(bytes.data() + 168 + 32, &sections, sizeof sections);
  EXPECT_EQ(recognise(bytes.data()).bytes, bytes.size());
}

}  // namespace
}  // namespace tendril::client::cuda

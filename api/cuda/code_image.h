// SPDX-License-Identifier: Apache-2.0
// Device code as programs give it to the driver: a container of entries, a cubin, or PTX text. None
// comes with a length. This says what lies at an address, and how many bytes it has according to
// its own headers. The client uses it on its process' memory, which has no bound. The worker uses
// it on what a peer sent, which is bounded by the bytes received. Facts: layouts measured with nvcc
// 13.0.
#pragma once

#include <cstdint>
#include <cstring>

namespace tendril::api {

enum class CodeKind : uint8_t { kNone, kContainer, kCubin, kPtx };

struct CodeImage {
  CodeKind kind = CodeKind::kNone;
  const uint8_t* data = nullptr;
  uint64_t bytes = 0;  // PTX: including its NUL
};

inline constexpr uint32_t kWrapperMagic = 0x466243b1;
inline constexpr uint32_t kContainerMagic = 0xba55ed50;
inline constexpr uint32_t kElfMagic = 0x464c457f;
inline constexpr uint16_t kElfMachineCuda = 190;
inline constexpr uint64_t kCodeBytesMax = uint64_t{1}
                                          << 32;  // a header that claims more is not trusted

struct CodeWrapper {
  uint32_t magic;
  uint32_t version;  // 1, or 2 with relocatable parts
  const void* container;
  const void* const* relocatable;
};

struct CodeContainer {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t payload_bytes;
};
static_assert(sizeof(CodeContainer) == 16);

inline constexpr uint16_t kEntryPtx = 1;
inline constexpr uint16_t kEntryCubin = 2;
inline constexpr uint64_t kEntryArchSpecific = 0x100000;
inline constexpr uint64_t kEntryFamily = 0x200000;
inline constexpr uint64_t kEntryLz4 = 0x2000, kEntryZstd = 0x8000;  // how it is compressed

struct CodeEntry {
  uint16_t kind;
  uint16_t version;
  uint32_t header_bytes;
  uint64_t payload_bytes;  // padded
  uint32_t stored_bytes;   // when compressed
  uint32_t reserved;
  uint32_t ptx_version;
  uint32_t sm;  // 90: compute capability 9.0
  uint32_t name_offset, name_bytes;
  uint64_t flags;
  uint64_t reserved2;
  uint64_t unpacked_bytes;
};
static_assert(sizeof(CodeEntry) == 64);
inline constexpr uint32_t kEntryBytesMin = 48;  // up to and including `flags`

template <typename T>
T code_read(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// True if [offset, offset + bytes) lies within `available`.
constexpr bool code_within(uint64_t offset, uint64_t bytes, uint64_t available) {
  return offset <= available && bytes <= available - offset;
}

// Bytes of the ELF file at `at`, from its section and program headers. 0: it is not a cubin, or it
// does not lie within `available`.
inline uint64_t elf_bytes(const uint8_t* at, uint64_t available) {
  constexpr uint64_t kHeader = 64, kSection = 64, kSegment = 56;
  if (available < kHeader || at[4] != 2 || at[5] != 1 ||
      code_read<uint16_t>(at + 18) != kElfMachineCuda)
    return 0;
  const uint64_t segments_at = code_read<uint64_t>(at + 32),
                 sections_at = code_read<uint64_t>(at + 40);
  const uint64_t segment_bytes = code_read<uint16_t>(at + 54),
                 section_bytes = code_read<uint16_t>(at + 58);
  uint64_t segments = code_read<uint16_t>(at + 56), sections = code_read<uint16_t>(at + 60);
  uint64_t end = kHeader;
  const auto cover = [&](uint64_t offset, uint64_t bytes) {
    if (!code_within(offset, bytes, available)) return false;
    if (offset + bytes > end) end = offset + bytes;
    return true;
  };
  if (sections_at != 0) {
    if (section_bytes < kSection || !cover(sections_at, section_bytes)) return 0;
    if (sections == 0)
      sections = code_read<uint64_t>(at + sections_at +
                                     32);  // too many for 16 bits: in the first section's size
    if (sections > kCodeBytesMax / kSection || !cover(sections_at, sections * section_bytes))
      return 0;
    for (uint64_t i = 1; i < sections; ++i) {
      const uint8_t* section = at + sections_at + i * section_bytes;
      constexpr uint32_t kNoBits = 8;
      const uint32_t type = code_read<uint32_t>(section + 4);
      if (type == 0 || type == kNoBits) continue;
      if (!cover(code_read<uint64_t>(section + 24), code_read<uint64_t>(section + 32))) return 0;
    }
  }
  if (segments_at != 0 && segments != 0) {
    if (segment_bytes < kSegment || !cover(segments_at, segments * segment_bytes)) return 0;
    for (uint64_t i = 0; i < segments; ++i) {
      const uint8_t* segment = at + segments_at + i * segment_bytes;
      if (!cover(code_read<uint64_t>(segment + 8), code_read<uint64_t>(segment + 32))) return 0;
    }
  }
  return end;
}

// Bytes of the container at `at`. 0: there is none, or it does not fit.
inline uint64_t container_bytes(const uint8_t* at, uint64_t available) {
  if (available < sizeof(CodeContainer)) return 0;
  const CodeContainer head = code_read<CodeContainer>(at);
  if (head.magic != kContainerMagic || head.header_bytes < sizeof head) return 0;
  return code_within(head.header_bytes, head.payload_bytes, available)
             ? head.header_bytes + head.payload_bytes
             : 0;
}

// What lies at `at`. Wrappers are not looked at. Text is anything that begins like PTX: with white
// space, a comment or a directive.
inline CodeImage code_image(const uint8_t* at, uint64_t available) {
  CodeImage image;
  image.data = at;
  if (available == 0) return image;
  const uint8_t first = at[0];
  const bool space = first == ' ' || first == '\t' || first == '\n' || first == '\r' ||
                     first == '\v' || first == '\f';
  if (space || first == '/' || first == '.') {
    const void* end = std::memchr(at, 0, available);
    if (end != nullptr)
      image.bytes = static_cast<uint64_t>(static_cast<const uint8_t*>(end) - at) + 1;
    if (end != nullptr) image.kind = CodeKind::kPtx;
    return image;
  }
  uint32_t magic = 0;  // read byte by byte: the memory may end before the fourth
  for (uint64_t i = 0; i < 4 && i < available; ++i) {
    magic |= static_cast<uint32_t>(at[i]) << (8 * i);
    if (at[i] == 0) break;
  }
  if (magic == kContainerMagic) {
    image.bytes = container_bytes(at, available);
    if (image.bytes != 0) image.kind = CodeKind::kContainer;
  } else if (magic == kElfMagic) {
    image.bytes = elf_bytes(at, available);
    if (image.bytes != 0) image.kind = CodeKind::kCubin;
  }
  return image;
}

}  // namespace tendril::api

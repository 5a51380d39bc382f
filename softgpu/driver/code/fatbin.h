// SPDX-License-Identifier: Apache-2.0
// Finds PTX in the images that programs pass to the module calls: text, a fat binary container, its
// wrapper, or a cubin (which has none). An image carries no length, so the outermost pointer is
// trusted, as a driver trusts it. Everything inside is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tendril::softgpu {

struct FatbinEntry {
  uint16_t kind = 0;  // 1 PTX, 2 machine code
  unsigned sm = 0;    // 10 * major + minor
  uint64_t flags = 0;
  const uint8_t* payload = nullptr;
  size_t payload_bytes = 0;
  uint64_t compressed_bytes = 0;  // 0: stored
  uint64_t uncompressed_bytes = 0;
};

inline constexpr uint16_t kFatbinPtx = 1, kFatbinCubin = 2;
inline constexpr uint32_t kFatbinMagic = 0xBA55ED50, kWrapperMagic = 0x466243B1;
inline constexpr uint64_t kFatbinLz4 = 0x2000, kFatbinZstd = 0x8000;

// Entries of a container of at most `limit` bytes (SIZE_MAX: what its header says). False if it is
// malformed.
bool list_fatbin(const uint8_t* container, size_t limit, std::vector<FatbinEntry>* out);
// Text of a PTX entry, decompressed. False if it cannot be decompressed.
bool fatbin_text(const FatbinEntry& entry, std::string* out);
// A container with `text` as its one stored PTX entry.
std::vector<uint8_t> make_fatbin(const std::string& text, unsigned sm);

enum class ImageStatus { kOk, kInvalid, kNoPtx, kTooNew };
// The newest PTX in an image that suits compute capability `sm`. `limit` bounds images whose size
// is known.
ImageStatus image_ptx(const void* image, unsigned sm, size_t limit, std::string* out);

}  // namespace tendril::softgpu

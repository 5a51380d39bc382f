// SPDX-License-Identifier: Apache-2.0
// Containers: see fatbin.h. A container has a header of 16 bytes and then entries.

#include "softgpu/driver/code/fatbin.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>

#include "base/lz4.h"

namespace tendril::softgpu {
namespace {

constexpr size_t kContainerHeader = 16;
constexpr size_t kEntryHeader = 64;             // up to and including the uncompressed size
constexpr uint64_t kMaxContainer = 4ull << 30;  // no real image is bigger
constexpr uint64_t kMaxText = 512ull << 20;     // nor any PTX
constexpr uint64_t kMaxRatio = 1000;            // a smaller input that claims more is an attack
constexpr uint64_t kExactArch = 0x100000;       // "a": runs on exactly this architecture

template <typename T>
T load(const uint8_t* at) {
  T value;
  memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void store(uint8_t* at, T value) {
  memcpy(at, &value, sizeof value);
}

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const uint8_t* container;
  const void* more;  // version 2: relocatable parts, of no use without a linker for machine code
};

}  // namespace

bool list_fatbin(const uint8_t* container, size_t limit, std::vector<FatbinEntry>* out) {
  out->clear();
  if (limit < kContainerHeader || load<uint32_t>(container) != kFatbinMagic) return false;
  size_t header = load<uint16_t>(container + 6);
  uint64_t bytes = load<uint64_t>(container + 8);
  if (header < kContainerHeader || bytes > kMaxContainer || header > limit ||
      bytes > limit - header)
    return false;
  const uint8_t* at = container + header;
  const uint8_t* end = at + bytes;
  while (at < end) {
    size_t left = static_cast<size_t>(end - at);
    if (left < kEntryHeader) return false;
    FatbinEntry entry;
    uint32_t entry_header = load<uint32_t>(at + 4);
    uint64_t payload = load<uint64_t>(at + 8);
    if (entry_header < kEntryHeader || entry_header > left || payload > left - entry_header)
      return false;
    entry.kind = load<uint16_t>(at);
    entry.compressed_bytes = load<uint32_t>(at + 16);
    entry.sm = load<uint32_t>(at + 28);
    entry.flags = load<uint64_t>(at + 40);
    entry.uncompressed_bytes = load<uint64_t>(at + 56);
    entry.payload = at + entry_header;
    entry.payload_bytes = payload;
    if (entry.compressed_bytes > payload) return false;
    out->push_back(entry);
    at += entry_header + payload;
  }
  return true;
}

bool fatbin_text(const FatbinEntry& entry, std::string* out) {
  bool packed = (entry.flags & (kFatbinLz4 | kFatbinZstd)) != 0;
  if (!packed) {
    out->assign(reinterpret_cast<const char*>(entry.payload), entry.payload_bytes);
  } else {
    size_t input = entry.compressed_bytes != 0 ? entry.compressed_bytes : entry.payload_bytes;
    uint64_t bytes = entry.uncompressed_bytes;
    if (bytes == 0 || bytes > kMaxText || bytes / kMaxRatio > input) return false;
    out->resize(bytes);
    auto* target = reinterpret_cast<uint8_t*>(out->data());
    if ((entry.flags & kFatbinLz4) != 0) {
      int64_t got = base::lz4_decode(entry.payload, input, target, bytes);
      if (got < 0) return false;
      out->resize(static_cast<size_t>(got));
    } else {
      size_t got = ZSTD_decompress(target, bytes, entry.payload, input);
      if (ZSTD_isError(got)) return false;
      out->resize(got);
    }
  }
  size_t end = out->find('\0');  // payloads are padded with zeros
  if (end != std::string::npos) out->resize(end);
  return true;
}

std::vector<uint8_t> make_fatbin(const std::string& text, unsigned sm) {
  size_t payload = (text.size() + 1 + 7) / 8 * 8;
  std::vector<uint8_t> out(kContainerHeader + kEntryHeader + payload);
  store<uint32_t>(out.data(), kFatbinMagic);
  store<uint16_t>(out.data() + 4, 1);
  store<uint16_t>(out.data() + 6, kContainerHeader);
  store<uint64_t>(out.data() + 8, kEntryHeader + payload);
  uint8_t* entry = out.data() + kContainerHeader;
  store<uint16_t>(entry, kFatbinPtx);
  store<uint16_t>(entry + 2, 0x0101);
  store<uint32_t>(entry + 4, kEntryHeader);
  store<uint64_t>(entry + 8, payload);
  store<uint32_t>(entry + 28, sm);
  store<uint64_t>(entry + 40, 0x11);  // 64-bit, Linux
  memcpy(entry + kEntryHeader, text.data(), text.size());
  return out;
}

ImageStatus image_ptx(const void* image, unsigned sm, size_t limit, std::string* out) {
  const auto* bytes = static_cast<const uint8_t*>(image);
  auto starts = [&](const void* magic, size_t n) {
    return limit >= n &&
           strncmp(static_cast<const char*>(image), static_cast<const char*>(magic), n) == 0;
  };
  uint32_t magic = 0;
  // Compares byte by byte up to a difference, because a text image may be shorter than a magic
  // number.
  if (starts("\x50\xed\x55\xba", 4)) magic = kFatbinMagic;
  if (starts("\xb1\x43\x62\x46", 4)) magic = kWrapperMagic;
  if (magic == kWrapperMagic) {
    if (limit < sizeof(Wrapper)) return ImageStatus::kInvalid;
    bytes = load<Wrapper>(bytes).container;
    if (bytes == nullptr) return ImageStatus::kInvalid;
    limit = SIZE_MAX;
    magic = kFatbinMagic;
  }
  if (magic == kFatbinMagic) {
    std::vector<FatbinEntry> entries;
    if (!list_fatbin(bytes, limit, &entries)) return ImageStatus::kInvalid;
    const FatbinEntry* best = nullptr;
    bool too_new = false;
    for (const FatbinEntry& entry : entries) {
      if (entry.kind != kFatbinPtx) continue;
      bool fits = (entry.flags & kExactArch) != 0 ? entry.sm == sm : entry.sm <= sm;
      too_new |= !fits;
      if (fits && (best == nullptr || entry.sm > best->sm)) best = &entry;
    }
    if (best == nullptr) return too_new ? ImageStatus::kTooNew : ImageStatus::kNoPtx;
    return fatbin_text(*best, out) ? ImageStatus::kOk : ImageStatus::kInvalid;
  }
  if (starts("\x7f"
             "ELF",
             4))
    return ImageStatus::kNoPtx;
  const auto* text = static_cast<const char*>(image);
  size_t length = limit == SIZE_MAX ? strlen(text) : strnlen(text, limit);
  size_t start = 0;
  while (start < length && (text[start] == ' ' || (text[start] >= '\t' && text[start] <= '\r')))
    ++start;
  // PTX begins with a directive or a comment.
  if (start == length || (text[start] != '.' && text[start] != '/')) return ImageStatus::kInvalid;
  out->assign(text, length);
  return ImageStatus::kOk;
}

}  // namespace tendril::softgpu

// SPDX-License-Identifier: Apache-2.0
// See image.h.
#include "client/cuda/code/image.h"

#include <cstring>

namespace tendril::client::cuda {
namespace {

struct Entry {
  const uint8_t* at = nullptr;
  uint64_t bytes = 0;  // header and payload
  uint16_t kind = 0;
  uint32_t sm = 0;
  uint32_t ptx_version = 0;
  uint64_t flags = 0;
  bool kept = false;
};

// False: an entry does not fit into its container. Then the whole goes to the driver, which judges
// it.
bool list_entries(const CodeImage& image, std::vector<Entry>* out) {
  const api::CodeContainer head = api::code_read<api::CodeContainer>(image.data);
  uint64_t at = head.header_bytes;
  while (at < image.bytes) {
    const uint64_t left = image.bytes - at;
    if (left < api::kEntryBytesMin) return false;
    api::CodeEntry header{};
    std::memcpy(&header, image.data + at, left < sizeof header ? left : sizeof header);
    if (header.header_bytes < api::kEntryBytesMin ||
        !api::code_within(header.header_bytes, header.payload_bytes, left))
      return false;
    Entry entry;
    entry.at = image.data + at;
    entry.bytes = header.header_bytes + header.payload_bytes;
    entry.kind = header.kind;
    entry.sm = header.sm;
    entry.ptx_version = header.ptx_version;
    entry.flags = header.flags;
    out->push_back(entry);
    at += entry.bytes;
  }
  return true;
}

int number(const Target& target) { return target.major * 10 + target.minor; }

bool same_family(const Entry& entry, const Target& target) {
  return static_cast<int>(entry.sm / 10) == target.major &&
         static_cast<int>(entry.sm % 10) <= target.minor;
}

bool runs(const Entry& entry, const Target& target) {
  if (entry.kind != api::kEntryCubin) return false;
  if ((entry.flags & api::kEntryArchSpecific) != 0)
    return static_cast<int>(entry.sm) == number(target);
  return same_family(entry, target);
}

bool compiles(const Entry& entry, const Target& target) {
  if (entry.kind != api::kEntryPtx) return false;
  if ((entry.flags & api::kEntryArchSpecific) != 0)
    return static_cast<int>(entry.sm) == number(target);
  if ((entry.flags & api::kEntryFamily) != 0) return same_family(entry, target);
  return static_cast<int>(entry.sm) <= number(target);
}

// Marks what `target` needs. A container may hold several PTX entries of one architecture (one for
// each translation unit).
void keep_for(const Target& target, bool keep_ptx, std::vector<Entry>* entries) {
  bool has_cubin = false;
  uint32_t newest = 0;
  for (Entry& entry : *entries) {
    if (runs(entry, target)) entry.kept = has_cubin = true;
    if (compiles(entry, target) && entry.sm > newest) newest = entry.sm;
  }
  if (has_cubin && !keep_ptx) return;
  for (Entry& entry : *entries) {
    if (compiles(entry, target) && entry.sm == newest) entry.kept = true;
  }
}

}  // namespace

CodeImage recognise(const void* code) {
  if (code == nullptr) return {};
  const uint8_t* at = static_cast<const uint8_t*>(code);
  if (at[0] == (api::kWrapperMagic & 0xff) && api::code_read<uint32_t>(at) == api::kWrapperMagic) {
    const api::CodeWrapper wrapper = api::code_read<api::CodeWrapper>(at);
    if (wrapper.container == nullptr) return {};
    at = static_cast<const uint8_t*>(wrapper.container);
  }
  return api::code_image(at, api::kCodeBytesMax);
}

Payload whole(const CodeImage& image) {
  Payload payload;
  payload.data = image.data;
  payload.bytes = image.bytes;
  return payload;
}

Payload reduce(const CodeImage& image, const Target* targets, size_t target_count, bool keep_ptx) {
  Payload payload = whole(image);
  std::vector<Entry> entries;
  if (image.kind != CodeKind::kContainer || !list_entries(image, &entries)) return payload;
  for (size_t i = 0; i < target_count; ++i) keep_for(targets[i], keep_ptx, &entries);
  uint64_t kept_bytes = 0;
  size_t kept = 0;
  for (const Entry& entry : entries) {
    if (!entry.kept) continue;
    kept_bytes += entry.bytes;
    ++kept;
  }
  if (kept == 0 || kept == entries.size()) return payload;
  api::CodeContainer head = api::code_read<api::CodeContainer>(image.data);
  payload.rebuilt.reserve(head.header_bytes + kept_bytes);
  payload.rebuilt.assign(image.data, image.data + head.header_bytes);
  for (const Entry& entry : entries) {
    if (entry.kept) payload.rebuilt.insert(payload.rebuilt.end(), entry.at, entry.at + entry.bytes);
  }
  head.payload_bytes = kept_bytes;
  std::memcpy(payload.rebuilt.data(), &head, sizeof head);
  payload.data = payload.rebuilt.data();
  payload.bytes = payload.rebuilt.size();
  payload.reduced = true;
  return payload;
}

}  // namespace tendril::client::cuda

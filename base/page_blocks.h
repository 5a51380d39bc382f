// SPDX-License-Identifier: Apache-2.0
// How a GPU's driver cuts small allocations out of pages of the GPU's memory. Measured on an H100
// and kept in docs/decisions/0020-what-a-driver-takes.md: up to 1 MiB an allocation shares a page
// of 2 MiB with others; a page is taken with its first block and goes back with its last. The
// worker charges by this model what has no address, and the software GPU takes memory by it.
// Arithmetic only; not thread-safe.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace tendril::base {

inline constexpr uint64_t kGpuPageBytes = 2u << 20;
inline constexpr uint64_t kGpuSmallBytesMax = 1u << 20;  // more than this has pages of its own
inline constexpr uint64_t kGpuBlockAlign = 512;

constexpr uint64_t rounded_up(uint64_t value, uint64_t step) {
  return (value + step - 1) / step * step;
}
constexpr bool shares_a_page(uint64_t bytes) { return bytes <= kGpuSmallBytesMax; }
// What the driver takes for an allocation that shares no page.
constexpr uint64_t whole_pages(uint64_t bytes) { return rounded_up(bytes, kGpuPageBytes); }

class PageBlocks {
 public:
  struct Place {
    uint32_t page = 0, offset = 0, bytes = 0;
  };

  // Whether a block of at most kGpuSmallBytesMax finds room in the pages that are there.
  bool fits(uint64_t bytes) const {
    for (const Page& page : pages_)
      if (page.blocks != 0 && hole_in(page, block_bytes(bytes)) != page.holes.end()) return true;
    return false;
  }
  // Places a block where it fits first. *fresh: it is the first of a page.
  Place take(uint64_t wanted, bool* fresh) {
    const uint32_t bytes = block_bytes(wanted);
    *fresh = false;
    for (uint32_t i = 0; i < pages_.size(); ++i)
      if (pages_[i].blocks != 0 && hole_in(pages_[i], bytes) != pages_[i].holes.end())
        return cut(i, bytes);
    *fresh = true;
    uint32_t i = 0;
    while (i < pages_.size() && pages_[i].blocks != 0) ++i;
    if (i == pages_.size()) pages_.emplace_back();
    pages_[i].holes = {{0, static_cast<uint32_t>(kGpuPageBytes)}};
    return cut(i, bytes);
  }
  // True: that was the last block of its page.
  bool give_back(const Place& place) {
    Page& page = pages_[place.page];
    uint32_t start = place.offset, bytes = place.bytes;
    auto next = page.holes.lower_bound(start);
    if (next != page.holes.end() && next->first == start + bytes) {
      bytes += next->second;
      next = page.holes.erase(next);
    }
    if (next != page.holes.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == start) {
        start = before->first;
        bytes += before->second;
      }
    }
    page.holes[start] = bytes;
    return --page.blocks == 0;
  }

 private:
  struct Page {
    uint32_t blocks = 0;                 // 0: the page has gone back
    std::map<uint32_t, uint32_t> holes;  // offset to bytes
  };
  static uint32_t block_bytes(uint64_t bytes) {
    return static_cast<uint32_t>(rounded_up(bytes == 0 ? 1 : bytes, kGpuBlockAlign));
  }
  static std::map<uint32_t, uint32_t>::const_iterator hole_in(const Page& page, uint32_t bytes) {
    auto hole = page.holes.begin();
    while (hole != page.holes.end() && hole->second < bytes) ++hole;
    return hole;
  }
  Place cut(uint32_t index, uint32_t bytes) {
    Page& page = pages_[index];
    const auto hole = hole_in(page, bytes);
    const uint32_t offset = hole->first, left = hole->second - bytes;
    page.holes.erase(hole);
    if (left != 0) page.holes[offset + bytes] = left;
    ++page.blocks;
    return {index, offset, bytes};
  }
  std::vector<Page> pages_;
};

}  // namespace tendril::base

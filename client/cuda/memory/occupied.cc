// SPDX-License-Identifier: Apache-2.0
// See occupied.h.
#include "client/cuda/memory/occupied.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

namespace tendril::client::cuda {
namespace {

constexpr uint64_t kNear = 1u << 30;      // mappings with less between them are one neighbourhood
constexpr uint64_t kGrowth = 4ull << 30;  // libraries and heaps come below those that are there

// Reads "first-end " at the beginning of each line.
class Lines {
 public:
  explicit Lines(int file) : file_(file) {}

  bool next(uint64_t* first, uint64_t* end) {
    if (!number('-', first) || !number(' ', end)) return false;
    for (int c = get(); c != '\n'; c = get()) {
      if (c < 0) return false;
    }
    return true;
  }

 private:
  int get() {
    if (at_ == filled_) {
      ssize_t got = -1;
      do {
        got = read(file_, buffer_, sizeof buffer_);
      } while (got < 0 && errno == EINTR);
      if (got <= 0) return -1;
      at_ = 0;
      filled_ = static_cast<size_t>(got);
    }
    return static_cast<unsigned char>(buffer_[at_++]);
  }
  bool number(int last, uint64_t* value) {
    *value = 0;
    for (int c = get(); c != last; c = get()) {
      const bool digit = c >= '0' && c <= '9';
      if (!digit && (c < 'a' || c > 'f')) return false;
      *value = *value << 4 | static_cast<uint64_t>(digit ? c - '0' : c - 'a' + 10);
    }
    return true;
  }

  int file_;
  size_t at_ = 0, filled_ = 0;
  char buffer_[4096];
};

}  // namespace

bool occupied_around(int maps, uint64_t base, uint64_t bytes, uint64_t* first, uint64_t* end) {
  Lines lines(maps);
  bool found = false;
  *first = *end = 0;
  for (uint64_t from, to; lines.next(&from, &to);) {
    const bool near = *end != 0 && from - *end < kNear;
    if (!near) {
      if (found) break;
      *first = from;
    }
    *end = to;
    found = found || (from < base + bytes && to > base);
  }
  if (!found) return false;
  *first = *first > kGrowth ? *first - kGrowth : 0;
  return true;
}

bool occupied_around(uint64_t base, uint64_t bytes, uint64_t* first, uint64_t* end) {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return false;
  const bool found = occupied_around(maps, base, bytes, first, end);
  close(maps);
  return found;
}

}  // namespace tendril::client::cuda

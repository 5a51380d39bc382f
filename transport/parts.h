// SPDX-License-Identifier: Apache-2.0
// A scatter-gather list that is consumed from the front. Transports use it inside one call of send.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/result.h"

namespace tendril::transport {

inline constexpr int kPartsMax = 8;  // callers gather no more: header, body, data, their paddings

class Parts {
 public:
  Parts(const iovec* parts, int count) {
    for (int i = 0; i < count && count_ < kPartsMax; ++i) {
      if (parts[i].iov_len != 0) parts_[count_++] = parts[i];
    }
  }
  bool empty() const { return first_ == count_; }
  iovec* array() { return parts_ + first_; }
  int count() const { return count_ - first_; }
  size_t bytes() const {
    size_t sum = 0;
    for (int i = first_; i < count_; ++i) sum += parts_[i].iov_len;
    return sum;
  }
  void advance(size_t bytes) {
    while (bytes > 0 && first_ < count_) {
      iovec& part = parts_[first_];
      size_t step = bytes < part.iov_len ? bytes : part.iov_len;
      part.iov_base = static_cast<uint8_t*>(part.iov_base) + step;
      part.iov_len -= step;
      bytes -= step;
      if (part.iov_len == 0) ++first_;
    }
  }
  // Keeps only the first `bytes`.
  void limit(size_t bytes) {
    for (int i = first_; i < count_; ++i) {
      if (parts_[i].iov_len >= bytes) {
        parts_[i].iov_len = bytes;
        count_ = bytes == 0 ? i : i + 1;
        return;
      }
      bytes -= parts_[i].iov_len;
    }
  }
  // Copies up to `max` bytes out and consumes them. Returns the number copied.
  size_t copy_out(void* into, size_t max) {
    size_t done = 0;
    while (done < max && !empty()) {
      iovec& part = parts_[first_];
      size_t step = max - done < part.iov_len ? max - done : part.iov_len;
      std::memcpy(static_cast<uint8_t*>(into) + done, part.iov_base, step);
      done += step;
      advance(step);
    }
    return done;
  }

 private:
  iovec parts_[kPartsMax];
  int first_ = 0;
  int count_ = 0;
};

// Channel::send of a channel whose `some` takes what there is room for, and waits for room.
template <typename Some>
base::Status send_all(const iovec* parts, int count, const Some& some) {
  Parts rest(parts, count);
  while (!rest.empty()) {
    const base::Result<size_t> sent = some(&rest);
    if (!sent.ok()) return sent.status();
  }
  return base::Status();
}

}  // namespace tendril::transport

// SPDX-License-Identifier: Apache-2.0
// The growing half of the encoder. See encoder.h.
#include "wire/encoder.h"

#include <algorithm>

namespace tendril::wire {

Encoder::Encoder(std::vector<uint8_t>* buffer, size_t limit)
    : begin_(buffer->data()),
      at_(begin_),
      end_(begin_ + buffer->size()),
      buffer_(buffer),
      limit_(limit) {}

bool Encoder::grow(size_t count) {
  size_t used = size();
  if (failed_ || buffer_ == nullptr || count > limit_ || used > limit_ - count) {
    failed_ = true;
    return false;
  }
  buffer_->resize(std::min(limit_, std::max({used + count, used * 2, size_t(256)})));
  begin_ = buffer_->data();
  at_ = begin_ + used;
  end_ = begin_ + buffer_->size();
  return true;
}

bool Encoder::finish() {
  if (buffer_ != nullptr) {
    size_t used = size();
    buffer_->resize(used);
    begin_ = buffer_->data();
    at_ = end_ = begin_ + used;
  }
  return !failed_;
}

}  // namespace tendril::wire

// SPDX-License-Identifier: Apache-2.0
// A channel with the delay and bandwidth of a longer line, accurate to a few microseconds. Wraps
// one end of any channel; for tests and for planning ("what would this program do over 10 Gb/s and
// 200 us?"). It has no threads. A sender waits until the wire would have taken the bytes, a
// receiver until they would have come.
//
// The delay of both ways is added on the way back. So the far end does everything earlier by the
// delay of one way. Nobody on this side can distinguish that from a clock that is wrong by as much.
// And sent bytes need no thread that carries them later.
#pragma once

#include <cstdint>
#include <memory>

#include "base/lock.h"
#include "transport/transport.h"

namespace tendril::transport {

struct Shape {
  uint32_t delay_us = 0;          // one way, there and back
  uint64_t bytes_per_second = 0;  // each way; 0: unlimited
};

// One line, which several channels may share. The sum of what they carry is at most its bandwidth.
class Line {
 public:
  explicit Line(const Shape& shape) : shape_(shape) {}
  const Shape& shape() const { return shape_; }
  // When the last of this many bytes has been on the wire, if they are ready now.
  uint64_t out_ns(size_t bytes) { return reserve(&out_free_at_ns_, bytes); }
  uint64_t in_ns(size_t bytes) { return reserve(&in_free_at_ns_, bytes); }

 private:
  uint64_t reserve(uint64_t* free_at_ns, size_t bytes);
  const Shape shape_;
  base::Lock lock_;
  uint64_t out_free_at_ns_ = 0, in_free_at_ns_ = 0;
};

std::unique_ptr<Channel> shaped(std::unique_ptr<Channel> inner, std::shared_ptr<Line> line);
std::unique_ptr<Channel> shaped(std::unique_ptr<Channel> inner, const Shape& shape);

}  // namespace tendril::transport

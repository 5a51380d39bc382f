// SPDX-License-Identifier: Apache-2.0
// Pinned memory between device and sockets, kept for the next operation: a host function must not
// allocate or free any. Buffers belong to a context. Any thread.
#pragma once

#include <cstddef>

#include "softnccl/nccl.h"

namespace tendril::softnccl {

// Memory of one operation, given back to the shelf at its end.
class Staging {
 public:
  Staging() = default;
  Staging(Staging&& other) noexcept;
  Staging& operator=(Staging&& other) noexcept;
  ~Staging();

  // With `context` current. 0 bytes: none.
  static ncclResult_t take(CUcontext context, size_t bytes, Staging* made);
  char* data() const { return data_; }

 private:
  CUcontext context_ = nullptr;
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

// Communicators of a context are counted: with the last one, what lies on the shelf is freed.
void begin_staging(CUcontext context);
void end_staging(CUcontext context);

}  // namespace tendril::softnccl

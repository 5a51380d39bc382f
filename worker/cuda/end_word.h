// SPDX-License-Identifier: Apache-2.0
// A word of host memory that the GPU writes behind what a wait waits for. Looking at it is no call of the driver, and it tells the end
// sooner than the driver does (bench/driver_bench.cc). It tells nothing else: errors and what a driver does at a wait's end are asked of
// the driver. Called by waits.cc for a GPU that nobody shares. Executor thread.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/driver.h"

namespace tendril::worker::cuda {

class EndWord {
 public:
  explicit EndWord(gpu::Driver* driver);

  // Behind what `stream` has been given. False: it cannot be told this way. `context` is current; the first time in it memory is pinned.
  bool write(CUcontext context, CUstream stream);
  // Has the last one been written? Only while its context lives. It may be missed when an earlier one comes later.
  bool seen() const { return *static_cast<const volatile uint32_t*>(last_) == number_; }
  // The context has ended, and with it its memory.
  void forget(CUcontext context);

 private:
  struct Word {
    CUcontext context;
    uint32_t* host;  // a line of its own
    CUdeviceptr gpu;
  };
  const Word* word_of(CUcontext context);

  gpu::Driver* driver_;
  bool usable_;
  uint32_t number_ = 0;
  const uint32_t* last_ = &number_;
  std::vector<Word> words_;
};

}  // namespace tendril::worker::cuda

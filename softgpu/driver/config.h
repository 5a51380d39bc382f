// SPDX-License-Identifier: Apache-2.0
// The knobs as the driver sees them. Settings of the board are fixed at the first use. Faults are
// read again whenever somebody has changed them. Callable from any thread, before cuInit too.
#pragma once

#include <cstdint>

#include "api/cuda_abi.gen.h"
#include "softgpu/board/settings.h"

namespace tendril::softgpu {

class Board;

const Settings& config();
// The knobs in force now. The reference stays valid for ever; later knobs may replace these.
const Faults& faults();
// This process' board, joined.
Board& board();

// Counts a call of `name`. Returns the code that a knob orders for this call, else CUDA_SUCCESS.
// Aborts the process if a knob orders that.
CUresult injected_fault(const char* name);

// Limits what waits or repeats itself on a device until somebody else ends it. With the knob
// `steps` it gets as many turns as one launch is worth.
class StepBound {
 public:
  // Counts one more turn; false if that is one too many.
  bool again();

 private:
  uint64_t used_ = 0;
};

// Counts a copy. True: the knob orders a wrong bit in it.
bool flips_this_copy();

}  // namespace tendril::softgpu

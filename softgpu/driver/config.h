// SPDX-License-Identifier: Apache-2.0
// The knobs as the driver sees them: settings of the board, fixed at the first use, and faults,
// read again whenever somebody has changed them. Callable from any thread, before cuInit too.
#pragma once

#include <cstdint>

#include "api/cuda_abi.gen.h"
#include "softgpu/board/settings.h"

namespace tendril::softgpu {

class Board;

const Settings& config();
// Those in force now. The reference stays good for ever, though not in force for ever.
const Faults& faults();
// This process' board, joined.
Board& board();

// Counts a call of `name`; the code to answer with when a knob says that this call fails, else
// CUDA_SUCCESS. May abort the process, when a knob says that.
CUresult injected_fault(const char* name);

// What waits or repeats itself on a device until somebody else ends it: with the knob `steps`, only
// as often as is worth a launch's.
class StepBound {
 public:
  // Once more; false when that was once too often.
  bool again();

 private:
  uint64_t used_ = 0;
};

// Counts a copy; whether the knob says that it arrives with a wrong bit.
bool flips_this_copy();

}  // namespace tendril::softgpu

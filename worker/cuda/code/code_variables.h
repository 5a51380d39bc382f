// SPDX-License-Identifier: Apache-2.0
// How much GPU memory the variables of device code take (`__device__`, `__constant__`), according
// to the code's own declarations. The slice is charged for them before the driver loads the code.
// Two other ways do not work: the driver cannot tell the size beforehand, and another tenant may
// change the card's free memory. The executor calls this with a peer's image.
// docs/decisions/0011-charging-of-loaded-code.md
#pragma once

#include <cstdint>

namespace tendril::worker::cuda {

struct CodeVariables {
  uint64_t bytes = 0;
  bool all = true;  // false: some of the code cannot be unpacked, and its variables become known
                    // when the program asks for them
};

// Reads PTX text, a cubin, or the largest entry of a container, compressed or not.
CodeVariables code_variables(const uint8_t* image, uint64_t bytes);

}  // namespace tendril::worker::cuda

// SPDX-License-Identifier: Apache-2.0
// How much GPU memory the variables of device code take (`__device__`, `__constant__`), as the code
// itself says: a slice is charged for them before the driver loads it. The driver cannot be asked
// beforehand, and what changes on the card meanwhile may be somebody else's. Called by the
// executor; the image is a peer's. docs/decisions/0011-charging-of-loaded-code.md
#pragma once

#include <cstdint>

namespace tendril::worker::cuda {

struct CodeVariables {
  uint64_t bytes = 0;
  bool all = true;  // false: some of the code is packed, and its variables become known when the
                    // program asks for them
};

// Of PTX text, a cubin, or the largest entry of a container.
CodeVariables code_variables(const uint8_t* image, uint64_t bytes);

}  // namespace tendril::worker::cuda

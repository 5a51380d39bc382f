// SPDX-License-Identifier: Apache-2.0
// Words for what the engine says.
#pragma once

#include <cstdint>
#include <string>

namespace tendril::pool {

// Millionths of GPUs as people write them: 4.0, 0.35, 0.333.
std::string amount_text(uint64_t millionths);

}  // namespace tendril::pool

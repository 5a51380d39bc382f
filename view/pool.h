// SPDX-License-Identifier: Apache-2.0
// What people read of a pool's answers to commands (pool/scheduler's README has the keys of its
// JSON). The answer comes from a peer: keys may be missing and have any type. Pure.
#pragma once

#include <string>

#include "base/result.h"

namespace tendril::view {

// Lines for the answer to that verb. kMismatch: it is no JSON object. `width` as of
// view/table.h.
base::Result<std::string> pool_text(const std::string& verb, const std::string& json,
                                    size_t width = 0);

}  // namespace tendril::view

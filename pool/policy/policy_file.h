// SPDX-License-Identifier: Apache-2.0
// Reads a pool's policy from TOML. The text may be anything: reading is bounded, and
// an error names the file, the line, the column and what was expected there. Nothing of a text with
// an error is used. Pure; files are read by the callers.
#pragma once

#include <string>

#include "base/result.h"
#include "pool/policy/policy.h"

namespace tendril::pool {

// As JSON it may be twice as long, and a store keeps it as one value (store/store.h).
inline constexpr size_t kPoolPolicyBytesMax = 256u << 10;

// `path` is for messages. `zones` gives the rules of the pool's time zone.
base::Result<PoolPolicy> parse_pool_policy(const std::string& text, const std::string& path,
                                           const ZoneReader& zones);

// The text with one more [[move]] at its end. kInvalid, kRefused: such a move cannot be made; the
// message says why. parse_pool_policy reads the result.
base::Result<std::string> with_move(const std::string& text, const Move& move,
                                    const ZoneReader& zones);

}  // namespace tendril::pool

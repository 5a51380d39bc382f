// SPDX-License-Identifier: Apache-2.0
// Reads a policy from TOML (docs/access.md). The text may be anything: reading is bounded, and an
// error names the file, the line, the column and what was expected there. Nothing of a text with an
// error is used.
#pragma once

#include <string>

#include "access/policy.h"
#include "base/result.h"

namespace tendril::access {

inline constexpr size_t kPolicyBytesMax = 1u << 20;

// `path` is for messages.
base::Result<Policy> parse_policy(const std::string& text, const std::string& path);
// kNotFound: the file cannot be read. kInvalid: what it says is wrong, or others may write to it.
base::Result<Policy> read_policy(const std::string& path);

}  // namespace tendril::access

// SPDX-License-Identifier: Apache-2.0
// Digests, keys from secrets, random text and base64url, for the files of this room. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/result.h"

namespace tendril::identity {

inline constexpr size_t kDigestBytes = 32;

// SHA-256, raw bytes.
std::string digest(const std::string& bytes);
// 32 bytes from a secret, for the use that `label` names (HKDF with SHA-256).
std::string key_from_secret(const std::string& secret, const std::string& label);
// Without padding. Reading is strict: false for any other character and for a non-zero remainder.
std::string base64url(const std::string& bytes);
bool read_base64url(const std::string& text, std::string* bytes);
// Hexadecimal text of so many random bytes.
base::Result<std::string> random_hex(size_t bytes);

}  // namespace tendril::identity

// SPDX-License-Identifier: Apache-2.0
// Small text helpers: printf into a std::string, settings from the environment, secrets. Any
// thread. Not for the hot path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tendril::base {

std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

// An unsigned setting from the environment; `otherwise` if it is unset or not a number.
uint32_t env_u32(const char* name, uint32_t otherwise);

// Compares in a time that does not depend on where the difference is. The lengths may become known.
bool equal_in_constant_time(const std::string& a, const std::string& b);

// Random bytes from the kernel. False if it has none to give: then make no secret.
bool random_bytes(void* into, size_t bytes);
// The length of the UTF-8 character that begins at `at`; 0: there is none. Overlong forms,
// surrogates and the second set of control characters (C1), which terminals obey too, are none.
size_t character_bytes(const std::string& text, size_t at);
// Text from a peer, fit for a terminal and a log: control characters and what is no UTF-8 become
// '?', at most `max` bytes.
std::string printable(const std::string& text, size_t max = 200);
// Lower-case hexadecimal.
std::string hex(const void* data, size_t bytes);
// What stands between commas, also if it is empty: at least one part.
std::vector<std::string> split_at_commas(const std::string& text);
std::string base64(std::string_view bytes);
// False: this is not base64 with its padding.
bool read_base64(std::string_view text, std::string* bytes);

}  // namespace tendril::base

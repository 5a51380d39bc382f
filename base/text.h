// SPDX-License-Identifier: Apache-2.0
// Small text helpers: printf into a std::string, settings from the environment, secrets. Any
// thread. Not for the hot path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tendril::base {

std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

// An unsigned setting from the environment; `otherwise` when unset or not a number.
uint32_t env_u32(const char* name, uint32_t otherwise);

// Equal without telling by its duration where the difference lies. The lengths may be learned.
bool equal_in_constant_time(const std::string& a, const std::string& b);

// Random bytes from the kernel; false when it has none to give (then nothing secret may be made).
bool random_bytes(void* into, size_t bytes);
// Lower-case hexadecimal.
std::string hex(const void* data, size_t bytes);

}  // namespace tendril::base

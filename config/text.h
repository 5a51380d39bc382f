// SPDX-License-Identifier: Apache-2.0
// Small readers that the files of this room share: variables, lists, numbers, small files. Numbers
// are read digit by digit, because the program may have any locale. Any thread. Nothing here throws
// or keeps state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::config {

// The value of an environment variable. An unset variable and an empty one are the same: "".
std::string variable(const char* name);

// `text` without blanks around it.
std::string trimmed(const std::string& text);

// The parts between separators, trimmed. Empty parts are left out.
std::vector<std::string> split(const std::string& text, char separator);

// Decimal digits only. False when there are none, another character, or too many.
bool read_number(const std::string& text, uint64_t* value);

// Pairs of hexadecimal digits, as bytes. False for anything else and for nothing.
bool read_hex(const std::string& text, std::string* bytes);

// A file of at most 1 MiB, or of `bytes_max`. kNotFound: it is not there, or not for this user.
// Errors name the path.
inline constexpr size_t kFileBytesMax = 1u << 20;
base::Result<std::string> read_file(const std::string& path, size_t bytes_max = kFileBytesMax);

// "NAME=value: expected ..."
base::Status unexpected(const char* name, const std::string& value, const std::string& expected);

}  // namespace tendril::config

// SPDX-License-Identifier: Apache-2.0
// For tests: bytes as published vectors write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/text.h"

namespace tendril::transport {

inline std::string from_hex(std::string_view text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string out;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    out += char(digit(text[i]) * 16 + digit(text[i + 1]));
  return out;
}

inline std::string to_hex(std::string_view bytes) { return base::hex(bytes.data(), bytes.size()); }

}  // namespace tendril::transport

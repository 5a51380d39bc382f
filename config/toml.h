// SPDX-License-Identifier: Apache-2.0
// Reads TOML files of administrators. The only place that includes the library, so that all rooms
// have it with the same settings. For daemon and command line, not for the client library. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/text.h"

#define TOML_EXCEPTIONS 0
// The library's assertions fail for some wrong texts, which it refuses a moment later. With NDEBUG
// it would tell the compiler that they hold.
#undef NDEBUG
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_ENABLE_FORMATTERS 0
#define TOML_ENABLE_WINDOWS_COMPAT 0
#include <toml++/toml.h>

namespace tendril::config {

// kInvalid: the message names `path`, line and column. The library does not bear every character
// beyond ASCII, and no name in these files has any, so others are refused.
inline base::Result<toml::table> parse_toml(const std::string& text, const std::string& path) {
  uint32_t line = 1, column = 1;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte >= 0x80 || (byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t')) {
      return base::Status(
          base::Code::kInvalid,
          base::format("%s, line %u, column %u: write plain ASCII text, in comments too",
                       path.c_str(), line, column));
    }
    column = byte == '\n' ? 1 : column + 1;
    line += byte == '\n';
  }
  toml::parse_result parsed = toml::parse(std::string_view(text), std::string_view(path));
  if (parsed) return std::move(parsed).table();
  const toml::source_position where = parsed.error().source().begin;
  return base::Status(
      base::Code::kInvalid,
      base::format("%s, line %u, column %u: this is not TOML: %s", path.c_str(),
                   static_cast<unsigned>(where.line), static_cast<unsigned>(where.column),
                   base::printable(std::string(parsed.error().description()), 400).c_str()));
}

}  // namespace tendril::config

// SPDX-License-Identifier: Apache-2.0
// See print.h.
#include "api/core/print.h"

#include <time.h>

#include <cstdio>

namespace tendril::api {

void Text::raw(const char* text, size_t bytes) {
  const size_t room = used_ < kPrintedLineBytes ? kPrintedLineBytes - used_ : 0;
  cut_ |= bytes > room;
  if (bytes > room) bytes = room;
  std::memcpy(text_ + used_, text, bytes);
  used_ += bytes;
}

void Text::decimal(int64_t value) {
  char digits[24];
  raw(digits,
      static_cast<size_t>(snprintf(digits, sizeof digits, "%lld", static_cast<long long>(value))));
}

void Text::decimal(uint64_t value) {
  char digits[24];
  raw(digits, static_cast<size_t>(
                  snprintf(digits, sizeof digits, "%llu", static_cast<unsigned long long>(value))));
}

void Text::hex(uint64_t value) {
  char digits[24];
  raw(digits, static_cast<size_t>(snprintf(digits, sizeof digits, "0x%llx",
                                           static_cast<unsigned long long>(value))));
}

void Text::real(double value) {
  char digits[40];
  raw(digits, static_cast<size_t>(snprintf(digits, sizeof digits, "%g", value)));
}

void Text::now() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  char digits[40];
  raw(digits, static_cast<size_t>(snprintf(digits, sizeof digits, "%lld.%06ld ",
                                           static_cast<long long>(t.tv_sec), t.tv_nsec / 1000)));
}

void Text::quoted(const char* text, size_t bytes) {
  const size_t shown = bytes < kPrintedTextBytes ? bytes : kPrintedTextBytes;
  raw("\"");
  for (size_t i = 0; i < shown; ++i) {
    const char c = text[i];
    if (c == '"' || c == '\\') raw("\\", 1);
    if (c >= ' ' && c <= '~') {
      raw(&c, 1);
    } else {
      char escaped[8];
      raw(escaped, static_cast<size_t>(snprintf(escaped, sizeof escaped, "\\x%02x",
                                                static_cast<unsigned char>(c))));
    }
  }
  raw("\"");
  if (shown < bytes) raw("...");
}

void Text::dump(const void* data, size_t bytes) {
  constexpr size_t kShown = 16;
  const uint8_t* at = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i < bytes && i < kShown; ++i) {
    char digits[4];
    raw(digits, static_cast<size_t>(snprintf(digits, sizeof digits, "%02x", at[i])));
  }
  if (bytes > kShown) raw("...");
}

void Text::open(const char* bracket) {
  raw(bracket);
  first_ = true;
}

void Text::item() {
  if (!first_) raw(", ");
  first_ = false;
}

void Text::name(const char* name) {
  item();
  raw(name);
  raw("=");
}

void Text::close(const char* bracket) {
  raw(bracket);
  first_ = false;
}

void Text::rest(uint64_t elements) {
  raw(", ... ");
  decimal(elements);
  raw(" more");
}

void Text::end(const char* tail) {
  const auto add = [this](const char* text) {
    const size_t room = sizeof text_ - used_, bytes = std::strlen(text);
    std::memcpy(text_ + used_, text, bytes < room ? bytes : room);
    used_ += bytes < room ? bytes : room;
  };
  if (cut_) add("...");
  cut_ = false;
  add(tail);
}

bool all_zero(const void* data, size_t bytes) {
  const uint8_t* at = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i < bytes; ++i) {
    if (at[i] != 0) return false;
  }
  return true;
}

void print_nested(Text& t, const char* name, const void* data, size_t bytes) {
  if (all_zero(data, bytes)) return;
  t.name(name);
  t.raw("{...}");
}

}  // namespace tendril::api

// SPDX-License-Identifier: Apache-2.0
// See quantity.h. Numbers are read digit by digit: the C locale's decimal comma must not change
// what a slice is.
#include "config/quantity.h"

#include <cstdio>
#include <cstring>

namespace tendril::config {
namespace {

using base::Code;
using base::Status;

// A decimal number as value / scale, at most `max_value` after scaling. Moves *at past it.
struct Decimal {
  uint64_t value = 0;
  uint64_t scale = 1;
};

bool read_decimal(const char** at, Decimal* out) {
  const char* p = *at;
  bool any = false;
  for (; *p >= '0' && *p <= '9'; ++p) {
    if (out->value > 1'000'000'000'000'000ull) return false;
    out->value = out->value * 10 + static_cast<uint64_t>(*p - '0');
    any = true;
  }
  if (*p == '.') {
    for (++p; *p >= '0' && *p <= '9'; ++p) {
      any = true;
      if (out->scale >= 1'000'000'000ull || out->value > 1'000'000'000'000'000ull)
        continue;  // digits beyond are noise
      out->value = out->value * 10 + static_cast<uint64_t>(*p - '0');
      out->scale *= 10;
    }
  }
  *at = p;
  return any;
}

Status bad_fraction(const std::string& text) {
  return Status(
      Code::kInvalid,
      "'" + text + "' is not a part of a GPU; write 0.5, 1/3 or 35% (above 0, at most 1)");
}

Status bad_size(const std::string& text) {
  return Status(Code::kInvalid,
                "'" + text + "' is not an amount of memory; write 512M, 10G or 1.5GiB");
}

}  // namespace

base::Result<uint32_t> parse_fraction(const std::string& text) {
  const char* at = text.c_str();
  Decimal top, bottom{1, 1};
  if (!read_decimal(&at, &top)) return bad_fraction(text);
  if (*at == '/') {
    ++at;
    bottom = Decimal{};
    if (!read_decimal(&at, &bottom) || bottom.value == 0) return bad_fraction(text);
  } else if (*at == '%') {
    ++at;
    bottom.value = 100;
  }
  if (*at != 0) return bad_fraction(text);
  // top.value / top.scale / (bottom.value / bottom.scale), in millionths, rounded down.
  const __uint128_t numerator = static_cast<__uint128_t>(top.value) * bottom.scale * kWholeGpu;
  const __uint128_t denominator = static_cast<__uint128_t>(top.scale) * bottom.value;
  const __uint128_t millionths = numerator / denominator;
  if (millionths == 0 || millionths > kWholeGpu) return bad_fraction(text);
  if (millionths == kWholeGpu && numerator % denominator != 0) return bad_fraction(text);
  return static_cast<uint32_t>(millionths);
}

base::Result<uint64_t> parse_size(const std::string& text, uint64_t bare_unit) {
  const char* at = text.c_str();
  Decimal number;
  if (!read_decimal(&at, &number)) return bad_size(text);
  uint64_t unit = bare_unit;
  const char* letters = "KMGT";
  const char upper = *at >= 'a' && *at <= 'z' ? static_cast<char>(*at - 32) : *at;
  if (upper != 0 && std::strchr(letters, upper) != nullptr) {
    unit = 1024;
    for (const char* l = letters; *l != upper; ++l) unit *= 1024;
    ++at;
    if (*at == 'i' && (at[1] == 'B' || at[1] == 'b')) ++at;
    if (*at == 'B' || *at == 'b') ++at;
  } else if (upper == 'B') {
    unit = 1;
    ++at;
  }
  if (*at != 0) return bad_size(text);
  const __uint128_t bytes = static_cast<__uint128_t>(number.value) * unit / number.scale;
  if (bytes == 0 || bytes > (static_cast<__uint128_t>(1) << 62)) return bad_size(text);
  return static_cast<uint64_t>(bytes);
}

std::string format_size(uint64_t bytes) {
  static const char* const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, names[unit]);
  return text;
}

std::string format_fraction(uint32_t millionths) {
  char text[32];
  std::snprintf(text, sizeof text, "%u.%06u", millionths / kWholeGpu, millionths % kWholeGpu);
  std::string out = text;
  while (out.size() > 4 && out.back() == '0') out.pop_back();
  return out;
}

}  // namespace tendril::config

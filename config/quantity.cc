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

constexpr char kUnits[] = "KMGT";  // powers of 1024
constexpr uint64_t kBareUnit = uint64_t{1} << 20;
// no GPU has more; a bare number above it means bytes
constexpr uint64_t kBareMax = uint64_t{16} << 40;

// A decimal number: value / scale.
struct Decimal {
  uint64_t value = 0;
  uint64_t scale = 1;
};

bool is_digit(char letter) { return letter >= '0' && letter <= '9'; }

void skip_blanks(const char** at) {
  while (**at == ' ' || **at == '\t') ++*at;
}

// Moves *at past the number and the blanks around it. False: there is no number, or it is too long.
bool read_decimal(const char** at, Decimal* out) {
  constexpr uint64_t kValueMax = 1'000'000'000'000'000, kScaleMax = 1'000'000'000;
  skip_blanks(at);
  bool any = false;
  for (; is_digit(**at); ++*at) {
    if (out->value > kValueMax) return false;
    out->value = out->value * 10 + static_cast<uint64_t>(**at - '0');
    any = true;
  }
  if (**at == '.') {
    for (++*at; is_digit(**at); ++*at) {
      any = true;
      if (out->scale >= kScaleMax || out->value > kValueMax) continue;  // further digits are noise
      out->value = out->value * 10 + static_cast<uint64_t>(**at - '0');
      out->scale *= 10;
    }
  }
  skip_blanks(at);
  return any;
}

// Moves *at past the unit and returns its size in bytes. 0: there is none.
uint64_t read_unit(const char** at) {
  const char letter = **at >= 'a' && **at <= 'z' ? static_cast<char>(**at - 32) : **at;
  const char* const found = letter == 0 ? nullptr : std::strchr(kUnits, letter);
  uint64_t bytes = letter == 'B' ? 1 : 0;
  if (found != nullptr) {
    bytes = uint64_t{1} << (10 * (found - kUnits + 1));
    ++*at;
    if (**at == 'i') ++*at;
  }
  if (bytes != 0 && (**at == 'B' || **at == 'b')) ++*at;
  skip_blanks(at);
  return bytes;
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
    skip_blanks(&at);
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

base::Result<uint64_t> parse_size(const std::string& text) {
  const char* at = text.c_str();
  Decimal number;
  if (!read_decimal(&at, &number)) return bad_size(text);
  const uint64_t named_unit = read_unit(&at);
  if (*at != 0) return bad_size(text);
  const uint64_t unit = named_unit == 0 ? kBareUnit : named_unit;
  const __uint128_t bytes = static_cast<__uint128_t>(number.value) * unit / number.scale;
  if (named_unit == 0 && bytes > kBareMax) {
    return Status(Code::kInvalid, "'" + text +
                                      "' counts in MiB and would be more than a GPU has; write " +
                                      text + "B if bytes are meant");
  }
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

std::string format_size_exactly(uint64_t bytes) {
  int unit = 0;
  while (unit < 4 && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + (unit == 0 ? 'B' : kUnits[unit - 1]);
}

std::string format_fraction(uint32_t millionths) {
  char text[32];
  std::snprintf(text, sizeof text, "%u.%06u", millionths / kWholeGpu, millionths % kWholeGpu);
  std::string out = text;
  while (out.size() > 4 && out.back() == '0') out.pop_back();
  return out;
}

base::Result<uint64_t> parse_duration(const std::string& text) {
  constexpr uint64_t kSecondsMax = uint64_t{10'000} * 86'400;
  static const char kLetters[] = "smhd";
  static const uint64_t kSeconds[] = {1, 60, 3600, 86'400};
  const char* at = text.c_str();
  skip_blanks(&at);
  const char* const digits = at;
  uint64_t number = 0;
  while (is_digit(*at) && number <= kSecondsMax)
    number = number * 10 + static_cast<uint64_t>(*at++ - '0');
  const bool any = at != digits;
  skip_blanks(&at);
  uint64_t unit = 1;
  if (const char* const letter = *at == 0 ? nullptr : std::strchr(kLetters, *at)) {
    unit = kSeconds[letter - kLetters];
    ++at;
    skip_blanks(&at);
  }
  if (!any || *at != 0 || number > kSecondsMax / unit) {
    return Status(Code::kInvalid, "'" + text +
                                      "' is not a length of time; write 90s, 30m, 8h or 7d (at "
                                      "most 10000d)");
  }
  return number * unit;
}

std::string format_duration(uint64_t seconds) {
  const std::string days = std::to_string(seconds / 86'400) + " d";
  const uint64_t hours = seconds / 3600 % 24, minutes = seconds / 60 % 60;
  if (seconds >= 86'400) return hours != 0 ? days + " " + std::to_string(hours) + " h" : days;
  if (seconds >= 3600) {
    const std::string text = std::to_string(hours) + " h";
    if (minutes == 0) return text;
    return text + (minutes < 10 ? " 0" : " ") + std::to_string(minutes) + " min";
  }
  if (seconds >= 120) return std::to_string(minutes) + " min";
  return std::to_string(seconds) + " s";
}

std::string format_slice(uint32_t share_millionths, uint64_t memory_bytes) {
  std::string text;
  if (share_millionths != 0) text = format_fraction(share_millionths) + " GPU";
  if (memory_bytes != 0) text += (text.empty() ? "" : " with ") + format_size(memory_bytes);
  return text;
}

}  // namespace tendril::config

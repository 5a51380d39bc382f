// SPDX-License-Identifier: Apache-2.0
// See text.h.
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "base/fd.h"

namespace tendril::base {
namespace {

constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int digit_of(char letter) {
  if (letter >= 'A' && letter <= 'Z') return letter - 'A';
  if (letter >= 'a' && letter <= 'z') return letter - 'a' + 26;
  if (letter >= '0' && letter <= '9') return letter - '0' + 52;
  return letter == '+' ? 62 : letter == '/' ? 63 : -1;
}

}  // namespace

std::string format(const char* pattern, ...) {
  va_list arguments, again;
  va_start(arguments, pattern);
  va_copy(again, arguments);
  char small[256];
  int length = vsnprintf(small, sizeof small, pattern, arguments);
  va_end(arguments);
  std::string text;
  if (length >= 0 && size_t(length) < sizeof small) {
    text.assign(small, size_t(length));
  } else if (length > 0) {
    text.resize(size_t(length) + 1);
    vsnprintf(&text[0], text.size(), pattern, again);
    text.resize(size_t(length));
  }
  va_end(again);
  return text;
}

uint32_t env_u32(const char* name, uint32_t otherwise) {
  const char* text = getenv(name);
  if (text == nullptr || *text < '0' || *text > '9') return otherwise;
  char* end = nullptr;
  unsigned long value = strtoul(text, &end, 10);
  return *end == 0 && value <= UINT32_MAX ? uint32_t(value) : otherwise;
}

bool equal_in_constant_time(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  volatile unsigned char different = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    different = static_cast<unsigned char>(different | (a[i] ^ b[i]));
  }
  return different == 0;
}

bool random_bytes(void* into, size_t bytes) {
  auto* at = static_cast<unsigned char*>(into);
  bool device = false;
  Fd fd;
  while (bytes > 0) {
    long got = device ? read(fd.get(), at, bytes) : syscall(SYS_getrandom, at, bytes, 0);
    if (got > 0) {
      at += got;
      bytes -= size_t(got);
    } else if (got < 0 && errno == EINTR) {
      continue;
    } else if (!device) {
      device = true;
      fd.reset(open("/dev/urandom", O_RDONLY | O_CLOEXEC));
      if (!fd.valid()) return false;
    } else {
      return false;
    }
  }
  return true;
}

size_t character_bytes(const std::string& text, size_t at) {
  const auto byte = [&](size_t index) {
    return index < text.size() ? static_cast<unsigned char>(text[index]) : 0u;
  };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4) return 0;
  for (size_t more = 1; more < bytes; ++more) {
    if ((byte(at + more) & 0xc0) != 0x80) return 0;
  }
  const unsigned second = byte(at + 1);
  if (first == 0xc2 && second < 0xa0) return 0;
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return 0;
  if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;
  return bytes;
}

std::string printable(const std::string& text, size_t max) {
  std::string out = text.substr(0, max);
  size_t at = 0;
  while (at < out.size()) {
    const size_t bytes = character_bytes(out, at);
    const auto first = static_cast<unsigned char>(out[at]);
    if (bytes == 0 || first < 0x20 || first == 0x7f) out[at] = '?';
    at += bytes == 0 ? 1 : bytes;
  }
  return out;
}

std::string hex(const void* data, size_t bytes) {
  static const char digits[] = "0123456789abcdef";
  const auto* at = static_cast<const unsigned char*>(data);
  std::string text;
  text.reserve(bytes * 2);
  for (size_t i = 0; i < bytes; ++i) {
    text.push_back(digits[at[i] >> 4]);
    text.push_back(digits[at[i] & 15]);
  }
  return text;
}

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return parts;
}

std::string base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) out += k <= count ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

bool read_base64(std::string_view text, std::string* bytes) {
  bytes->clear();
  if (text.size() % 4 != 0) return false;
  bytes->reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const bool is_last = i + 4 == text.size();
    const size_t padding = !is_last || text[i + 3] != '=' ? 0 : text[i + 2] == '=' ? 2 : 1;
    uint32_t group = 0;
    for (size_t k = 0; k < 4; ++k) {
      const int digit = k >= 4 - padding ? 0 : digit_of(text[i + k]);
      if (digit < 0) return false;
      group = group << 6 | uint32_t(digit);
    }
    for (size_t k = 0; k < 3 - padding; ++k) bytes->push_back(char(group >> (16 - 8 * k) & 255));
  }
  return true;
}

}  // namespace tendril::base

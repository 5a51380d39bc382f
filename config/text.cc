// SPDX-License-Identifier: Apache-2.0
// See text.h.
#include "config/text.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/fd.h"

namespace tendril::config {
namespace {

using base::Code;
using base::Status;

int hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

}  // namespace

std::string variable(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string trimmed(const std::string& text) {
  const char* const blanks = " \t\r\n";
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    size_t end = text.find(separator, at);
    if (end == std::string::npos) end = text.size();
    std::string part = trimmed(text.substr(at, end - at));
    if (!part.empty()) parts.push_back(std::move(part));
    at = end + 1;
  }
  return parts;
}

bool read_number(const std::string& text, uint64_t* value) {
  if (text.empty()) return false;
  uint64_t sum = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return false;
    if (__builtin_mul_overflow(sum, uint64_t{10}, &sum)) return false;
    if (__builtin_add_overflow(sum, static_cast<uint64_t>(digit - '0'), &sum)) return false;
  }
  *value = sum;
  return true;
}

bool read_hex(const std::string& text, std::string* bytes) {
  if (text.empty() || text.size() % 2 != 0) return false;
  bytes->clear();
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_digit(text[i]), low = hex_digit(text[i + 1]);
    if (high < 0 || low < 0) return false;
    bytes->push_back(static_cast<char>(high << 4 | low));
  }
  return true;
}

base::Result<std::string> read_file(const std::string& path, size_t bytes_max) {
  const std::string doing = "cannot read " + path;
  const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    const int error = errno;
    const bool hidden = error == EACCES || error == EPERM;
    const bool missing = error == ENOENT || error == ENOTDIR;
    const Code code = missing || hidden ? Code::kNotFound : Code::kUnavailable;
    return base::errno_status(code, doing.c_str(), error);
  }
  std::string text;
  char piece[4096];
  for (;;) {
    const ssize_t got = read(file.get(), piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return base::errno_status(Code::kUnavailable, doing.c_str(), errno);
    if (got == 0) return text;
    text.append(piece, static_cast<size_t>(got));
    if (text.size() > bytes_max)
      return Status(Code::kInvalid, path + ": larger than " + std::to_string(bytes_max >> 20) +
                                        " MiB, so this is not a Tendril file");
  }
}

Status unexpected(const char* name, const std::string& value, const std::string& expected) {
  return Status(Code::kInvalid, std::string(name) + "=" + value + ": expected " + expected);
}

}  // namespace tendril::config

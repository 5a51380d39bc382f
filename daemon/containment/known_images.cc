// SPDX-License-Identifier: Apache-2.0
// See known_images.h.
#include "daemon/containment/known_images.h"

#include <errno.h>
#include <stdio.h>

#include <algorithm>
#include <memory>

#include "base/content_hash.h"

namespace tendril::daemon {

using base::Code;
using base::Status;

namespace {

constexpr size_t kFileBytesMax = 16u << 20;

int digit_of(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  return -1;
}

// Empty: the text is no hash.
std::string hash_in(const std::string& text) {
  std::string hash;
  if (text.size() != 2 * base::kContentHashBytes) return hash;
  for (size_t at = 0; at < text.size(); at += 2) {
    const int high = digit_of(text[at]), low = digit_of(text[at + 1]);
    if (high < 0 || low < 0) return std::string();
    hash += static_cast<char>(high << 4 | low);
  }
  return hash;
}

}  // namespace

base::Result<std::set<std::string>> parse_known_images(const std::string& text,
                                                       const std::string& path) {
  std::set<std::string> known;
  unsigned number = 0;
  for (size_t at = 0; at < text.size();) {
    ++number;
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    // What follows the hash, such as a file's name, is for people.
    line.erase(std::min(line.find_first_of("# \t\r"), line.size()));
    if (line.empty()) continue;
    std::string hash = hash_in(line);
    if (hash.empty()) {
      return Status(Code::kInvalid, path + ", line " + std::to_string(number) +
                                        ": expected the 64 hexadecimal digits of an image's hash");
    }
    known.insert(std::move(hash));
  }
  return known;
}

base::Result<std::set<std::string>> read_known_images(const std::string& path) {
  if (path.empty()) return std::set<std::string>();
  const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "re"), fclose);
  const std::string doing = "cannot read the list of known images '" + path + "'";
  if (file == nullptr) return base::errno_status(Code::kInvalid, doing.c_str(), errno);
  std::string text;
  char part[4096];
  for (size_t got; (got = fread(part, 1, sizeof part, file.get())) > 0;) {
    text.append(part, got);
    if (text.size() > kFileBytesMax)
      return Status(Code::kInvalid, doing + ": it has more than 16 MiB");
  }
  if (ferror(file.get()) != 0) return base::errno_status(Code::kInvalid, doing.c_str(), errno);
  return parse_known_images(text, path);
}

}  // namespace tendril::daemon

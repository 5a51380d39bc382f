// SPDX-License-Identifier: Apache-2.0
// See zone_file.h.
#include "config/zone_file.h"

#include "base/text.h"
#include "config/text.h"

namespace tendril::config {
namespace {

using base::Code;
using base::Status;

// Letters, digits, _ + - and single slashes: no way out of the folder.
bool is_zone_name(const std::string& name) {
  if (name.empty() || name.size() > 64 || name.front() == '/' || name.back() == '/') return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool sign = c == '_' || c == '+' || c == '-';
    const bool slash = c == '/' && name[i + 1] != '/';
    if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') && !sign &&
        !slash)
      return false;
  }
  return true;
}

}  // namespace

base::Result<std::string> read_zone_file(const std::string& name) {
  if (!is_zone_name(name)) {
    return Status(Code::kInvalid, "'" + base::printable(name, 64) +
                                      "' is no time zone; write one as in \"Europe/Berlin\"");
  }
  std::string folder = variable("TZDIR");
  if (folder.empty()) folder = "/usr/share/zoneinfo";
  base::Result<std::string> bytes = read_file(folder + "/" + name);
  if (bytes.ok()) return bytes;
  return Status(Code::kNotFound, "there is no time zone '" + name + "' in " + folder +
                                     "; write one as in \"Europe/Berlin\", or install tzdata");
}

}  // namespace tendril::config

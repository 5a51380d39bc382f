// SPDX-License-Identifier: Apache-2.0
// See token.h.
#include "daemon/token.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/fd.h"

namespace tendril::daemon {
namespace {

using base::Code;
using base::Status;

constexpr size_t kTokenMin = 8, kTokenMax = 1024;

base::Result<std::string> checked(std::string token, const std::string& source) {
  const char* const space = " \t\r\n";
  const size_t begin = token.find_first_not_of(space);
  token = begin == std::string::npos
              ? ""
              : token.substr(begin, token.find_last_not_of(space) - begin + 1);
  if (token.size() < kTokenMin || token.size() > kTokenMax) {
    return Status(Code::kInvalid, "the token in " + source + " must have " +
                                      std::to_string(kTokenMin) + " to " +
                                      std::to_string(kTokenMax) + " characters");
  }
  return token;
}

base::Result<std::string> from_file(const std::string& path, bool strict) {
  const std::string doing = "cannot read the token file '" + path + "'";
  const base::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts;
  if (!fd.valid() || fstat(fd.get(), &facts) != 0)
    return base::errno_status(Code::kNotFound, doing.c_str(), errno);
  if (strict && S_ISREG(facts.st_mode) && (facts.st_mode & 077) != 0) {
    return Status(Code::kInvalid,
                  "the token file '" + path + "' can be read by others; run: chmod 600 " + path);
  }
  char text[kTokenMax + 64];
  const ssize_t got = read(fd.get(), text, sizeof text);
  if (got < 0) return base::errno_status(Code::kInvalid, doing.c_str(), errno);
  return checked(std::string(text, static_cast<size_t>(got)), "'" + path + "'");
}

}  // namespace

base::Result<std::string> load_token(const std::string& file, bool strict) {
  if (!file.empty()) return from_file(file, strict);
  const char* const value = getenv("TENDRIL_TOKEN");
  if (value != nullptr && *value != 0) return checked(value, "TENDRIL_TOKEN");
  const char* const path = getenv("TENDRIL_TOKEN_FILE");
  if (path != nullptr && *path != 0) return from_file(path, strict);
  return std::string();
}

}  // namespace tendril::daemon

// SPDX-License-Identifier: Apache-2.0
// See credentials.h.
#include "config/credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "config/text.h"

namespace tendril::config {
namespace {

using base::Code;
using base::Status;

constexpr size_t kTokenMinClient = 8, kTokenMinServer = 16, kTokenMax = 1024;

// A server's token must be long enough that nobody can guess it. A client sends what it was given.
base::Result<std::string> checked(const std::string& text, const std::string& source,
                                  TokenUse use) {
  std::string token = trimmed(text);
  const size_t least = use == TokenUse::kServer ? kTokenMinServer : kTokenMinClient;
  if (token.size() < least || token.size() > kTokenMax) {
    return Status(Code::kInvalid, "the token in " + source + " must have " + std::to_string(least) +
                                      " to " + std::to_string(kTokenMax) +
                                      " characters; make one with: head -c 24 /dev/urandom | "
                                      "base64");
  }
  return token;
}

base::Result<std::string> from_file(const std::string& path, TokenUse use) {
  const std::string doing = "cannot read the token file '" + path + "'";
  const base::Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat facts;
  if (!file.valid() || fstat(file.get(), &facts) != 0)
    return base::errno_status(Code::kNotFound, doing.c_str(), errno);
  if (use == TokenUse::kServer && S_ISREG(facts.st_mode) && (facts.st_mode & 077) != 0) {
    return Status(Code::kInvalid,
                  "the token file '" + path + "' can be read by others; run: chmod 600 " + path);
  }
  char text[kTokenMax + 64];
  const ssize_t got = read(file.get(), text, sizeof text);
  if (got < 0) return base::errno_status(Code::kInvalid, doing.c_str(), errno);
  return checked(std::string(text, static_cast<size_t>(got)), "'" + path + "'", use);
}

}  // namespace

base::Result<std::string> load_token(const std::string& file, TokenUse use) {
  if (!file.empty()) return from_file(file, use);
  const std::string value = variable("TENDRIL_TOKEN");
  if (!value.empty()) return checked(value, "TENDRIL_TOKEN", use);
  const std::string path = variable("TENDRIL_TOKEN_FILE");
  if (path.empty()) return std::string();
  base::Result<std::string> token = from_file(path, use);
  if (token.ok()) return token;
  return Status(token.status().code(), "TENDRIL_TOKEN_FILE: " + token.status().message());
}

}  // namespace tendril::config

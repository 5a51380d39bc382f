// SPDX-License-Identifier: Apache-2.0
// Names and texts of Status. See result.h.
#include "base/result.h"

#include <cstring>

namespace tendril::base {

const char* code_name(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalid:
      return "invalid";
    case Code::kNotFound:
      return "not found";
    case Code::kRefused:
      return "refused";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kClosed:
      return "closed";
    case Code::kTimeout:
      return "timeout";
    case Code::kMismatch:
      return "mismatch";
    case Code::kUnsupported:
      return "unsupported";
    case Code::kExhausted:
      return "exhausted";
    case Code::kInternal:
      return "internal";
    case Code::kElsewhere:
      return "elsewhere";
  }
  return "unknown";
}

Status errno_status(Code code, const char* doing, int error) {
  char text[128];
  const char* what = strerror_r(error, text, sizeof text);
  return Status(code, std::string(doing) + ": " + what);
}

}  // namespace tendril::base

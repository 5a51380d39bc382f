// SPDX-License-Identifier: Apache-2.0
// The shared secret that admits clients until there are identities. It comes from a file or the
// environment, never from the command line, which others can read. It is never logged. The daemon,
// the command line and the client libraries read it here.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tendril::config {

enum class TokenUse : uint8_t {
  kClient,
  kServer,  // a file that others may read is refused
};

// `file` if given, else TENDRIL_TOKEN, else the file that TENDRIL_TOKEN_FILE names, else empty.
// Blanks around the token are dropped. A token has at most 1024 characters; a
// server's has at least 16, a client's at least 8.
base::Result<std::string> load_token(const std::string& file, TokenUse use);

}  // namespace tendril::config

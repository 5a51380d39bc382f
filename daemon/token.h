// SPDX-License-Identifier: Apache-2.0
// The shared secret that admits clients until identities come. From a file or the environment,
// never from the command line (others can read that), never logged, compared in constant time. Used
// by the daemon and by the command line.
#pragma once

#include <string>

#include "base/result.h"

namespace tendril::daemon {

// `file` when given, else TENDRIL_TOKEN, else the file named by TENDRIL_TOKEN_FILE, else empty.
// White space around it is not part of it. A file that others may read is refused for a server
// (`strict`).
base::Result<std::string> load_token(const std::string& file, bool strict);

}  // namespace tendril::daemon

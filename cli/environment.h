// SPDX-License-Identifier: Apache-2.0
// The client library and the variables with which a program finds it. The contract of the variables
// is in cli/README.md.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tendril::cli {

// The folder with our libcuda.so.1: TENDRIL_CLIENT_DIR, or where an installation or a build puts it
// relative to this executable.
base::Result<std::string> client_directory();

// `directory` in front of `old` (a colon list), once.
std::string prefixed_path(const std::string& directory, const std::string& old);

using Variables = std::vector<std::pair<std::string, std::string>>;

// As a POSIX shell reads it.
std::string shell_quoted(const std::string& text);

}  // namespace tendril::cli

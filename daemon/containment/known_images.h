// SPDX-License-Identifier: Apache-2.0
// An administrator's list of device code that all tenants may share (`tendril serve
// --known-images`): a hash on each line. Read once, at the start.
#pragma once

#include <set>
#include <string>

#include "base/result.h"

namespace tendril::daemon {

// The hashes as bytes. An empty path: none. An error names file and line.
base::Result<std::set<std::string>> read_known_images(const std::string& path);
// `path` is for messages.
base::Result<std::set<std::string>> parse_known_images(const std::string& text,
                                                       const std::string& path);

}  // namespace tendril::daemon

// SPDX-License-Identifier: Apache-2.0
// Reads the system's file with the rules of a time zone. For schedulers and the command line.
#pragma once

#include <string>

#include "base/result.h"

namespace tendril::config {

// The bytes of /usr/share/zoneinfo/NAME, or of TZDIR/NAME. kInvalid: that is no name of a zone.
// kNotFound: there is no such file.
base::Result<std::string> read_zone_file(const std::string& name);

}  // namespace tendril::config

// SPDX-License-Identifier: Apache-2.0
// How a command reports that it cannot go on. Used by every command.
#pragma once

#include <string>

#include "base/result.h"

namespace tendril::cli {

// Prints "tendril: <why>" on stderr. Returns `exit_status`.
int complain(int exit_status, const std::string& why);
int complain(int exit_status, const base::Status& why);

}  // namespace tendril::cli

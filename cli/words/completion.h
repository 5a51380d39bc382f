// SPDX-License-Identifier: Apache-2.0
// Shell completion scripts, made from the shape of the command line. For what only servers know
// (leases, names of servers) they call `tendril known leases|servers` at that moment. Pure.
#pragma once

#include <string>

#include "cli/words/shape.h"

namespace tendril::cli {

// Empty for an unknown shell; known: bash, zsh, fish. `all`: the command `tendril`.
std::string completion_script(const std::string& shell, const CommandShape& all);

}  // namespace tendril::cli

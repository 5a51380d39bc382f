// SPDX-License-Identifier: Apache-2.0
// Runs the command `tendril`, which knows servers, tokens and certificates. Any thread.
#pragma once

#include <string>
#include <vector>

namespace tendril::kubernetes {

// What it writes to stdout. What it writes to stderr is the message if it fails. Blocks until it
// has ended. Throws std::runtime_error: it cannot be started, or its status is not 0.
std::string run_tendril(const std::string& program, const std::vector<std::string>& words);

}  // namespace tendril::kubernetes

// SPDX-License-Identifier: Apache-2.0
// How wide the lines on stdout may be. Every command with tables or help asks.
#pragma once

#include <cstddef>

namespace tendril::cli {

// The terminal's columns. 0, so that lines are as wide as they get: `wide`, or stdout is no
// terminal.
size_t line_width(bool wide);

}  // namespace tendril::cli

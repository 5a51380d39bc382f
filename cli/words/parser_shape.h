// SPDX-License-Identifier: Apache-2.0
// Reads the shape of the command line from the parser that main.cc has built.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/words/shape.h"

namespace tendril::cli {

// With all commands below it. Hidden commands and options are left out.
CommandShape shape_of(const CLI::App& command);

}  // namespace tendril::cli

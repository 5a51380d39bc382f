// SPDX-License-Identifier: Apache-2.0
// Options of a command in a TOML file (`tendril serve --config`): each option is a key, with
// underscores for dashes. The keys come from the shape of the command line, so a file can say what
// the command line can say, and nothing else. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "cli/words/shape.h"

namespace tendril::cli {

// The words that say what the file says. An option that is among `given`, the words of the command
// itself, is left out, because those come first. kInvalid: the message names `path`, the line and
// what is wrong there.
base::Result<std::vector<std::string>> settings_words(const std::string& text,
                                                      const std::string& path,
                                                      const CommandShape& command,
                                                      const std::vector<std::string>& given);

// A file with every option as a comment, with what it means and what holds without it.
std::string settings_template(const CommandShape& command);

}  // namespace tendril::cli

// SPDX-License-Identifier: Apache-2.0
// Shell completion scripts. They are made from the parser's own data, so that the two cannot
// differ. Pure functions.
#pragma once

#include <string>
#include <vector>

namespace tendril::cli {

struct CommandShape {
  std::string name, description;
  std::vector<std::string> options;  // "--json", "-n"
};

// Empty for an unknown shell; known: bash, zsh, fish.
std::string completion_script(const std::string& shell, const std::vector<CommandShape>& commands);

}  // namespace tendril::cli

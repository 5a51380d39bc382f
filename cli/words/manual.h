// SPDX-License-Identifier: Apache-2.0
// Pages of the manual, section 1: one for `tendril` and one for each of its commands, with the
// commands below that. Pure; `tendril manual` writes them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/words/shape.h"

namespace tendril::cli {

struct ManualPage {
  std::string file;  // "tendril-run.1"
  std::string text;  // in the man macros of roff
};

// `all`: the command `tendril`. `version`: "0.1.0".
std::vector<ManualPage> manual_pages(const CommandShape& all, const std::string& version);

// What the statuses of a command mean, in the order in which they are explained.
std::vector<std::pair<std::string, std::string>> exit_statuses(const CommandShape& command);

}  // namespace tendril::cli

// SPDX-License-Identifier: Apache-2.0
// nvidia-smi for programs and people whose GPUs are elsewhere.
#pragma once

#include <string>
#include <vector>

namespace tendril::client::smi {

// Does what the words behind the program's name say, and writes to stdout or a file. Returns the
// exit status. Asks servers, so it may block as nvmlInit does; with -l it returns when it can write
// no more.
int run(const std::vector<std::string>& words);

}  // namespace tendril::client::smi

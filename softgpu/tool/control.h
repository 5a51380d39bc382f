// SPDX-License-Identifier: Apache-2.0
// The control socket: the tool's commands for programs that would rather write a line than start a
// process. A client sends one command per line (words separated by blanks). It gets the answer's
// lines and "ok", or a complaint and "failed".
#pragma once

#include <string>

#include "softgpu/board/board.h"

namespace tendril::softgpu {

// Serves one client at a time until the process is killed. Replaces a socket that was left behind
// at `path`. Returns, with an exit status, only if it cannot listen.
int listen_for_commands(Board& board, const std::string& path);

}  // namespace tendril::softgpu

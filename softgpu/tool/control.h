// SPDX-License-Identifier: Apache-2.0
// The control socket: the tool's commands for programs that would rather write a line than start a
// process. A client sends one command per line (words separated by blanks) and gets the answer's
// lines and then "ok", or a complaint and then "failed".
#pragma once

#include <string>

#include "softgpu/board/board.h"

namespace tendril::softgpu {

// Serves one client at a time until the process is killed; a socket left behind at `path` is
// replaced. Returns, with an exit status, only when it cannot listen.
int listen_for_commands(Board& board, const std::string& path);

}  // namespace tendril::softgpu

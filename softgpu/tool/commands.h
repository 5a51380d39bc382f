// SPDX-License-Identifier: Apache-2.0
// The commands on a board, for the command line and the control socket alike. They write answers
// and complaints to the given streams.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "softgpu/board/board.h"

namespace tendril::softgpu {

extern const char kUsage[];

// 0: done; 1: refused, and the complaint says why; 2: no such command.
int run_command(Board& board, const std::vector<std::string>& words, FILE* out, FILE* complaints);
int list_knobs(FILE* out);

}  // namespace tendril::softgpu

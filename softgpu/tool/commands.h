// SPDX-License-Identifier: Apache-2.0
// What can be asked of a board, by the command line and by the control socket alike. Writes answers
// and complaints where it is told.
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

// SPDX-License-Identifier: Apache-2.0
// tendril-softgpu: shows the board of the software GPU and changes its knobs while programs run.
// For people and for tests. TENDRIL_SOFTGPU_BOARD names the board. The tool is no process on any
// device.

#include <cstdio>
#include <string>
#include <vector>

#include "softgpu/tool/commands.h"
#include "softgpu/tool/control.h"

namespace tendril::softgpu {
namespace {

int run(const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words[0];
  if (command == "knobs") return list_knobs(stdout);
  const bool listens = command == "listen" && words.size() == 2;
  if (!listens && command != "show" && command != "set" && command != "clear") {
    fputs(kUsage, stderr);
    return 2;
  }
  Board& board = Board::instance();
  if (!board.shared()) {
    fprintf(
        stderr,
        "tendril-softgpu: no board: set TENDRIL_SOFTGPU_BOARD to the one that the programs use\n");
    return 1;
  }
  return listens ? listen_for_commands(board, words[1]) : run_command(board, words, stdout, stderr);
}

}  // namespace
}  // namespace tendril::softgpu

int main(int argc, char** argv) {
  return tendril::softgpu::run(std::vector<std::string>(argv + 1, argv + argc));
}

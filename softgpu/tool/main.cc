// SPDX-License-Identifier: Apache-2.0
// tendril-softgpu: shows the board of the software GPU, and changes its knobs while programs run.
// For people and for tests; TENDRIL_SOFTGPU_BOARD names the board. Joins nothing, so it is no
// process on any device.

#include <cstdio>
#include <cstring>
#include <string>

#include "softgpu/board/board.h"
#include "softgpu/board/board_data.h"
#include "softgpu/board/identity.h"

namespace tendril::softgpu {
namespace {

constexpr char kUsage[] =
    "usage: tendril-softgpu show                       devices, processes, knobs in force\n"
    "       tendril-softgpu set KEY=VALUE...           change knobs of every process at once\n"
    "       tendril-softgpu clear                      take such changes back\n"
    "       tendril-softgpu knobs                      every knob\n"
    "TENDRIL_SOFTGPU_BOARD names the board.\n";

int show(Board& board) {
  const Settings& settings = board.settings();
  printf("mode %s\n", name_of(settings.mode));
  if (settings.mode >= TimeMode::kVirtual) {
    BoardLock hold(board);
    printf("clock %.6f s\n", static_cast<double>(board.data().now_ns) * 1e-9);
  }
  for (unsigned i = 0; i < settings.devices; ++i) {
    const DeviceView view = board.view(static_cast<int>(i));
    printf("device %u: %s, %llu of %llu MiB, busy %u %%, %.6f s, memory errors %llu\n", i,
           device_name(settings, i).c_str(),
           static_cast<unsigned long long>(view.memory_bytes >> 20),
           static_cast<unsigned long long>(settings.device[i].memory_bytes >> 20),
           view.utilization_percent, static_cast<double>(view.busy_ns) * 1e-9,
           static_cast<unsigned long long>(view.ecc_errors));
    for (const ProcessView& process : view.processes)
      printf("  process %d: %llu MiB, busy %.6f s, contexts %u\n", process.pid,
             static_cast<unsigned long long>(process.memory_bytes >> 20),
             static_cast<double>(process.busy_ns) * 1e-9, process.contexts);
  }
  printf("%s", board.live_text().c_str());
  return 0;
}

int change(Board& board, const std::string& text, bool replace) {
  std::string complaint;
  if (board.change_live(text, replace, &complaint)) return 0;
  fprintf(stderr, "tendril-softgpu: %s", complaint.c_str());
  return 1;
}

int list_knobs() {
  for (const KnobHelp& knob : knob_list())
    printf("%-14s %s%s%s\n", knob.key, knob.meaning, knob.per_device ? "; per device" : "",
           knob.live ? "; may change" : "");
  return 0;
}

int run(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "knobs") return list_knobs();
  if (command != "show" && command != "set" && command != "clear") {
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
  if (command == "show") return show(board);
  std::string text;
  for (int i = 2; i < argc; ++i) text += std::string(argv[i]) + "\n";
  return change(board, text, command == "clear");
}

}  // namespace
}  // namespace tendril::softgpu

int main(int argc, char** argv) { return tendril::softgpu::run(argc, argv); }

// SPDX-License-Identifier: Apache-2.0
// The commands. See commands.h.

#include "softgpu/tool/commands.h"

#include "softgpu/board/board_data.h"
#include "softgpu/board/identity.h"

namespace tendril::softgpu {
namespace {

int show(Board& board, FILE* out) {
  const Settings& settings = board.settings();
  fprintf(out, "mode %s\n", name_of(settings.mode));
  if (settings.mode >= TimeMode::kVirtual) {
    BoardLock hold(board);
    fprintf(out, "clock %.6f s\n", static_cast<double>(board.data().now_ns) * 1e-9);
  }
  for (unsigned i = 0; i < settings.devices; ++i) {
    const DeviceView view = board.view(static_cast<int>(i));
    fprintf(out, "device %u: %s, %llu of %llu MiB, busy %u %%, %.6f s, memory errors %llu\n", i,
            device_name(settings, i).c_str(),
            static_cast<unsigned long long>(view.memory_bytes >> 20),
            static_cast<unsigned long long>(settings.device[i].memory_bytes >> 20),
            view.utilization_percent, static_cast<double>(view.busy_ns) * 1e-9,
            static_cast<unsigned long long>(view.ecc_errors));
    for (const ProcessView& process : view.processes)
      fprintf(out, "  process %d: %llu MiB, busy %.6f s, contexts %u\n", process.pid,
              static_cast<unsigned long long>(process.memory_bytes >> 20),
              static_cast<double>(process.busy_ns) * 1e-9, process.contexts);
  }
  fprintf(out, "%s", board.live_text().c_str());
  return 0;
}

int change(Board& board, const std::vector<std::string>& words, FILE* complaints) {
  std::string text, complaint;
  for (size_t i = 1; i < words.size(); ++i) text += words[i] + "\n";
  if (board.change_live(text, words[0] == "clear", &complaint)) return 0;
  fprintf(complaints, "tendril-softgpu: %s", complaint.c_str());
  return 1;
}

}  // namespace

const char kUsage[] =
    "usage: tendril-softgpu show                       devices, processes, knobs in force\n"
    "       tendril-softgpu set KEY=VALUE...           change knobs of every process at once\n"
    "       tendril-softgpu clear                      take such changes back\n"
    "       tendril-softgpu knobs                      every knob\n"
    "       tendril-softgpu listen SOCKET              take these commands from a socket, until "
    "stopped\n"
    "TENDRIL_SOFTGPU_BOARD names the board.\n";

int list_knobs(FILE* out) {
  for (const KnobHelp& knob : knob_list())
    fprintf(out, "%-14s %s%s%s\n", knob.key, knob.meaning, knob.per_device ? "; per device" : "",
            knob.live ? "; may change" : "");
  return 0;
}

int run_command(Board& board, const std::vector<std::string>& words, FILE* out, FILE* complaints) {
  const std::string command = words.empty() ? "" : words[0];
  if (command == "show") return show(board, out);
  if (command == "set" || command == "clear") return change(board, words, complaints);
  if (command == "knobs") return list_knobs(out);
  fputs(kUsage, complaints);
  return 2;
}

}  // namespace tendril::softgpu

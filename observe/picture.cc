// SPDX-License-Identifier: Apache-2.0
// See picture.h. Bars and curves differ by shape, not by colour.
#include "observe/picture.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "config/quantity.h"

namespace tendril::observe {

using base::format;

namespace {

constexpr size_t kCurve = 60;     // seconds
constexpr size_t kMostShown = 8;  // programs of a GPU
constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr const char* kLetters[] = {"_", ".", ":", "-", "=", "+", "#", "@"};
constexpr int kHighest = 7;

// One character of a curve. What is unknown is a blank.
std::string point_of(double part, bool blocks) {
  if (part < 0) return " ";
  const int height = std::clamp(static_cast<int>(std::lround(part * kHighest)), 0, kHighest);
  return blocks ? kBlocks[height] : kLetters[height];
}

std::string bar_of(double part, size_t width, bool blocks) {
  const auto full =
      static_cast<size_t>(std::lround(std::clamp(part, 0.0, 1.0) * static_cast<double>(width)));
  const char *const on = blocks ? "█" : "#", *const off = blocks ? "·" : "-";
  std::string bar = "[";
  for (size_t i = 0; i < width; ++i) bar += i < full ? on : off;
  return bar + "]";
}

std::string percent_of(double part) { return part < 0 ? "   ? %" : format("%4.0f %%", part * 100); }

struct Shown {
  std::string who;
  double busy = -1;
  uint64_t memory_bytes = 0;
};

// Processes of one program together; the busiest first, then the largest.
std::vector<Shown> programs_of(const gpu::DeviceUse& use, const Minutes::OwnerOf& owner_of) {
  const std::vector<double> parts = parts_of(use);
  std::map<std::string, Shown> programs;
  for (size_t i = 0; i < use.processes.size(); ++i) {
    const Owner& owner = owner_of(use.processes[i].pid);
    std::string who = owner.user.empty() ? "?" : owner.user;
    if (!owner.job.empty()) who += "  " + owner.job;
    if (!owner.container.empty()) who += "  container " + owner.container;
    Shown& program = programs[who];
    program.who = who;
    program.memory_bytes += use.processes[i].memory_bytes;
    if (!parts.empty()) program.busy = std::max(0.0, program.busy) + parts[i];
  }
  std::vector<Shown> shown;
  for (auto& [who, program] : programs) shown.push_back(std::move(program));
  std::stable_sort(shown.begin(), shown.end(), [](const Shown& left, const Shown& right) {
    if (left.busy != right.busy) return left.busy > right.busy;
    return left.memory_bytes > right.memory_bytes;
  });
  return shown;
}

}  // namespace

std::string Picture::draw(const std::string& head, const std::vector<gpu::DeviceUse>& uses,
                          const Minutes::OwnerOf& owner_of, const PictureStyle& style) {
  const size_t width = std::max(style.width, kLeastColumns);
  std::string text = base::printable(head, width) + "\n";
  for (size_t i = 0; i < uses.size(); ++i) {
    const gpu::DeviceUse& use = uses[i];
    const double busy = use.utilization_percent / 100;
    std::deque<double>& curve = curves_[use.uuid];
    curve.push_back(busy);
    if (curve.size() > kCurve) curve.pop_front();
    const std::string power =
        use.power_mw < 0 ? std::string() : format("  %.0f W", use.power_mw / 1000.0);
    text += "\n" + base::printable(format("GPU %zu  ", i) + use.name, width - 12) + power + "\n";
    const size_t room = width - 40;
    text += "  time   " + bar_of(busy, 20, style.blocks) + " " + percent_of(busy) + "  ";
    const size_t points = std::min(room, curve.size());
    for (size_t at = curve.size() - points; at < curve.size(); ++at)
      text += point_of(curve[at], style.blocks);
    const double memory = use.memory_total_bytes == 0
                              ? 0
                              : static_cast<double>(use.memory_used_bytes) /
                                    static_cast<double>(use.memory_total_bytes);
    text += "\n  memory " + bar_of(memory, 20, style.blocks) + " " + percent_of(memory) + "  " +
            config::format_size(use.memory_used_bytes) + " of " +
            config::format_size(use.memory_total_bytes) + "\n";
    const std::vector<Shown> programs = programs_of(use, owner_of);
    for (size_t p = 0; p < std::min(programs.size(), kMostShown); ++p) {
      const std::string what =
          percent_of(programs[p].busy) + "  " +
          format("%10s", config::format_size(programs[p].memory_bytes).c_str());
      const std::string who = base::printable(programs[p].who, width - 26);
      text += "  " + what + "  " + who + "\n";
    }
    if (programs.size() > kMostShown)
      text += format("  and %zu more programs\n", programs.size() - kMostShown);
    if (programs.empty()) text += "  nobody\n";
  }
  return text;
}

}  // namespace tendril::observe

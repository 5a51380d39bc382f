// SPDX-License-Identifier: Apache-2.0
// What GPUs do now, as text for a terminal: a bar for time and memory, the last minute as a curve,
// and who is there. `tendril observe --live` shows it each second. Pure; names are cleaned here.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "gpu/monitor.h"
#include "observe/minutes.h"

namespace tendril::observe {

struct PictureStyle {
  size_t width = 80;    // columns; less than kLeastColumns counts as so many
  bool blocks = false;  // the terminal shows UTF-8
};
inline constexpr size_t kLeastColumns = 60;

class Picture {
 public:
  // Adds a look, and draws it. `head` is the first line.
  std::string draw(const std::string& head, const std::vector<gpu::DeviceUse>& uses,
                   const Minutes::OwnerOf& owner_of, const PictureStyle& style);

 private:
  std::map<std::string, std::deque<double>> curves_;  // of a GPU, the last minute
};

}  // namespace tendril::observe

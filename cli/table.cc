// SPDX-License-Identifier: Apache-2.0
// See table.h.
#include "cli/table.h"

#include <algorithm>

#include "base/text.h"
#include "daemon/log.h"

namespace tendril::cli {

std::string aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    if (row.size() > widths.size()) widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      line.append(i + 1 < row.size() ? widths[i] - row[i].size() + 2 : 0, ' ');
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  return text;
}

std::string uuid_text(const std::string& raw) {
  if (raw.size() != 16) return "";
  const std::string hex = base::hex(raw.data(), raw.size());
  return "GPU-" + hex.substr(0, 8) + "-" + hex.substr(8, 4) + "-" + hex.substr(12, 4) + "-" +
         hex.substr(16, 4) + "-" + hex.substr(20);
}

std::string age_text(uint64_t seconds) {
  const auto n = static_cast<unsigned long long>(seconds);
  if (n < 60) return base::format("%llus", n);
  if (n < 3600) return base::format("%llum%02llus", n / 60, n % 60);
  if (n < 86400) return base::format("%lluh%02llum", n / 3600, n % 3600 / 60);
  return base::format("%llud%02lluh", n / 86400, n % 86400 / 3600);
}

std::string safe(const std::string& text) { return daemon::printable(text, 200); }

}  // namespace tendril::cli

// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: windows and moments from arbitrary text, zones from arbitrary bytes. A window
// must change where it says so, and an error must name a column.
#include <string>

#include "pool/policy/calendar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  using namespace tendril::pool;  // NOLINT
  const std::string text(reinterpret_cast<const char*>(data), bytes);
  constexpr int64_t kNow = 1'800'000'000;
  Zone zone;
  // A zone file, then a line with a window.
  const size_t cut = text.rfind('\n');
  const auto parsed = parse_zone(cut == std::string::npos ? text : text.substr(0, cut + 1), "fuzz");
  if (parsed.ok()) zone = parsed.value();
  const std::string line = cut == std::string::npos ? text : text.substr(cut + 1);
  if (parse_moment(line, kNow, zone).ok() && parse_moment(line, kNow, zone).value() < kNow)
    __builtin_trap();
  const auto when = When::parse(line);
  if (!when.ok()) {
    if (when.status().message().find("column ") != 0) __builtin_trap();
    return 0;
  }
  int64_t now = kNow;
  for (int i = 0; i < 8; ++i) {
    const int64_t next = when.value().next_change(now, zone);
    if (next <= now) __builtin_trap();
    if (next == kNever) break;
    now = next;
  }
  return 0;
}

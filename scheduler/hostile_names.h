// SPDX-License-Identifier: Apache-2.0
// Names that an attacker would choose, for the programs that play servers and a past to the page's
// tests. Pure.
#pragma once

#include <cstddef>
#include <iterator>
#include <string>

namespace tendril::scheduler {

// What must be shown as text: markup, a terminal's escapes, and 10 kB.
inline std::string hostile_name(size_t index) {
  static const std::string kNames[] = {"<script>window.pwned = 1</script>",
                                       "<img src=x onerror='window.pwned=1'>",
                                       "\x1b[31mred\x1b]0;title\x07",
                                       "\" onmouseover=\"window.pwned=1",
                                       "\xff\xfe\xc3(",
                                       "javascript:window.pwned=1//",
                                       "{{7*7}}${7*7}",
                                       std::string(10'000, 'W')};
  return kNames[index % std::size(kNames)];
}

}  // namespace tendril::scheduler

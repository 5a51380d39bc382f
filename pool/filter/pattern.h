// SPDX-License-Identifier: Apache-2.0
// The right side of `~` in a filter: a regular expression that is looked for anywhere in a text, in
// small and capital letters alike. It has . [] () | * + ? ^ $ and a backslash before a sign that
// means itself. It remembers nothing, so looking takes at most pattern times text steps, whatever
// both are. Pure; any thread.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::pool {

inline constexpr size_t kPatternBytesMax = 256;
inline constexpr size_t kPatternTextMax = 1024;  // what follows in a text is not looked at

class Pattern {
 public:
  // kInvalid: the message names the position in the pattern, from 1.
  static base::Result<Pattern> parse(const std::string& text);
  bool found_in(const std::string& text) const;

 private:
  friend class PatternReader;
  enum class What : uint8_t { kOneOf, kBoth, kBegin, kEnd, kFound };
  struct Step {
    What what = What::kFound;
    uint32_t next = 0, other = 0;  // kBoth: both are tried
    uint32_t set = 0;              // kOneOf
  };
  using Letters = std::bitset<256>;
  class Walk;

  // Letters and | only, as most patterns are: these texts, in small letters. Otherwise the steps.
  std::vector<std::string> words_;
  std::vector<Step> steps_;
  std::vector<Letters> sets_;
  uint32_t start_ = 0;
};

}  // namespace tendril::pool

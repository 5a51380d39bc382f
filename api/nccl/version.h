// SPDX-License-Identifier: Apache-2.0
// NCCL's numbers of versions as people read them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace tendril::api::nccl {

// "2.28.9" for 22809. Before 2.9 the parts had a digit less.
inline std::string version_text(uint32_t version) {
  const uint32_t unit = version >= 10'000 ? 10'000 : 1'000;
  return std::to_string(version / unit) + "." + std::to_string(version % unit / 100) + "." +
         std::to_string(version % 100);
}

// The highest that is in each of the lists; 0: there is none, or no list.
inline uint32_t highest_common(const std::vector<std::vector<uint32_t>>& lists) {
  uint32_t best = 0;
  for (const uint32_t version : lists.empty() ? std::vector<uint32_t>() : lists.front()) {
    bool everywhere = true;
    for (const std::vector<uint32_t>& list : lists)
      everywhere = everywhere && std::find(list.begin(), list.end(), version) != list.end();
    if (everywhere && version > best) best = version;
  }
  return best;
}

}  // namespace tendril::api::nccl

// SPDX-License-Identifier: Apache-2.0
// See facts.h.
#include "pool/filter/facts.h"

#include <algorithm>

namespace tendril::pool {

Version version_of(const std::string& text) {
  constexpr size_t kPartsMax = 4;
  constexpr uint32_t kPartMax = 100'000'000;
  Version version;
  size_t at = 0;
  while (version.size() < kPartsMax && at < text.size() && text[at] >= '0' && text[at] <= '9') {
    uint32_t part = 0;
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      if (part < kPartMax) part = part * 10 + static_cast<uint32_t>(text[at] - '0');
    }
    version.push_back(part);
    if (at >= text.size() || text[at] != '.') break;
    ++at;
  }
  return version;
}

int compare_versions(const Version& a, const Version& b) {
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const uint32_t left = i < a.size() ? a[i] : 0, right = i < b.size() ? b[i] : 0;
    if (left != right) return left < right ? -1 : 1;
  }
  return 0;
}

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// See pci_places.h.
#include "client/common/pci_places.h"

#include <algorithm>

namespace tendril::client {

void make_distinct(std::vector<PciPlace>* places) {
  for (size_t i = 1; i < places->size(); ++i) {
    const auto begin = places->begin(), here = begin + static_cast<std::ptrdiff_t>(i);
    if (std::find(begin, here, *here) == here) continue;
    PciPlace other = *here;
    do {
      ++other.domain;
    } while (std::find(begin, places->end(), other) != places->end());
    *here = other;
  }
}

}  // namespace tendril::client

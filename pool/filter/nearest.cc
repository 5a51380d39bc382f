// SPDX-License-Identifier: Apache-2.0
// See nearest.h.
#include "pool/filter/nearest.h"

#include <algorithm>

namespace tendril::pool {
namespace {

constexpr size_t kLongest = 64;

// How many letters must be added, removed or replaced.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string did_you_mean(const std::string& word, const std::vector<std::string>& names) {
  const std::string* best = nullptr;
  size_t best_distance = word.size() / 3 + 2;
  for (const std::string& name : names) {
    if (word.empty() || word.size() > kLongest || name.size() > kLongest) continue;
    const size_t far = distance(word, name);
    if (far < best_distance && far < name.size()) {
      best_distance = far;
      best = &name;
    }
  }
  return best == nullptr ? "" : "; did you mean '" + *best + "'?";
}

std::string joined(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

}  // namespace tendril::pool

// SPDX-License-Identifier: Apache-2.0
// See port_pairs.h.
#include "session/choice/port_pairs.h"

#include <algorithm>

#include "base/text.h"
#include "session/choice/way_choice.h"

namespace tendril::session {

using transport::Measured;
using transport::Port;

namespace {

constexpr double kAlike = 0.8;  // of the best rate
constexpr size_t kFailureBytesMost = 120;

bool uses_one_of(const PortPair& pair, const PortPair& other) {
  return pair.client == other.client || pair.worker == other.worker;
}

}  // namespace

std::vector<PortPair> pairs_to_try(const std::vector<Port>& client,
                                   const std::vector<Port>& worker) {
  std::vector<PortPair> possible, chosen;
  for (size_t sum = 0; sum + 1 < client.size() + worker.size(); ++sum) {
    for (size_t i = 0; i <= sum && i < client.size(); ++i) {
      if (sum - i < worker.size() && client[i].network == worker[sum - i].network)
        possible.push_back({i, sum - i});
    }
  }
  for (const bool alone : {true, false}) {
    for (const PortPair& pair : possible) {
      const bool known = std::find(chosen.begin(), chosen.end(), pair) != chosen.end();
      const bool shares = std::any_of(chosen.begin(), chosen.end(), [&](const PortPair& other) {
        return uses_one_of(pair, other);
      });
      if (chosen.size() < kPairsMost && !known && !(alone && shares)) chosen.push_back(pair);
    }
  }
  return chosen;
}

bool is_better(const Measured& one, const Measured& other) {
  if (one.gigabytes_per_second > other.gigabytes_per_second * (1 + kNoise)) return true;
  return one.gigabytes_per_second * (1 + kNoise) >= other.gigabytes_per_second &&
         one.round_trip_us * (1 + kNoise) < other.round_trip_us;
}

size_t pair_beside(const std::vector<TriedPair>& tried, size_t best) {
  size_t beside = tried.size();
  for (size_t i = 0; i < tried.size(); ++i) {
    const TriedPair& each = tried[i];
    if (!each.failure.empty() || uses_one_of(each.ports, tried[best].ports) ||
        each.measured.gigabytes_per_second < tried[best].measured.gigabytes_per_second * kAlike)
      continue;
    if (beside == tried.size() || is_better(each.measured, tried[beside].measured)) beside = i;
  }
  return beside;
}

std::string told(const std::vector<TriedPair>& tried, size_t best) {
  std::string text =
      base::format("%s is the best of %zu pairs of ports (%.3g GB/s", tried[best].name.c_str(),
                   tried.size(), tried[best].measured.gigabytes_per_second);
  for (size_t i = 0; i < tried.size(); ++i) {
    if (i == best) continue;
    text += "; " + tried[i].name + " ";
    if (tried[i].failure.empty())
      text += base::format("%.3g GB/s", tried[i].measured.gigabytes_per_second);
    else
      text += "failed: " + tried[i].failure.substr(0, kFailureBytesMost);
  }
  return text + ")";
}

}  // namespace tendril::session

// SPDX-License-Identifier: Apache-2.0
// Counting kinds of requests; demand.h has the contract.
#include "pool/placement/demand.h"

#include <algorithm>

namespace tendril::pool {

void Demand::add(const Request& request) {
  const uint32_t share = request.slices == 0 ? 0 : request.share_millionths;
  counts_[Key{request.host.cpu_milli, share, request.slices, request.models}] += 1;
  total_ += 1;
}

void Demand::fade(double factor) {
  constexpr double kForgotten = 0.01;
  total_ = 0;
  for (auto each = counts_.begin(); each != counts_.end();) {
    each->second *= factor;
    if (each->second < kForgotten) {
      each = counts_.erase(each);
    } else {
      total_ += each->second;
      ++each;
    }
  }
}

std::vector<DemandKind> Demand::typical(double part) const {
  std::vector<std::pair<double, const Key*>> sorted;
  for (const auto& [key, count] : counts_) sorted.emplace_back(count, &key);
  std::sort(sorted.begin(), sorted.end(), [](const auto& left, const auto& right) {
    return left.first != right.first ? left.first > right.first : *right.second < *left.second;
  });
  std::vector<DemandKind> kinds;
  double covered = 0;
  for (const auto& [count, key] : sorted) {
    if (covered >= part * total_) break;
    covered += count;
    kinds.push_back(DemandKind{std::get<2>(*key), std::get<1>(*key), std::get<0>(*key),
                               std::get<3>(*key), count});
  }
  for (DemandKind& kind : kinds) kind.weight /= covered;
  return kinds;
}

double Demand::cpu_milli_per_gpu() const {
  double cpu_milli = 0;
  double gpus = 0;
  for (const auto& [key, count] : counts_) {
    const auto& [cpu, share, slices, models] = key;
    if (slices == 0) continue;
    cpu_milli += count * cpu;
    gpus += count * slices * share / kWholeGpu;
  }
  return gpus > 0 ? cpu_milli / gpus : 0;
}

}  // namespace tendril::pool

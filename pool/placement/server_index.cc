// SPDX-License-Identifier: Apache-2.0
// Keeps the lists in step with the fleet. The index remembers the numbers under which a server's
// entries were inserted, and removes them by these.
#include "pool/placement/server_index.h"

#include <algorithm>

#include "base/check.h"

namespace tendril::pool {

void SortedServers::insert(int32_t value, uint32_t server) {
  const uint64_t wanted = key(value, server);
  keys_.insert(std::lower_bound(keys_.begin(), keys_.end(), wanted), wanted);
}

void SortedServers::erase(int32_t value, uint32_t server) {
  const uint64_t wanted = key(value, server);
  const auto found = std::lower_bound(keys_.begin(), keys_.end(), wanted);
  TENDRIL_CHECK(found != keys_.end() && *found == wanted);
  keys_.erase(found);
}

size_t SortedServers::lower_bound(int32_t value) const {
  return std::lower_bound(keys_.begin(), keys_.end(), key(value, 0)) - keys_.begin();
}

uint32_t ServerIndex::gap_of(const Gpu& gpu) {
  if (!gpu.spec.usable) return 0;
  uint32_t gap = gpu.share_free / kGapStep;
  if (const uint64_t all = gpu.spec.memory_bytes; all != 0) {
    const double part = static_cast<double>(gpu.memory_free_bytes) / static_cast<double>(all);
    gap = std::min(gap, std::max(1U, static_cast<uint32_t>(part * kGapSteps)));
  }
  return gap;
}

void ServerIndex::rebuild(const Fleet& fleet, double cpu_milli_per_gpu) {
  cpu_milli_per_gpu_ = cpu_milli_per_gpu;
  models_.clear();
  mixed_ = ServerList();
  entries_.clear();
  for (uint32_t number = 0; number < fleet.servers().size(); ++number) update(fleet, number);
}

void ServerIndex::update(const Fleet& fleet, uint32_t number) {
  const Server& server = fleet.server(number);
  if (entries_.size() <= number) entries_.resize(number + 1);
  Entry& entry = entries_[number];
  if (entry.listed) unlist(number);
  entry.listed = server.open;
  entry.free = static_cast<int32_t>(server.share_free / kGapStep);
  entry.balance = 0;
  if (cpu_milli_per_gpu_ > 0) {
    constexpr double kMost = 1e9;
    const double served = server.cpu_free_milli / cpu_milli_per_gpu_ * kGapSteps;
    entry.balance = static_cast<int32_t>(std::max(entry.free - served, -kMost));
  }
  for (Kind& kind : entry.kinds) {
    kind.whole = 0;
    if (!server.gpus.empty()) kind.gpus = 0;
    kind.gaps.clear();
  }
  // A server without GPUs serves requests for processors alone.
  if (server.gpus.empty() && entry.kinds.empty()) ++kind_of(entry, Gpu()).gpus;
  for (const Gpu& gpu : server.gpus) {
    const auto gap = static_cast<uint16_t>(gap_of(gpu));
    Kind& kind = kind_of(entry, gpu);
    ++kind.gpus;
    if (gap == kGapSteps) ++kind.whole;
    if (gap != 0 && std::find(kind.gaps.begin(), kind.gaps.end(), gap) == kind.gaps.end())
      kind.gaps.push_back(gap);
  }
  std::erase_if(entry.kinds, [](const Kind& kind) { return kind.gpus == 0; });
  if (entry.listed) list(number);
}

ServerIndex::Kind& ServerIndex::kind_of(Entry& entry, const Gpu& gpu) {
  for (Kind& kind : entry.kinds)
    if (kind.model == gpu.spec.model) return kind;
  while (models_.size() <= gpu.spec.model) models_.push_back(std::make_unique<Model>());
  Model& model = *models_[gpu.spec.model];
  model.most_gpu_memory_bytes = std::max(model.most_gpu_memory_bytes, gpu.spec.memory_bytes);
  entry.kinds.push_back(Kind{gpu.spec.model, 0, 0, {}});
  return entry.kinds.back();
}

void ServerIndex::list(uint32_t number) {
  const Entry& entry = entries_[number];
  const auto add = [&](ServerList& servers) {
    servers.by_free.insert(entry.free, number);
    servers.by_balance.insert(entry.balance, number);
  };
  for (const Kind& kind : entry.kinds) {
    Model& model = *models_[kind.model];
    for (uint16_t gap : kind.gaps) {
      add(model.by_gap[gap]);
      model.gaps_present[gap / 64] |= uint64_t{1} << gap % 64;
    }
    if (kind.whole != 0) add(model.by_whole[kind.whole]);
    add(model.all);
  }
  if (entry.kinds.size() > 1) add(mixed_);
}

void ServerIndex::unlist(uint32_t number) {
  const Entry& entry = entries_[number];
  const auto remove = [&](ServerList& servers) {
    servers.by_free.erase(entry.free, number);
    servers.by_balance.erase(entry.balance, number);
  };
  for (const Kind& kind : entry.kinds) {
    Model& model = *models_[kind.model];
    for (uint16_t gap : kind.gaps) {
      remove(model.by_gap[gap]);
      if (model.by_gap[gap].by_free.keys().empty())
        model.gaps_present[gap / 64] &= ~(uint64_t{1} << gap % 64);
    }
    if (kind.whole != 0) remove(model.by_whole[kind.whole]);
    remove(model.all);
  }
  if (entry.kinds.size() > 1) remove(mixed_);
}

}  // namespace tendril::pool

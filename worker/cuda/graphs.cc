// SPDX-License-Identifier: Apache-2.0
// See graphs.h.
#include "worker/cuda/graphs.h"

#include <vector>

namespace tendril::worker::cuda {

// Which of them it was, the driver does not tell. The others are rare, and their ids are lost.
void Graphs::capture_lost(Executor& executor) {
  std::unordered_set<CUgraph> lost;
  lost.swap(captured_);
  for (CUgraph graph : lost) executor.objects().end(graph);
}

CUgraph Graphs::parent_of(Executor& executor, CUgraph graph) const {
  const auto it = moved_.find(graph);
  if (it != moved_.end()) return it->second;
  const Objects& objects = executor.objects();
  const void* node = objects.owner(objects.known_id(Kind::kGraph, graph));
  if (node == nullptr || node == graph) return nullptr;
  const void* parent = objects.owner(objects.known_id(Kind::kNode, const_cast<void*>(node)));
  return static_cast<CUgraph>(const_cast<void*>(parent));
}

bool Graphs::is_within(Executor& executor, CUgraph graph, CUgraph other) const {
  constexpr int kDepthMax = 64;  // a driver may go through them by recursion
  for (int depth = 0; depth < kDepthMax; ++depth) {
    if (graph == other) return true;
    graph = parent_of(executor, graph);
    if (graph == nullptr) return false;
  }
  return true;
}

bool Graphs::is_clients(Executor& executor, uint64_t id, CUgraph graph) const {
  return executor.objects().owner(id) == graph && moved_.count(graph) == 0 &&
         !captures_into(graph) && !executor.streams().captures_into(graph);
}

bool Graphs::has_references(uint64_t object, CUgraph graph, uint64_t count) const {
  const auto it = references_.find(object);
  if (it == references_.end()) return false;
  const auto held = it->second.find(graph);
  return held != it->second.end() && held->second >= count;
}

bool Graphs::drop_references(uint64_t object, CUgraph graph, uint64_t count) {
  const auto it = references_.find(object);
  if (it == references_.end()) return false;
  const auto held = it->second.find(graph);
  if (held != it->second.end() && held->second > count) {
    held->second -= count;
    return false;
  }
  it->second.erase(graph);
  return it->second.empty();
}

void Graphs::forget(Executor& executor, CUgraph graph) {
  captured_.erase(graph);
  moved_.erase(graph);
  std::erase_if(conditions_, [graph](const auto& entry) { return entry.second == graph; });
  std::vector<uint64_t> gone;
  for (auto& [object, holders] : references_) {
    if (holders.erase(graph) != 0 && holders.empty()) gone.push_back(object);
  }
  for (const uint64_t object : gone) executor.objects().gone(Kind::kUserObject, object);
}

}  // namespace tendril::worker::cuda

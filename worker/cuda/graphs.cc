// SPDX-License-Identifier: Apache-2.0
// See graphs.h.
#include "worker/cuda/graphs.h"

#include <vector>

namespace tendril::worker::cuda {
namespace {

constexpr int kDepthMax = 64;  // a driver may go through graphs by recursion

}  // namespace

// Which of them it was, the driver does not tell. The others are rare, and their ids are lost.
void Graphs::capture_lost(Executor& executor) {
  std::unordered_set<CUgraph> lost;
  lost.swap(captured_);
  for (CUgraph graph : lost) executor.objects().end(graph);
}

Graphs::Place Graphs::place_of_id(Executor& executor, CUgraph graph) {
  const Objects& objects = executor.objects();
  void* const node = const_cast<void*>(objects.owner(objects.known_id(Kind::kGraph, graph)));
  if (node == nullptr || node == graph) return Place();
  void* const parent = const_cast<void*>(objects.owner(objects.known_id(Kind::kNode, node)));
  return {static_cast<CUgraph>(parent), static_cast<CUgraphNode>(node)};
}

Graphs::Place Graphs::place_of(Executor& executor, CUgraph graph) const {
  const auto it = moved_.find(graph);
  return it != moved_.end() ? it->second : place_of_id(executor, graph);
}

bool Graphs::is_within(Executor& executor, CUgraph graph, CUgraph other) const {
  for (int depth = 0; depth < kDepthMax; ++depth) {
    if (graph == other) return true;
    graph = place_of(executor, graph).parent;
    if (graph == nullptr) return false;
  }
  return true;
}

bool Graphs::is_clients(Executor& executor, uint64_t id, CUgraph graph) const {
  return executor.objects().owner(id) == graph && moved_.count(graph) == 0 &&
         captured_.count(graph) == 0 && !captures_inside(executor, graph);
}

bool Graphs::captures_inside(Executor& executor, CUgraph graph) const {
  for (CUgraph taken : executor.streams().graphs_in_capture()) {
    if (is_within(executor, taken, graph)) return true;
  }
  return false;
}

bool Graphs::captures_below(Executor& executor, CUgraphNode node) const {
  for (CUgraph taken : executor.streams().graphs_in_capture()) {
    int depth = 0;
    while (taken != nullptr && depth < kDepthMax) {
      const Place place = place_of(executor, taken);
      if (place.node == node) return true;
      taken = place.parent;
      ++depth;
    }
    if (depth == kDepthMax) return true;
  }
  return false;
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

// SPDX-License-Identifier: Apache-2.0
// What a session's graphs hold, so that no stale handle of theirs reaches the driver. The driver
// ends nodes with their graph, and a node's own graph with the node. While a stream captures, it
// holds the captured graph. Executor thread.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "worker/cuda/executor/executor.h"

namespace tendril::worker::cuda {

class Graphs {
 public:
  // An id was given to the graph of a capture that is under way. It lives until the capture ends.
  void capture_seen(CUgraph graph) { captured_.insert(graph); }
  // The capture has ended well: the graph is the client's.
  void capture_done(CUgraph graph) { captured_.erase(graph); }
  // A capture has ended, and its graph with it.
  void capture_lost(Executor& executor);
  bool captures_into(CUgraph graph) const { return captured_.count(graph) != 0; }

  // The driver's value for a condition of `graph`, which kernels get too.
  void add_condition(CUgraphConditionalHandle handle, CUgraph graph) {
    conditions_[handle] = graph;
  }
  bool has_condition(CUgraphConditionalHandle handle) const {
    return conditions_.count(handle) != 0;
  }

  // References that the client holds to a user object (null), or gave to a graph. The object may
  // end with the last of them.
  void add_references(uint64_t object, CUgraph graph, uint64_t count) {
    references_[object][graph] += count;
  }
  // Does it hold so many? The driver need not check that.
  bool has_references(uint64_t object, CUgraph graph, uint64_t count) const;
  // True: those were the last.
  bool drop_references(uint64_t object, CUgraph graph, uint64_t count);
  void forget_object(uint64_t object) { references_.erase(object); }

  // The graph belongs to this node of another graph from now on, whatever ids it has.
  void moved(CUgraph graph, CUgraph parent, CUgraphNode node) { moved_[graph] = {parent, node}; }
  // Is `graph` the other graph, or inside of it? True also when it lies too deep.
  bool is_within(Executor& executor, CUgraph graph, CUgraph other) const;
  // May the client destroy or move the graph that it names so? Not if it belongs to a node, and not
  // while a stream captures into it.
  bool is_clients(Executor& executor, uint64_t id, CUgraph graph) const;
  // Does a stream capture into this graph or one inside of it, or into one that ends with this
  // node? The driver would go on using what it had ended.
  bool captures_inside(Executor& executor, CUgraph graph) const;
  bool captures_below(Executor& executor, CUgraphNode node) const;

  // A graph is gone.
  void forget(Executor& executor, CUgraph graph);

 private:
  struct Place {
    CUgraph parent = nullptr;
    CUgraphNode node = nullptr;
  };
  static Place place_of_id(Executor& executor, CUgraph graph);
  // What a graph belongs to; null: nothing.
  Place place_of(Executor& executor, CUgraph graph) const;

  std::unordered_set<CUgraph> captured_;
  std::unordered_map<CUgraph, Place> moved_;  // to where
  std::unordered_map<CUgraphConditionalHandle, CUgraph> conditions_;
  std::unordered_map<uint64_t, std::map<CUgraph, uint64_t>> references_;  // by a user object's id
};

}  // namespace tendril::worker::cuda

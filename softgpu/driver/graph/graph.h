// SPDX-License-Identifier: Apache-2.0
// Graphs: work as nodes with dependencies, recorded by capture or built by hand. They are
// instantiated into a list in topological order and replayed on a stream. One lock (capture_lock)
// guards the structure of all graphs. Instantiated works are immutable.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "softgpu/driver/stream/work.h"

namespace tendril::softgpu {

class Graph;
struct Condition;

struct GraphNode {
  CUgraphNode handle = nullptr;
  CUgraphNode original = nullptr;  // in a clone: the node this one was made from
  WorkPtr work;
  std::weak_ptr<Graph> graph;
  struct Edge {
    std::shared_ptr<GraphNode> from;
    CUgraphEdgeData data = {};
  };
  std::vector<Edge> dependencies;
  std::map<int, CUlaunchAttributeValue> attributes;
  std::vector<void*> lent;  // arrays to which a call for parameters pointed the program
};
using NodePtr = std::shared_ptr<GraphNode>;

class UserObject {
 public:
  CUhostFn destroy = nullptr;
  void* data = nullptr;
  std::atomic<int64_t> references{0};
  ~UserObject() {
    if (destroy != nullptr) destroy(data);
  }
};

// The references to the program's user objects that a graph, or an instance of it, holds. A copy
// holds as many again.
class UserReferences {
 public:
  UserReferences() = default;
  UserReferences(const UserReferences& other);
  UserReferences& operator=(UserReferences other);
  ~UserReferences();

  void take(CUuserObject handle, std::shared_ptr<UserObject> object,
            unsigned count);                       // they were the caller's
  bool drop(CUuserObject handle, unsigned count);  // false: it holds fewer references

 private:
  struct Held {
    std::shared_ptr<UserObject> object;
    unsigned count = 0;
  };
  std::map<CUuserObject, Held> held_;
};

class Graph : public std::enable_shared_from_this<Graph> {
 public:
  CUgraph handle = nullptr;
  bool owned = false;          // a child graph or a node's body: the program must not destroy it
  std::vector<NodePtr> nodes;  // in the order in which they were added
  UserReferences user_objects;
  std::vector<std::shared_ptr<Condition>> conditions;  // handles made for it
  ~Graph();

  NodePtr add(WorkPtr work, const std::vector<NodePtr>& dependencies);
  // Dependencies first. Null if there is a cycle.
  bool sorted(std::vector<NodePtr>* out) const;
  std::shared_ptr<Graph> clone(std::map<CUgraphNode, CUgraphNode>* mapping = nullptr) const;
};
using GraphPtr = std::shared_ptr<Graph>;
using GraphTable = HandleTable<CUgraph, Graph, HandleKind::kGraph>;
using NodeTable = HandleTable<CUgraphNode, GraphNode, HandleKind::kGraphNode>;
GraphTable& graphs();
NodeTable& graph_nodes();
GraphPtr make_graph();

struct ChildWork : Work {
  GraphPtr graph;  // its own copy, which the table of handles also knows
  ~ChildWork() override {
    if (graph) graphs().remove(graph->handle);
  }
  CUgraphNodeType type() const override { return CU_GRAPH_NODE_TYPE_GRAPH; }
  CUresult run(Context& context) override;
  WorkPtr clone() const override;
  // A copy in which the node that was made from `original` has other work. Null: there is no such
  // node, nested graphs included.
  WorkPtr with(CUgraphNode original, CUgraphNodeType type, const WorkPtr& other) const;
};

struct GraphExec {
  GraphExec() = default;
  GraphExec(const GraphExec&) = delete;
  GraphExec& operator=(const GraphExec&) = delete;
  struct Item {
    CUgraphNode original = nullptr;
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    WorkPtr work;
    bool enabled = true;
    std::vector<CUgraphNode> dependencies;
  };
  CUgraphExec handle = nullptr;
  uint64_t flags = 0;
  std::atomic<bool> uploaded{false};  // on the device, so that kernels may launch it
  std::vector<Item> items;
  std::vector<std::shared_ptr<Condition>> conditions;
  UserReferences user_objects;
  // What it takes of its context's device, if that costs anything.
  CUcontext context = nullptr;
  uint64_t device_bytes = 0;
  ~GraphExec();
  Item* find(CUgraphNode node);
};
using ExecTable = HandleTable<CUgraphExec, GraphExec, HandleKind::kGraphExec>;
ExecTable& graph_execs();

// Looks up `count` nodes, which must belong to `graph` when that is not null.
CUresult find_nodes(const CUgraphNode* handles, size_t count, const Graph* graph,
                    std::vector<NodePtr>* out);

}  // namespace tendril::softgpu

// SPDX-License-Identifier: Apache-2.0
// See conditional.h.

#include "softgpu/driver/graph/conditional.h"

#include "softgpu/driver/config.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph/graph_params.h"

namespace tendril::softgpu {
namespace {

// A base for handles that cannot be mistaken for addresses.
constexpr uint64_t kFirstHandle = 0x0cd0'0000'0000'0000;

struct Conditions {
  std::mutex lock;
  uint64_t next = kFirstHandle;
  std::map<uint64_t, std::weak_ptr<Condition>> all;
};

Conditions& conditions() {
  static auto& only = *new Conditions;
  return only;
}

std::shared_ptr<Condition> find(uint64_t handle) {
  std::lock_guard guard(conditions().lock);
  auto found = conditions().all.find(handle);
  return found == conditions().all.end() ? nullptr : found->second.lock();
}

void run_graph(Context& context, const Graph& graph) {
  std::vector<WorkPtr> works;
  {
    std::lock_guard guard(capture_lock());
    std::vector<NodePtr> order;
    graph.sorted(&order);
    for (const NodePtr& node : order) works.push_back(node->work);
  }
  for (const WorkPtr& work : works) run_work(context, *work);
}

bool size_fits(CUgraphConditionalNodeType kind, unsigned size) {
  switch (kind) {
    case CU_GRAPH_COND_TYPE_IF:
      return size == 1 || size == 2;  // with or without an else
    case CU_GRAPH_COND_TYPE_WHILE:
      return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
      return size >= 1 && size <= 4096;
  }
  return false;
}

}  // namespace

void set_condition(uint64_t handle, unsigned value) {
  if (auto condition = find(handle)) condition->value.store(value);
}

ConditionalWork::~ConditionalWork() {
  for (const GraphPtr& body : bodies) graphs().remove(body->handle);
}

CUresult ConditionalWork::run(Context& context) {
  const unsigned value = condition->value.load();
  switch (kind) {
    case CU_GRAPH_COND_TYPE_IF:
      if (value != 0)
        run_graph(context, *bodies[0]);
      else if (bodies.size() == 2)
        run_graph(context, *bodies[1]);
      break;
    case CU_GRAPH_COND_TYPE_WHILE:
      for (StepBound bound;
           condition->value.load() != 0 && !*context.cancel() && context.error() == CUDA_SUCCESS;) {
        if (!bound.again()) return CUDA_ERROR_LAUNCH_TIMEOUT;
        run_graph(context, *bodies[0]);
      }
      break;
    case CU_GRAPH_COND_TYPE_SWITCH:
      if (value < bodies.size()) run_graph(context, *bodies[value]);
      break;
  }
  return CUDA_SUCCESS;
}

WorkPtr ConditionalWork::clone() const {
  auto copy = std::make_shared<ConditionalWork>();
  copy->condition = condition;
  copy->kind = kind;
  for (const GraphPtr& body : bodies) {
    copy->bodies.push_back(body->clone());
    copy->bodies.back()->owned = true;
    copy->handles.push_back(copy->bodies.back()->handle);
  }
  return copy;
}

CUresult conditional_work(CUDA_CONDITIONAL_NODE_PARAMS* params, WorkPtr* out) {
  auto condition = find(params->handle);
  if (!condition || !size_fits(params->type, params->size)) return CUDA_ERROR_INVALID_VALUE;
  if (condition->has_node.exchange(true)) return CUDA_ERROR_INVALID_VALUE;
  auto work = std::make_shared<ConditionalWork>();
  work->condition = std::move(condition);
  work->kind = params->type;
  for (unsigned i = 0; i < params->size; ++i) {
    work->bodies.push_back(make_graph());
    work->bodies.back()->owned = true;
    work->handles.push_back(work->bodies.back()->handle);
  }
  params->phGraph_out = work->handles.data();
  *out = std::move(work);
  return CUDA_SUCCESS;
}

void start_conditions(const std::vector<std::shared_ptr<Condition>>& list) {
  for (const auto& condition : list)
    if (condition->assign_initial) condition->value.store(condition->initial);
}

std::vector<std::shared_ptr<Condition>> conditions_of(const Graph& graph, bool* unused) {
  std::vector<std::shared_ptr<Condition>> list;
  for (const auto& condition : graph.conditions) {
    list.push_back(condition);
    *unused |= !condition->has_node.load();
  }
  for (const NodePtr& node : graph.nodes) {
    auto* work = dynamic_cast<ConditionalWork*>(node->work.get());
    for (size_t i = 0; work != nullptr && i < work->bodies.size(); ++i)
      for (auto& inner : conditions_of(*work->bodies[i], unused)) list.push_back(std::move(inner));
  }
  return list;
}

SOFT(cuGraphConditionalHandleCreate)
(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph, CUcontext ctx,
 unsigned int defaultLaunchValue, unsigned int flags) {
  GraphPtr graph = graphs().get(hGraph);
  if (!graph || pHandle_out == nullptr || (flags & ~unsigned{CU_GRAPH_COND_ASSIGN_DEFAULT}) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (ctx != nullptr && !contexts().get(ctx)) return CUDA_ERROR_INVALID_CONTEXT;
  auto made = std::make_shared<Condition>();
  made->initial = defaultLaunchValue;
  made->assign_initial = (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0;
  {
    std::lock_guard guard(conditions().lock);
    made->handle = conditions().next++;
    conditions().all[made->handle] = made;
  }
  std::lock_guard guard(capture_lock());
  graph->conditions.push_back(made);
  *pHandle_out = made->handle;
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu

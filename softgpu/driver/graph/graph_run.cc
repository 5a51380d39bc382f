// SPDX-License-Identifier: Apache-2.0
// See graph_run.h.

#include "softgpu/driver/graph/graph_run.h"

#include <utility>

#include "softgpu/driver/config.h"
#include "softgpu/driver/graph/conditional.h"

namespace tendril::softgpu {
namespace {

// The device runtime's streams into which a kernel may launch a graph.
constexpr uint64_t kTailLaunch = 0x0100'0000'0000'0000;
constexpr uint64_t kFireAndForget = 0x0200'0000'0000'0000;
constexpr uint64_t kFireAndForgetAsSibling = 0x0300'0000'0000'0000;

// Of the runtime, which kernels see.
constexpr int kSuccess = 0, kInvalidValue = 1, kPendingCountExceeded = 69;

// CUDA's limits for one launch: graphs beside it, and graphs at its tail. Graphs that launch each
// other also end at the first limit.
constexpr size_t kBesideMax = 120, kTailMax = 255;

thread_local GraphRun* t_current = nullptr;

}  // namespace

GraphLaunch snapshot_of(const GraphExec& exec) {
  GraphLaunch launch;
  std::lock_guard guard(capture_lock());
  for (const GraphExec::Item& item : exec.items)
    if (item.enabled) launch.works.push_back(item.work);
  launch.conditions = exec.conditions;
  launch.objects = std::make_shared<UserReferences>(exec.user_objects);
  return launch;
}

GraphRun* GraphRun::current() { return t_current; }

int GraphRun::launch(uint64_t handle, uint64_t stream) {
  auto exec = graph_execs().get(reinterpret_cast<CUgraphExec>(handle));
  if (!exec || (exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) == 0) return kNoSuchGraph;
  if (!exec->uploaded) return kInvalidValue;
  const bool tail = stream == kTailLaunch;
  if (!tail && stream != kFireAndForget && stream != kFireAndForgetAsSibling) return kInvalidValue;
  GraphLaunch launch = snapshot_of(*exec);
  std::lock_guard guard(lock_);
  std::deque<GraphLaunch>& list = tail ? tail_ : beside_;
  if (list.size() >= (tail ? kTailMax : kBesideMax - depth_)) return kPendingCountExceeded;
  list.push_back(std::move(launch));
  return kSuccess;
}

std::deque<GraphLaunch> GraphRun::take(std::deque<GraphLaunch>& list) {
  std::lock_guard guard(lock_);
  return std::exchange(list, {});
}

void GraphRun::run_works(Context& context, const GraphLaunch& launch) {
  start_conditions(launch.conditions);
  for (const WorkPtr& work : launch.works) {
    GraphRun* const outer = std::exchange(t_current, this);
    run_work(context, *work);
    t_current = outer;
    for (const GraphLaunch& other : take(beside_)) run(context, other, depth_ + 1);
  }
}

void GraphRun::run(Context& context, const GraphLaunch& launch, unsigned depth) {
  std::deque<GraphLaunch> waiting = {launch};
  StepBound bound;
  while (!waiting.empty() && context.error() == CUDA_SUCCESS && !context.cancelled()) {
    if (!bound.again()) return context.fail(CUDA_ERROR_LAUNCH_TIMEOUT);
    const GraphLaunch next = std::move(waiting.front());
    waiting.pop_front();
    GraphRun one(depth);
    one.run_works(context, next);
    // What the tail of a graph launches at its own tail comes before what was already waiting.
    std::deque<GraphLaunch> tail = one.take(one.tail_);
    waiting.insert(waiting.begin(), tail.begin(), tail.end());
  }
}

}  // namespace tendril::softgpu

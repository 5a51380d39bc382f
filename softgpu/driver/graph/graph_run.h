// SPDX-License-Identifier: Apache-2.0
// One launch of an instantiated graph while it runs. A pool thread runs its works one after the
// other, and then the graphs that its kernels launch (cudaGraphLaunch of the device runtime).
// Graphs beside it run as soon as the kernel is over; graphs at its tail run after everything else.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "softgpu/driver/stream/work.h"

namespace tendril::softgpu {

struct Condition;
struct GraphExec;

// What a launch does: the instance as it was at the call of the launch.
struct GraphLaunch {
  std::vector<WorkPtr> works;
  std::vector<std::shared_ptr<Condition>> conditions;
  std::shared_ptr<const void> objects;  // the program's; kept until the launch is over
};
GraphLaunch snapshot_of(const GraphExec& exec);

class GraphRun {
 public:
  // Runs the launch and all that its kernels launch.
  static void run(Context& context, const GraphLaunch& launch, unsigned depth = 0);
  // The run on the calling thread; null outside of graphs.
  static GraphRun* current();

  // The device function: a cudaError_t for the kernel, or kNoSuchGraph. Engine threads.
  int launch(uint64_t exec, uint64_t stream);
  static constexpr int kNoSuchGraph = -1;

 private:
  explicit GraphRun(unsigned depth) : depth_(depth) {}
  void run_works(Context& context, const GraphLaunch& launch);
  std::deque<GraphLaunch> take(std::deque<GraphLaunch>& list);

  std::mutex lock_;
  std::deque<GraphLaunch> beside_, tail_;
  const unsigned depth_;
};

}  // namespace tendril::softgpu

// SPDX-License-Identifier: Apache-2.0
// What a GPU's driver takes for an instantiated graph. Measured on an H100 and kept in
// docs/decisions/0020-what-a-driver-takes.md: a part for each node, for the parameters of kernels,
// and for each branch, that is for each node that may run beside others. The worker charges by this
// model, and the software GPU takes memory by it. Arithmetic only.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace tendril::base {

struct GraphCost {
  uint64_t nodes = 0, branches = 0, parameter_bytes = 0;
  uint64_t kernels = 0, largest_bytes = 0;  // of the parameters of one

  void add_kernel(uint64_t bytes) {
    ++kernels;
    parameter_bytes += bytes;
    if (largest_bytes < bytes) largest_bytes = bytes;
  }
  void add(const GraphCost& other) {
    nodes += other.nodes;
    branches += other.branches;
    parameter_bytes += other.parameter_bytes;
    kernels += other.kernels;
    if (largest_bytes < other.largest_bytes) largest_bytes = other.largest_bytes;
  }
  // Of the GPU's memory.
  uint64_t bytes() const { return bytes_with(parameter_bytes); }
  // The same once the instance's kernels have been changed: as if each had had the largest
  // parameters. What a driver keeps for a kernel that was replaced is not known.
  uint64_t bytes_once_changed() const { return bytes_with(kernels * largest_bytes); }

 private:
  uint64_t bytes_with(uint64_t of_parameters) const {
    constexpr uint64_t kNodeBytes = 2458, kBranchBytes = 110u << 10;
    return nodes * kNodeBytes + of_parameters + of_parameters / 2 + branches * kBranchBytes;
  }
};

// How many branches a graph needs whose nodes are numbered from 0. A node goes on in the branch of
// one that it waits for, unless another node has. It takes over a branch that has ended only if all
// of that branch must end sooner. `edges`: pairs of the earlier and the later node. Nodes in a
// cycle count as nothing.
uint64_t graph_branches(uint64_t nodes, const std::vector<std::pair<uint32_t, uint32_t>>& edges);

}  // namespace tendril::base

// SPDX-License-Identifier: Apache-2.0
// GPUs' memory that network cards reach by themselves (GPUDirect), and processors do not. CUDA and
// cards know it by the same addresses, which no host memory of this process has. worker/cuda says
// what there is; rdma/ implements it; Channel::send_from_device and receive_to_device use it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::transport {

struct DeviceRange {
  uint64_t address = 0, bytes = 0;
  // A dma-buf in which the range begins at `offset`. The caller's; it may be closed afterwards. -1:
  // none, so the kernel must find the memory by its address (the module nvidia-peermem).
  int descriptor = -1;
  uint64_t offset = 0;
};

// The longest time for which a card may be tried.
inline constexpr int kCardTrialMs = 200;

// A card's port that carries data of a session. Any thread.
class CardPort {
 public:
  virtual ~CardPort() = default;
  virtual std::string name() const = 0;  // "mlx5_0:1"
  // From now on the card reads and writes the range, and the peer may read it. kUnsupported: it
  // cannot, or the session has left it. Waits for the kernel.
  virtual base::Status add_device(const DeviceRange& range) = 0;
  // Before the memory goes: of the range that begins there. Waits for what is on the way.
  virtual void remove_device(uint64_t address) = 0;
  // The card alone moves bytes from one place to another, over its port. Both lie in memory that it
  // knows. Blocks, at most kCardTrialMs. The time it took, in ns. After an error nothing moves.
  virtual base::Result<uint64_t> move(uint64_t from, uint64_t to, uint64_t bytes) = 0;
};

}  // namespace tendril::transport

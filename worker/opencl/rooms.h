// SPDX-License-Identifier: Apache-2.0
// Memory of this process that copies pass through, counted against the session's part of the host's
// memory. Rooms of large copies are kept for the next one, because new pages cost as much time as a
// copy does. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "worker/core/host_use.h"

namespace tendril::worker::opencl {

// What goes to the client in parts of this size has kept rooms.
constexpr uint64_t kPartBytes = 4u << 20;

using Room = std::shared_ptr<uint8_t[]>;

class Rooms {
 public:
  explicit Rooms(HostUse* host) : host_(*host) {}
  // With a few bytes more, for padding. Null: there is no memory. It must end before this object.
  Room take(uint64_t bytes);

 private:
  using Memory = std::unique_ptr<uint8_t[]>;
  Memory find_kept();
  bool keep(Memory* memory);
  bool charge(uint64_t bytes);

  HostUse& host_;
  std::mutex mutex_;
  std::vector<Memory> kept_;  // guarded by mutex_; each has kPartBytes, and is charged
};

}  // namespace tendril::worker::opencl

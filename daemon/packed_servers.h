// SPDX-License-Identifier: Apache-2.0
// The vendor's multi-process service (MPS), for slices in packed mode: tenants that trust each
// other run on a GPU at the same time, each held to a part of its processors, instead of one after
// the other. A server takes kSeats clients at most, so more are started as they are needed; each
// has a folder of its own, belongs to the daemon and ends with it. Nothing of the card's settings
// is changed. Called by Sessions; any thread but the supervisor's, `take` blocks for as long as a
// server needs to start.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/result.h"
#include "daemon/child_process.h"
#include "daemon/event_loop.h"

namespace tendril::daemon {

struct PackedOptions {
  std::string control = "nvidia-cuda-mps-control";  // found by PATH, or a path
  uint32_t user = 0;  // whom the servers and their clients run as; 0: as the daemon does
  int start_max_ms = 10'000;
  int idle_max_ms =
      10'000;  // a server that nobody uses holds memory of the GPU, so it ends after this
};

// What the service is asked for, in the whole per cents that it takes: the least for which it gives
// so many of a GPU's processors. It gives pairs, rounded down: 25 % of 132 are 32 of them. Where
// `wanted` is 0, as their number is not known or odd: the share, rounded up.
uint32_t packed_percent(uint32_t wanted, uint32_t processors, uint32_t share_millionths);

class PackedServers {
 public:
  // Measured on an H200 with driver 580.159.04: of 50 clients 48 were taken.
  static constexpr uint32_t kSeats = 48;

  struct Seat {
    uint32_t server = 0;
    std::string folder;  // a client's CUDA_MPS_PIPE_DIRECTORY
  };

  // `loop`: where children are started, as the kernel ends them with the thread that did.
  PackedServers(EventLoop* loop, PackedOptions options)
      : loop_(loop), options_(std::move(options)) {}
  ~PackedServers() { stop(); }

  base::Result<Seat> take();
  // Does not block.
  void give_back(uint32_t server);
  void stop();

 private:
  struct Server {
    std::string folder;
    Child child;
    uint32_t taken = 0;
    uint64_t idle_since_ns = 0;
  };

  base::Result<std::unique_ptr<Server>> start() const;
  bool lives(const Server& server) const;
  void end(Server* server) const;
  void tidy();

  EventLoop* const loop_;
  const PackedOptions options_;
  std::mutex mutex_;
  std::map<uint32_t, std::unique_ptr<Server>> servers_;  // guarded by mutex_
  uint32_t next_ = 1;                                    // guarded by mutex_
  bool stopping_ = false;                                // guarded by mutex_
  std::condition_variable changed_;
  std::thread
      tidier_;  // ends idle servers, since that takes seconds; runs from the first `take` on
};

}  // namespace tendril::daemon

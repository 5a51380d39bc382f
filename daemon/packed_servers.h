// SPDX-License-Identifier: Apache-2.0
// The vendor's multi-process service (MPS), for slices in packed mode. Tenants that trust each
// other run on a GPU at the same time, instead of in turns. Each is limited to a part of its
// processors.
//
// One server takes at most kSeats clients, so more servers are started when needed. Each has a
// folder of its own, belongs to the daemon and ends with it. None of the card's settings is
// changed. Called by Sessions, from any thread except the supervisor's. `take` blocks while a
// server starts.
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
  uint32_t user = 0;  // the user of the servers and their clients; 0: the daemon's
  int start_max_ms = 10'000;
  int idle_max_ms =
      10'000;  // an unused server ends after this time, because it holds memory of the GPU
};

// The percentage to ask the service for. It takes whole per cents and gives pairs of processors,
// rounded down: 25 % of 132 are 32. The result is the least percentage that gives `wanted`
// processors. If `wanted` is 0, because the number is unknown or odd, it is the share, rounded up.
uint32_t packed_percent(uint32_t wanted, uint32_t processors, uint32_t share_millionths);

class PackedServers {
 public:
  // Measured on an H200 with driver 580.159.04: the service took 48 of 50 clients.
  static constexpr uint32_t kSeats = 48;

  struct Seat {
    uint32_t server = 0;
    std::string folder;  // a client's CUDA_MPS_PIPE_DIRECTORY
  };

  // `loop`: starts the children, because the kernel kills a child when the thread that started it
  // ends.
  PackedServers(EventLoop* loop, PackedOptions options)
      : loop_(loop), options_(std::move(options)) {}
  ~PackedServers() { stop(); }

  // Whether this server has the control program at all. Looks for it each time, so that it may be
  // installed later.
  base::Status available() const;
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
      tidier_;  // ends idle servers, because that takes seconds; runs from the first `take` on
};

}  // namespace tendril::daemon

// SPDX-License-Identifier: Apache-2.0
// Host functions. The stream stops in a function of ours on the driver's thread. That function asks
// the client to run the program's function, and sleeps until the client has run it. The executor
// may be in a driver call that waits for that function; then the sleeper itself looks for the
// answer in the lane (Service::attend). When the session ends, all sleepers wake.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <vector>

#include "gpu/cuda/driver.h"
#include "session/lane/service.h"

namespace tendril::worker::cuda {

class Callbacks {
 public:
  // What the client must see before its function runs: finished copies into its memory, among them
  // those of `stream` up to number `last`, if there is a number.
  using Before = std::function<void(CUstream stream, uint64_t last)>;
  Callbacks(session::Service* service, Before before)
      : service_(service), before_(std::move(before)) {}
  // `last`: of the copies to the client that have been enqueued so far (Waiters::last_delivery).
  CUresult launch(gpu::Driver* driver, CUstream stream, uint64_t token, uint64_t last);
  // As part of a graph that is captured.
  CUresult capture(gpu::Driver* driver, CUstream stream, uint64_t token);
  void done(uint64_t invocation);
  void end();
  // What the driver calls, also for host nodes of graphs: user data is a Request made by `request`.
  struct Request {
    Callbacks* owner;
    uint64_t token;
    uint64_t object = 0;  // of a destructor: the user object's id
    CUstream stream = nullptr;
    uint64_t last = 0;
  };
  static void run(void* request);
  // The destructor of a user object: tells the client and does not wait. Any thread, the executor's
  // among them.
  static void destroyed(void* request);
  // A request that graphs may keep: lives as long as the worker.
  Request* lasting(uint64_t token) { return new Request{this, token}; }
  // Ids of user objects that the driver has destroyed since the last call. Executor thread.
  std::vector<uint64_t> take_destroyed();
  bool any_destroyed() const { return any_destroyed_.load(std::memory_order_acquire); }

 private:
  void ask_and_sleep(const Request& request);
  session::Service* service_;
  Before before_;
  uint64_t next_ = 1;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<uint64_t> waiting_;
  std::vector<uint64_t> destroyed_;
  std::atomic<bool> any_destroyed_{false};
  bool ended_ = false;
};

}  // namespace tendril::worker::cuda

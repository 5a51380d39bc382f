// SPDX-License-Identifier: Apache-2.0
// Host functions: the stream stops in a function of ours on the driver's thread, which asks the client to run the program's function and
// sleeps until the client says it has. When the session ends everyone is woken.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <functional>
#include <set>

#include "gpu/driver.h"
#include "session/service.h"

namespace tendril::worker::cuda {

class Callbacks {
 public:
  // `before`: what the client must see before its function runs (finished copies into its memory).
  Callbacks(session::Service* service, std::function<void()> before) : service_(service), before_(std::move(before)) {}
  CUresult launch(gpu::Driver* driver, CUstream stream, uint64_t token, bool persistent);
  void done(uint64_t invocation);
  void end();
  // What the driver calls, also for host nodes of graphs: user data is a Request made by `request`.
  struct Request {
    Callbacks* owner;
    uint64_t token;
  };
  static void run(void* request);

 private:
  void ask_and_sleep(uint64_t token);
  session::Service* service_;
  std::function<void()> before_;
  uint64_t next_ = 1;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed_ = PTHREAD_COND_INITIALIZER;
  std::set<uint64_t> waiting_;
  bool ended_ = false;
};

}  // namespace tendril::worker::cuda

// SPDX-License-Identifier: Apache-2.0
// Host functions: the stream stops in a function of ours on the driver's thread, which asks the client to run the program's function and
// sleeps until the client says it has. When the session ends everyone is woken.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <set>

#include "gpu/driver.h"
#include "session/service.h"

namespace tendril::worker::cuda {

class Callbacks {
 public:
  explicit Callbacks(session::Service* service) : service_(service) {}
  CUresult launch(gpu::Driver* driver, CUstream stream, uint64_t token);
  void done(uint64_t token);
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
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed_ = PTHREAD_COND_INITIALIZER;
  std::set<uint64_t> waiting_;
  bool ended_ = false;
};

}  // namespace tendril::worker::cuda

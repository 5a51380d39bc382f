// SPDX-License-Identifier: Apache-2.0
// Device printf: the driver writes it to this process' standard output when something is waited for. That output is a memory file here,
// and what is new in it goes to the client before the reply of the wait.
#pragma once

#include <pthread.h>

#include <cstdint>

#include "session/service.h"

namespace tendril::worker::cuda {

class Output {
 public:
  // Redirects standard output of the process. Harmless if it fails: text then goes where the process' output goes.
  Output();
  void send(session::Service* service);

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  int file_ = -1;
  int64_t sent_ = 0;
};

}  // namespace tendril::worker::cuda

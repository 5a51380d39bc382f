// SPDX-License-Identifier: Apache-2.0
// A thread of ours inside somebody else's process. It blocks every signal, so that the program's
// handlers run on the program's threads. Plain pthread, because starting one must be able to fail
// without throwing.
#pragma once

#include <pthread.h>

namespace tendril::base {

class Thread {
 public:
  using Main = void (*)(void* argument);

  Thread() = default;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread() { join(); }

  // False if the system has no thread to give. `name`: at most 15 characters. The object must
  // outlive the thread.
  bool start(const char* name, Main main, void* argument);
  void join();
  // For a forked child, where the thread does not exist.
  void forget() { running_ = false; }
  bool running() const { return running_; }

 private:
  static void* enter(void* self);
  pthread_t thread_{};
  bool running_ = false;
  char name_[16] = {};
  Main main_ = nullptr;
  void* argument_ = nullptr;
};

}  // namespace tendril::base

// SPDX-License-Identifier: Apache-2.0
// What the driver writes for kernels when something is waited for: printf to standard output,
// assertions to standard error. Both are memory files here. New text goes to the client before the
// reply of the wait. Standard error also has the worker's own messages, so it goes to the daemon's
// log as well. Waits are many and texts few: a look at a mapped window of the file, without a
// system call, shows that there is no new text.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <mutex>

#include "session/lane/service.h"

namespace tendril::worker {

class Output {
 public:
  // Redirects both outputs of the process. Harmless if it fails: text then goes where the process'
  // output goes.
  Output();
  ~Output();
  void send(session::Service* service);
  // Where the worker's own messages go that the client need not see: the daemon's log.
  int log_descriptor() const { return error_.original >= 0 ? error_.original : STDERR_FILENO; }

 private:
  struct Stream {
    int file = -1;                  // the memory file
    int original = -1;              // where the process' output went before; -1: nobody reads it
    int64_t sent = 0, dropped = 0;  // bytes from the beginning
    uint8_t* window = nullptr;  // of two pages, the first of which has the place of the next text
    int64_t window_at = 0;
  };
  static void redirect(Stream* stream, int descriptor, bool keep_original);
  static void watch(Stream* stream);
  static bool is_new(const Stream& stream);
  static void drop_sent(Stream* stream);
  static void send_stream(Stream* stream, char which, session::Service* service);
  std::mutex mutex_;
  Stream out_, error_;
};

}  // namespace tendril::worker

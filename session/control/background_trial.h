// SPDX-License-Identifier: Apache-2.0
// Tries a fabric while a session runs on its connections, and moves the session's lines to it where
// it is the better one. Attaching does not wait for it. For attach.cc.
#pragma once

#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>

#include "base/lock.h"
#include "base/thread.h"
#include "session/choice/candidate.h"
#include "session/control/rejoin.h"

namespace tendril::session {

class BackgroundTrial {
 public:
  struct Task {
    Candidate candidate;
    std::string blob;  // the worker's answer
    Endpoint endpoint;
    ConnectOptions options;
    Membership membership;
    uint16_t bulk_channels = 0;
  };
  // Starts at once, on a thread of its own.
  explicit BackgroundTrial(Task task);
  // Waits for its end, which comes within some seconds.
  ~BackgroundTrial();
  // What came of it, for people; empty: it is not over. timeout_ms < 0: for ever.
  std::string wait(int timeout_ms);

 private:
  void run();
  // What was chosen, in words; or why there is nothing to choose.
  base::Result<std::string> try_out();
  base::Result<std::vector<base::Fd>> connect() const;

  Task task_;
  const pid_t owner_ = getpid();
  base::Thread thread_;
  base::Event over_;
  base::Lock lock_;
  std::string outcome_;  // guarded by lock_
};

}  // namespace tendril::session

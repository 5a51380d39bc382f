// SPDX-License-Identifier: Apache-2.0
// The worker's end of its socket to the daemon: says that it is ready, collects the session's
// channels and the accounting page, and then listens for the order to stop on a thread of its own.
// See wire/assignment.h for the messages.
#pragma once

#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "session/service.h"
#include "transport/transport.h"
#include "wire/assignment.h"

namespace tendril::worker {

struct SessionParts {
  wire::Assignment assignment = {};
  wire::AccountingPage* accounting = nullptr;  // mapped for the life of the process
  std::unique_ptr<transport::Channel> command;
  std::vector<std::unique_ptr<transport::Channel>> bulk;  // by channel number
};

class DaemonLink {
 public:
  explicit DaemonLink(int socket) : socket_(socket) {}

  base::Status say_ready();
  // Blocks until the session is complete. kClosed: the daemon needs this worker no more.
  base::Result<SessionParts> receive_session();
  // Ends `service` when the daemon says so or goes. The thread lives as long as the process.
  void watch_for_stop(session::Service* service);

 private:
  const int socket_;
};

}  // namespace tendril::worker

// SPDX-License-Identifier: Apache-2.0
// A process that serves in the foreground: it ends on SIGINT and SIGTERM, and reads its files again
// on SIGHUP. Make one before the first thread starts, so that every thread blocks these signals.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace tendril::cli {

class Foreground {
 public:
  // What base/ logs goes to the process' log from now on.
  Foreground(bool verbose, bool quiet);
  ~Foreground();
  // A signalfd: becomes readable when the process is to end.
  int stop() const { return stop_.get(); }
  // Calls `reload` on a thread of its own at each SIGHUP, until end_reloads.
  void on_reload(std::function<void()> reload);
  // `reload` is not called any more. To be called before what it uses goes.
  void end_reloads();

 private:
  base::Fd stop_, reload_, over_;
  std::thread reloader_;
};

// Addresses, for the log: "127.0.0.1:7433, [::1]:7433".
std::string joined(const std::vector<std::string>& addresses);

}  // namespace tendril::cli

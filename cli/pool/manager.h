// SPDX-License-Identifier: Apache-2.0
// What serve and pool serve tell the service manager (systemd's sd_notify protocol). Without
// NOTIFY_SOCKET nothing happens.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "base/fd.h"

namespace tendril::cli {

class Manager {
 public:
  // Reads NOTIFY_SOCKET and WATCHDOG_USEC, and removes them from the environment, so that no child
  // speaks in this process' name.
  Manager();
  ~Manager() { end(); }

  // It serves now. `status`: one line for people. `alive` is asked from a thread of its own, twice
  // in each interval of the watchdog; if it says no, the manager is not told, and ends the process
  // in the end.
  void ready(const std::string& status, std::function<bool()> alive);
  void reloading() const;
  void reloaded() const;
  // It ends. `alive` is asked no more.
  void stopping();

 private:
  void tell(const std::string& state) const;
  void end();

  std::string socket_;
  int interval_ms_ = 0;  // 0: no watchdog
  base::Fd over_;
  std::thread watchdog_;
};

}  // namespace tendril::cli

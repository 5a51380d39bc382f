// SPDX-License-Identifier: Apache-2.0
// The server of this machine, for `tendril run --local`: the one that serves already, or one that
// is started for the run and ends with it.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.h"
#include "session/control/attach.h"

namespace tendril::cli {

class LocalServer {
 public:
  LocalServer() = default;
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;
  // Ends the server if this started it.
  ~LocalServer();
  // TENDRIL_LOCAL_SERVER, or the default port of this machine: where a server is that was not
  // started for a run, if there is one.
  static base::Result<session::Endpoint> standing();
  // The same. If nobody answers at the default, or the variable is "new", it starts a server and
  // waits until that serves.
  base::Result<session::Endpoint> find(const session::ConnectOptions& connect);

 private:
  base::Result<session::Endpoint> start();

  pid_t process_ = -1;
  std::string folder_;   // of its log and its port
  std::string started_;  // where it serves
};

}  // namespace tendril::cli

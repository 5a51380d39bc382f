// SPDX-License-Identifier: Apache-2.0
// Asks the chosen servers (config/servers.h says which), all at once. Every command that talks to a
// server uses it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/commands.h"
#include "session/control/attach.h"
#include "view/server.h"

namespace tendril::cli {

struct ServerList {
  std::vector<session::Endpoint> endpoints;
  std::string source;  // as in config::ServerList
};
// The servers that config/servers.h finds, as endpoints. If an endpoint cannot be parsed, the error
// names its file and line.
base::Result<ServerList> resolve_servers(const std::vector<std::string>& asked);

// The servers of a command, and how to connect to them.
struct Reach {
  ServerList servers;
  session::ConnectOptions connect;
};
base::Result<Reach> reach(const CommonOptions& options);
// The same for commands that look at leases or change them. If nobody named a server, this
// machine's is asked by its administrators' socket, if this user may use that.
base::Result<Reach> reach_to_administer(const CommonOptions& options);

using view::ServerView;
// Asks all servers at once. Of a pool whoever schedules speaks for all of its addresses.
std::vector<ServerView> ask_servers(const std::vector<session::Endpoint>& endpoints,
                                    const session::ConnectOptions& options);
// Says on stderr why each silent server did not answer.
void complain_of_silent(const std::vector<ServerView>& views);
bool all_answer(const std::vector<ServerView>& views);
bool any_answers(const std::vector<ServerView>& views);

// For what concerns one lease: the only server that was named, or whoever schedules the pool.
base::Result<std::unique_ptr<session::Control>> connect_to_one(const Reach& reach);

// For who holds leases for long: renews this user's certificate in time, and shows the servers each
// newer one, so that the leases outlive the certificate that they were taken with.
class Standing {
 public:
  Standing(const CommonOptions& options, std::vector<session::Endpoint> servers);
  // How long poll may wait until `look` is called again. -1: it need not be.
  int wait_ms() const;
  // If the time has come. May wait for servers, some seconds.
  void look();

 private:
  void show();

  const CommonOptions options_;
  const std::vector<session::Endpoint> servers_;
  std::string shown_;                       // the certificates that the servers know
  uint64_t look_ns_ = 0, next_try_ns_ = 0;  // 0: never; at once
};

// Who sends a request. `program`: as the server's list should show it.
wire::ClientInfo client_info(const std::string& program);

}  // namespace tendril::cli

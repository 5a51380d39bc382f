// SPDX-License-Identifier: Apache-2.0
// Asking the servers that are meant (config/servers.h says which), all at once. Used by every
// command that talks to a server.
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
  std::string source;  // as config::ServerList has it
};
// The servers that config/servers.h finds, as endpoints. An endpoint that cannot be read is an
// error that names its file and line.
base::Result<ServerList> resolve_servers(const std::vector<std::string>& asked);

// Which servers a command means and how it connects to them.
struct Reach {
  ServerList servers;
  session::ConnectOptions connect;
};
base::Result<Reach> reach(const CommonOptions& options);

using view::ServerView;
// Asks all of them at once.
std::vector<ServerView> ask_servers(const std::vector<session::Endpoint>& endpoints,
                                    const session::ConnectOptions& options);
// Says on stderr of each that did not answer why.
void complain_of_silent(const std::vector<ServerView>& views);
bool all_answer(const std::vector<ServerView>& views);
bool any_answers(const std::vector<ServerView>& views);

// For requests: who this is. `program` as the server's list should show it.
wire::ClientInfo client_info(const std::string& program);

}  // namespace tendril::cli

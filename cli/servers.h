// SPDX-License-Identifier: Apache-2.0
// Which servers are meant and how to reach them: --server, else TENDRIL_SERVERS, else servers.conf,
// else this machine. Used by every command that talks to a server.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/commands.h"
#include "session/control/attach.h"

namespace tendril::cli {

// One endpoint a line, '#' starts a comment; bad lines are errors with their number.
base::Result<std::vector<session::Endpoint>> parse_servers_conf(const std::string& text,
                                                                const std::string& path);

struct ServerList {
  std::vector<session::Endpoint> endpoints;
  std::string source;  // "--server", "TENDRIL_SERVERS", the path of a file, "default"
};
base::Result<ServerList> resolve_servers(const std::vector<std::string>& asked);

// Which servers a command means and how it connects to them.
struct Reach {
  ServerList servers;
  session::ConnectOptions connect;
};
base::Result<Reach> reach(const CommonOptions& options);

// One server's answer to a listing.
struct ServerView {
  session::Endpoint endpoint;
  base::Status status;
  wire::ListReply list;
};
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

// SPDX-License-Identifier: Apache-2.0
// Which servers are meant. The command line and the client libraries ask here, so both find the
// same ones. The first source that names a server counts:
//
//   1. what the caller was given (--server)
//   2. TENDRIL_SERVERS, "<endpoint>,<endpoint>,..."
//   3. the file TENDRIL_SERVERS_CONF; without that variable, tendril/servers.conf in
//      XDG_CONFIG_HOME or else ~/.config, then /etc/tendril/servers.conf
//   4. this machine, 127.0.0.1
//
// A file has one endpoint per line; '#' begins a comment. Any thread; opens no connection.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::config {

struct Server {
  std::string endpoint;      // as written; session::parse_endpoint reads it
  std::string where;         // "<path>, line 3" when a file named it, else empty
  uint64_t lease_id = 0;     // 0: no lease yet, ask for one
  std::string lease_secret;  // raw bytes; never logged
};

struct ServerList {
  std::vector<Server> servers;  // at least one
  std::string source;           // "--server", "TENDRIL_SERVERS", the path of a file, "default"

  // Nobody named a server, so this machine is meant.
  bool is_default() const { return source == "default"; }
};

// kNotFound: TENDRIL_SERVERS_CONF names a file that is not there or names no server.
base::Result<ServerList> find_servers(const std::vector<std::string>& asked = {});

// The servers that the text of a servers.conf names. `path` is for messages.
std::vector<Server> servers_in_file(const std::string& text, const std::string& path);

// `why`, the reason that no server could be used. Adds what to do if nobody named a server.
base::Status with_hint(const ServerList& list, const base::Status& why);

}  // namespace tendril::config

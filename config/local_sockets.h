// SPDX-License-Identifier: Apache-2.0
// Where a server's unix sockets for its own host are. The daemon makes them there and the command
// line looks for them there. They depend on the environment alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tendril::config {

inline constexpr char kAdministratorsSocket[] = "administrators";  // for the server's user and root
inline constexpr char kUsersSocket[] = "users";                    // for everybody on this host

// The folders of all servers of root, and of all servers of another user: XDG_RUNTIME_DIR/tendril.
// Empty if that user has no such folder.
std::string sockets_of_root();
std::string sockets_of_user();

// Where the administrators' socket of a server with this port may be, this user's own server first.
std::vector<std::string> administrators_sockets(uint16_t port);

}  // namespace tendril::config

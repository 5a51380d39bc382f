// SPDX-License-Identifier: Apache-2.0
// The folders that a daemon makes for itself: of its unix sockets, and of its audit log. Called at
// the start.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace tendril::reception {

// Makes the folder for the unix sockets of the server with this port, and removes those of servers
// that are gone. `asked`: "auto", "off" or a folder. Empty: there is none. Only this user can write
// into the folder.
base::Result<std::string> make_socket_folder(const std::string& asked, uint16_t port);

// Where the audit log is unless a file was named. Makes the folder. Empty: nowhere.
std::string default_audit_file();

// Where a process keeps what must outlive it. Makes the folder. Empty: nowhere.
std::string default_state_folder();

}  // namespace tendril::reception

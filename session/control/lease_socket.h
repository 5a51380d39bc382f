// SPDX-License-Identifier: Apache-2.0
// How the processes of one program find each other's lease. Who holds a pool's lease for a process
// (`tendril lease hold`) listens on an abstract unix socket that is named after that process. A
// process that it starts looks there before it asks the pool itself. Linux only; nothing is left in
// the file system.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"

namespace tendril::session {

// "@tendril-lease-UID-PID-START" (the first byte is 0 in the address). Empty: there is no such
// process.
std::string lease_socket_name(pid_t process);

// Listens for the processes that `process` starts. Invalid: somebody does, or it cannot be done.
base::Fd listen_for_lease(pid_t process);

// Connections to those who hold leases for this process and for those that started it, the nearest
// first. Only processes of this user, or root's, count.
std::vector<base::Fd> lease_holders();

}  // namespace tendril::session

// SPDX-License-Identifier: Apache-2.0
// Channels over connected stream sockets: TCP and unix sockets. Both ends of session/ use them,
// from any thread, with one sender and one receiver at a time. They never raise SIGPIPE and never
// leave a descriptor open across exec.
#pragma once

#include <memory>

#include "base/fd.h"
#include "transport/transport.h"

namespace tendril::transport {

// Takes ownership of the connected socket. Its kind is "tcp" or "unix", by its family. TCP sockets
// get TCP_NODELAY.
std::unique_ptr<Channel> socket_channel(base::Fd fd);

// Two connected channels inside this machine, of kind "unix".
base::Result<std::unique_ptr<Channel>> unix_pair(std::unique_ptr<Channel>* other);

}  // namespace tendril::transport

// SPDX-License-Identifier: Apache-2.0
// Channels over connected stream sockets: TCP and unix sockets. Used by session/ on both ends; any
// thread, one sender and one receiver at a time. Never raises SIGPIPE, never leaves a descriptor
// open across exec.
#pragma once

#include <memory>

#include "base/fd.h"
#include "transport/transport.h"

namespace tendril::transport {

// Takes the connected socket over; "tcp" or "unix" by its family. TCP sockets get TCP_NODELAY.
std::unique_ptr<Channel> socket_channel(base::Fd fd);

// Two connected channels inside this machine, "unix" kind.
base::Result<std::unique_ptr<Channel>> unix_pair(std::unique_ptr<Channel>* other);

}  // namespace tendril::transport

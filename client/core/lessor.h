// SPDX-License-Identifier: Apache-2.0
// Leases for programs that nobody launched, from servers that want to know who asks, and from
// pools. TLS, the user's certificate and waiting in a queue are not for this library. So it starts
// `tendril lease hold`, which asks in the user's name, gives the lease, and holds it until this
// process has ended. Processes that this one starts share a pool's lease
// (session/control/lease_socket.h).
#pragma once

#include <memory>

#include "session/control/attach.h"

namespace tendril::client::core {

// The command is TENDRIL_COMMAND, else the one beside this library (../../bin/tendril), else
// `tendril` by PATH. It gets no descriptor, signal mask or preloaded library of the program.
std::shared_ptr<session::Lessor> command_lessor();

}  // namespace tendril::client::core

// SPDX-License-Identifier: Apache-2.0
// Leases for programs that nobody launched, from servers that want to know who asks. TLS and the
// user's certificate are not for this library. So it starts `tendril lease hold`, which asks in the
// user's name, gives the lease, and holds it until this process has ended.
#pragma once

#include <memory>

#include "session/control/attach.h"

namespace tendril::client::core {

// The command is TENDRIL_COMMAND, else the one beside this library (../../bin/tendril), else
// `tendril` by PATH. It gets no descriptor, signal mask or preloaded library of the program.
std::shared_ptr<session::Lessor> command_lessor();

}  // namespace tendril::client::core

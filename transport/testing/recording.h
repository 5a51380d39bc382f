// SPDX-License-Identifier: Apache-2.0
// A channel that also writes what passes through it into two files, one for each direction. Wraps
// any channel. The worker puts it around a command lane if TENDRIL_RECORD asks for it. The
// recording is the program's data, so it is never on by default.
#pragma once

#include <memory>

#include "base/fd.h"
#include "transport/transport.h"

namespace tendril::transport {

// If a file cannot take more, only the rest of its recording is lost. Hides the inner channel's
// ring, so that everything passes through here.
std::unique_ptr<Channel> recording(std::unique_ptr<Channel> inner, base::Fd received,
                                   base::Fd sent);

}  // namespace tendril::transport

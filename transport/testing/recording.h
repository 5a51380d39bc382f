// SPDX-License-Identifier: Apache-2.0
// A channel that also writes what passes through it into two files, one for each direction. Wraps
// any channel; the worker puts it around a command lane when TENDRIL_RECORD asks for it. What is
// recorded is the program's data: never on by itself.
#pragma once

#include <memory>

#include "base/fd.h"
#include "transport/transport.h"

namespace tendril::transport {

// A file that cannot take more loses the rest of its recording, nothing else. Hides the inner
// channel's ring, so that everything passes.
std::unique_ptr<Channel> recording(std::unique_ptr<Channel> inner, base::Fd received,
                                   base::Fd sent);

}  // namespace tendril::transport

// SPDX-License-Identifier: Apache-2.0
// See tally.h.
#include "client/core/tally.h"

namespace tendril::client::core {

std::atomic<bool> g_observing{false};

namespace {

constinit thread_local Tally t_tally{};

}  // namespace

Tally& tally() { return t_tally; }

}  // namespace tendril::client::core

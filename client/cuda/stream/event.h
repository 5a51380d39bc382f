// SPDX-License-Identifier: Apache-2.0
// What others need of events (event.cc).
#pragma once

#include "client/cuda/state.h"

namespace tendril::client::cuda {

// Before the record of an event goes: nobody wants the answer to its last query any more.
void forget_question(Event* event);

}  // namespace tendril::client::cuda

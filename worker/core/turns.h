// SPDX-License-Identifier: Apache-2.0
// A session's way to tendrild's arbiter: the page on which it is given turns of the GPU
// (wire/turn_page.h), and the bell that calls the arbiter to look at it. Handed from worker/process
// to the gate (worker/core/gate.h). Both live as long as the worker.
#pragma once

#include "wire/turn_page.h"

namespace tendril::worker {

struct Turns {
  wire::TurnPage* page = nullptr;  // null: nobody divides time here (tests), and there is no gate
  int bell = -1;                   // an eventfd
};

}  // namespace tendril::worker

// SPDX-License-Identifier: Apache-2.0
// A session's way to tendrild's arbiter. The arbiter gives the session turns of the GPU on the page
// (wire/turn_page.h). The bell asks the arbiter to look at the page. worker/process hands both to
// the gate (worker/core/gate.h). They live as long as the worker.
#pragma once

#include "wire/turn_page.h"

namespace tendril::worker {

struct Turns {
  wire::TurnPage* page =
      nullptr;    // null: nobody divides the GPU's time (tests), so there is no gate
  int bell = -1;  // an eventfd
};

}  // namespace tendril::worker

// SPDX-License-Identifier: Apache-2.0
// The generated dispatcher (api/gen/emit_worker.py): decodes one call with its bounds checks and
// runs its handler.
#pragma once

#include <cstdint>

#include "session/lane/service.h"

namespace tendril::worker::cuda {

class Executor;

// False: unknown opcode or malformed body; the session must end.
bool dispatch(Executor& executor, const session::Call& call);
const char* op_name(uint16_t opcode);

}  // namespace tendril::worker::cuda

// SPDX-License-Identifier: Apache-2.0
// The daemon's log: one line per event on stderr, time first. Any thread may log. A line that
// cannot be written is lost, so a full disk or a closed stderr never stops the daemon. Never pass
// secrets to it (tokens, lease and session secrets).
#pragma once

#include "base/text.h"

namespace tendril::reception {

enum class Level { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

void set_log_level(Level level);
void log(Level level, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Text from peers and workers must go through it.
using base::printable;

}  // namespace tendril::reception

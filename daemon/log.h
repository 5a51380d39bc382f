// SPDX-License-Identifier: Apache-2.0
// The daemon's log: reception/log.h under the names that this room uses.
#pragma once

#include "reception/log.h"

namespace tendril::daemon {

using reception::Level;
using reception::log;
using reception::printable;
using reception::set_log_level;

}  // namespace tendril::daemon

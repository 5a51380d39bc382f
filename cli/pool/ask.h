// SPDX-License-Identifier: Apache-2.0
// A command for a pool's scheduler, and its whole answer. Blocks.
#pragma once

#include <string>

#include "cli/servers.h"
#include "wire/pool.h"

namespace tendril::cli {

// The first scheduler that schedules answers; else the error says of each why not.
base::Result<std::string> ask_pool(const Reach& reach, const wire::PoolCommand& command,
                                   int timeout_ms);

}  // namespace tendril::cli

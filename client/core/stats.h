// SPDX-License-Identifier: Apache-2.0
// What TENDRIL_STATS prints for any API: where to, and what a session has sent. An API's own table
// is its own (client/cuda/observe/stats.h). Called at the program's exit; may write to its stderr.
#pragma once

#include <stdio.h>

#include <cstdint>

#include "client/core/session.h"

namespace tendril::client::core {

// `where` is the value of TENDRIL_STATS: "1" is stderr, and else it is a file to append to. stderr
// if that cannot be opened. End it with close_statistics.
FILE* open_statistics(const char* where);
void close_statistics(FILE* to);
// One line. `code_bytes`: how many of the bytes were code.
void print_traffic(FILE* to, const Session& session, uint64_t code_bytes);

// Another line: content that came to the session's server from other servers' sessions.
void print_moved(FILE* to, const Session& session, uint64_t times, uint64_t bytes);

}  // namespace tendril::client::core

// SPDX-License-Identifier: Apache-2.0
// What `tendril ls` and `tendril smi` show of servers. Text only; pure.
#pragma once

#include <string>
#include <vector>

#include "view/server.h"

namespace tendril::view {

// One line for each lease of all servers, under a heading. Empty when there is none.
std::string leases_text(const std::vector<ServerView>& views, size_t width = 0);
// A server's GPUs, and who shares each of them.
std::string gpus_text(const ServerView& view, size_t width = 0);

}  // namespace tendril::view

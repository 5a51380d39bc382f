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

// Of a lease that is not granted, its memory and since when it is so: "parked 14.0 GiB for 8h00m".
std::string standing_text(const wire::LeaseRecord& lease);

}  // namespace tendril::view

// SPDX-License-Identifier: Apache-2.0
// How single values look, wherever they are shown: in tables, in lines, in metrics. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "wire/control.h"

namespace tendril::view {

std::string uuid_text(const std::string& raw);  // "GPU-xxxxxxxx-xxxx-..."; "" unless 16 bytes
std::string age_text(uint64_t seconds);         // "12s", "5m03s", "2h10m", "3d04h"
std::string count_text(double count);           // "0", "870", "12.3k", "4.1M"
std::string counted(uint64_t count, const char* what);  // "1 lease", "2 leases"
std::string percent_text(double part);                  // 0.124: "12.4%"
// "1.0 GiB / 4.0 GiB"
std::string memory_text(uint64_t used_bytes, uint64_t quota_bytes);
// "0: 0.50, 1: 0.50 packed"; `gpu` comes before each number.
std::string slices_text(const std::vector<wire::SliceGrant>& slices, const char* gpu = "");
// Who holds a lease. "ada@box" if the server knows it, by a certificate or by its own host's users;
// "ada@box?" if the program says so and nobody proved it; "-" for others' leases.
std::string who_text(const wire::ClientInfo& client);
// The proven name, or what stands for all who prove nothing: "bearer", "local". Of an older server
// what the program says.
std::string user_text(const wire::ClientInfo& client);
// Text from a server, fit for a terminal.
std::string safe(const std::string& text);

}  // namespace tendril::view

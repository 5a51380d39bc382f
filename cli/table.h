// SPDX-License-Identifier: Apache-2.0
// Text tables for people. Used by ls, smi and doctor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tendril::cli {

using Row = std::vector<std::string>;

// Columns as wide as their widest cell, two spaces between; no trailing spaces.
std::string aligned(const std::vector<Row>& rows);

std::string uuid_text(
    const std::string& raw);             // "GPU-xxxxxxxx-xxxx-...", empty for other than 16 bytes
std::string age_text(uint64_t seconds);  // "12s", "5m03s", "2h10m", "3d04h"
// Text from a server, fit for a terminal.
std::string safe(const std::string& text);

}  // namespace tendril::cli

// SPDX-License-Identifier: Apache-2.0
// Text tables for people. Pure.
#pragma once

#include <string>
#include <vector>

namespace tendril::view {

using Row = std::vector<std::string>;

// Columns as wide as their widest cell, two spaces between; no trailing spaces.
std::string aligned(const std::vector<Row>& rows);

}  // namespace tendril::view

// SPDX-License-Identifier: Apache-2.0
// What people get of the pool's history: who had how much, as a table, CSV or a page with plots.
// Made from answers to the verb `history` (pool/accounting's README has their fields). An answer
// comes from a peer: fields may be missing and have any type. Pure.
#pragma once

#include <string>

#include "base/result.h"

namespace tendril::view {

// For a terminal; times in GPU hours. kMismatch: it is no answer.
base::Result<std::string> use_table(const std::string& sums_json);
// Exact: seconds with nine decimals, memory in byte-seconds. Cells that a spreadsheet would compute
// begin with an apostrophe.
base::Result<std::string> use_csv(const std::string& sums_json);
// For printing: `steps_json` has the same sums by step, without names, for the plot over time.
base::Result<std::string> use_html(const std::string& sums_json, const std::string& steps_json);

}  // namespace tendril::view

// SPDX-License-Identifier: Apache-2.0
// What `tendril bench` found, as a page with plots: each figure's sides beside each other. Pure.
#pragma once

#include <string>

#include "cli/bench/bench_report.h"

namespace tendril::cli {

// Whole pages of HTML. Names come from servers and files, and are escaped.
std::string bench_page(const BenchReport& report);
std::string comparison_page(const BenchReport& before, const BenchReport& after);

}  // namespace tendril::cli

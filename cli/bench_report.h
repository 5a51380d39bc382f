// SPDX-License-Identifier: Apache-2.0
// What `tendril bench` found: figures by side, as JSON and as tables of ratios. Units are the end
// of a figure's name: `_us`, `_ms` and `_mb` are better small, everything else is better large.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace tendril::cli {

using Figures =
    std::vector<std::pair<std::string, double>>;  // in the order in which they were measured

struct BenchSide {
  std::string name;  // "native", "tcp", "shm", "bare tcp", "bare shm", "endpoints"
  Figures figures;
  std::string absent;  // why there are none
};

struct BenchReport {
  std::string version, server;
  std::vector<BenchSide> sides;

  const BenchSide* side(const std::string& name) const;
};

// The figures of tendril-bench's line in what it printed; empty when there is none.
Figures bench_figures(const std::string& output);

std::string bench_json(const BenchReport& report);
base::Result<BenchReport> read_bench_json(const std::string& path);

// Every figure of the program on each side, and how fast it is there relative to native and to bare
// transport.
std::string bench_table(const BenchReport& report);
// Bandwidth and latency between every two endpoints; `labels` names the GPUs in the order of the
// program.
std::string endpoint_table(const Figures& figures, const std::vector<std::string>& labels);
// How fast everything in `after` is relative to `before`.
std::string bench_comparison(const BenchReport& before, const BenchReport& after);

}  // namespace tendril::cli

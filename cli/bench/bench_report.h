// SPDX-License-Identifier: Apache-2.0
// What `tendril bench` found: figures by side, as JSON and as tables of ratios. The end of a
// figure's name is its unit. Smaller is better for `_us`, `_ms` and `_mb`; larger is better for
// everything else.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "view/json.h"

namespace tendril::cli {

using Figures =
    std::vector<std::pair<std::string, double>>;  // in the order in which they were measured

struct BenchSide {
  // "native", "tcp", "shm", "bare tcp", "bare shm", "endpoints"; "endpoints through the client":
  // pairs of GPUs of two servers, without passages
  std::string name;
  Figures figures;
  std::string absent;  // why there are no figures
};

struct BenchGpu {
  std::string server, name;
  size_t place = 0;  // of the server among all
};

struct BenchReport {
  std::string version, server;
  std::vector<BenchSide> sides;
  std::vector<BenchGpu> gpus;  // of "endpoints", in the program's order
  std::vector<view::PassageReport> passages;

  const BenchSide* side(const std::string& name) const;
};

// The figures in the line of tendril-bench in its output; empty if there is none.
Figures bench_figures(const std::string& output);

std::string bench_json(const BenchReport& report);
base::Result<BenchReport> read_bench_json(const std::string& path);

// Every figure of the program on each side, and its speed relative to native and to the bare
// transport.
std::string bench_table(const BenchReport& report);
// Bandwidth and latency between every two endpoints. Between GPUs of two servers also both ways
// beside each other: from server to server, and through the client. Empty: there are no figures.
std::string endpoint_table(const BenchReport& report);
// How fast everything in `after` is relative to `before`.
std::string bench_comparison(const BenchReport& before, const BenchReport& after);

}  // namespace tendril::cli

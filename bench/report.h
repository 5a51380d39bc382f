// SPDX-License-Identifier: Apache-2.0
// What tendril-bench prints: one line, `tendril-bench ` and a flat JSON object of figures with
// units in their names. A figure that it could not measure is missing, and stderr says why.
// `tendril bench` (cli/bench/bench.cc) and tools/gpu read it.
#pragma once

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bench/device.h"

namespace tendril::bench {

class Report {
 public:
  void add(const std::string& name, double value) { figures_.emplace_back(name, value); }
  // Runs `measure`, which adds figures. A call that fails costs only these figures.
  void attempt(const char* what, const std::function<void()>& measure) {
    try {
      measure();
    } catch (const Failure& failure) {
      std::fprintf(stderr, "tendril-bench: %s: %s\n", what, failure.what());
    }
  }
  void print() const {
    std::printf("tendril-bench {");
    for (size_t i = 0; i < figures_.size(); ++i) {
      std::printf("%s\"%s\": %.6g", i == 0 ? "" : ", ", figures_[i].first.c_str(),
                  figures_[i].second);
    }
    std::printf("}\n");
  }

 private:
  std::vector<std::pair<std::string, double>> figures_;
};

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

inline double us_since(uint64_t begin_ns) {
  return static_cast<double>(base::now_ns() - begin_ns) / 1000;
}

template <typename Call>
std::vector<double> each_us(int rounds, Call call) {
  std::vector<double> times;
  for (int i = 0; i < rounds; ++i) {
    const uint64_t begin_ns = base::now_ns();
    call();
    times.push_back(us_since(begin_ns));
  }
  return times;
}

}  // namespace tendril::bench

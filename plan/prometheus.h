// SPDX-License-Identifier: Apache-2.0
// What Prometheus has of NVIDIA's exporter: the answer of /api/v1/query_range, as JSON, over series
// with DCGM's names. Untrusted. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tendril::plan {

// A series as its labels say.
struct DcgmSeries {
  enum class Kind : uint8_t { kOther, kBusyPercent, kBusyPart, kMemoryMib };
  Kind kind = Kind::kOther;
  std::string server, gpu;
  // Who holds the GPU; both empty: the labels do not say.
  std::string user, job;
};

inline constexpr size_t kMostSeries = 200'000;

// Calls `take` for each value of such a series, until it answers with an error. An error names the
// line and column, or series and value, and what is expected.
base::Status read_prometheus(
    std::string_view text,
    const std::function<base::Status(const DcgmSeries&, int64_t at_s, double value)>& take);

}  // namespace tendril::plan

// SPDX-License-Identifier: Apache-2.0
// See busy.h.

#include "softgpu/board/busy.h"

#include <algorithm>

namespace tendril::softgpu {

void add_busy(BusyWindow& window, int64_t from_ns, int64_t to_ns, int64_t busy_ns) {
  if (busy_ns <= 0 || to_ns <= from_ns) return;
  const double density =
      std::min(1.0, static_cast<double>(busy_ns) / static_cast<double>(to_ns - from_ns));
  const int64_t last = (to_ns - 1) / kBucketNs;
  const int64_t first = std::max(from_ns / kBucketNs, last - static_cast<int64_t>(kBuckets) + 1);
  for (int64_t bucket = first; bucket <= last; ++bucket) {
    const size_t at = static_cast<size_t>(bucket) % kBuckets;
    if (window.bucket[at] != bucket) {
      window.bucket[at] = bucket;
      window.busy_ns[at] = 0;
    }
    const int64_t begin = std::max(from_ns, bucket * kBucketNs),
                  end = std::min(to_ns, (bucket + 1) * kBucketNs);
    window.busy_ns[at] += static_cast<int64_t>(static_cast<double>(end - begin) * density);
  }
}

unsigned busy_percent(const BusyWindow& window, int64_t now_ns) {
  const int64_t current = now_ns / kBucketNs;
  int64_t busy = 0;
  for (int64_t bucket = current - static_cast<int64_t>(kBuckets) + 1; bucket < current; ++bucket) {
    if (bucket < 0) continue;
    const size_t at = static_cast<size_t>(bucket) % kBuckets;
    if (window.bucket[at] == bucket) busy += window.busy_ns[at];
  }
  const double whole = static_cast<double>(kBucketNs) * (kBuckets - 1);
  return std::min(100u, static_cast<unsigned>(static_cast<double>(busy) * 100 / whole + 0.5));
}

}  // namespace tendril::softgpu

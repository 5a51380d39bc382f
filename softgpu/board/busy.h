// SPDX-License-Identifier: Apache-2.0
// Busy time: totals, and the last second. Callers hold the board's lock.
#pragma once

#include "softgpu/board/board_data.h"

namespace tendril::softgpu {

// `busy_ns` of [from, to) were spent working. They are spread evenly.
void add_busy(BusyWindow& window, int64_t from_ns, int64_t to_ns, int64_t busy_ns);
// Busy time of the second before `now_ns`.
unsigned busy_percent(const BusyWindow& window, int64_t now_ns);

}  // namespace tendril::softgpu

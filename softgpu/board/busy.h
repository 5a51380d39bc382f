// SPDX-License-Identifier: Apache-2.0
// Busy time: totals, and the last second of it. Callers hold the board's lock.
#pragma once

#include "softgpu/board/board_data.h"

namespace tendril::softgpu {

// `busy_ns` of [from, to) were spent working; they are spread evenly over it.
void add_busy(BusyWindow& window, int64_t from_ns, int64_t to_ns, int64_t busy_ns);
// Of the second before `now_ns`.
unsigned busy_percent(const BusyWindow& window, int64_t now_ns);

}  // namespace tendril::softgpu

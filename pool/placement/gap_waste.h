// SPDX-License-Identifier: Apache-2.0
// How much of a gap on a GPU will probably stay unused, for gaps of 0 to 1000 thousandths. A gap
// that common requests fill exactly wastes little; one that fits only rare requests is lost.
#pragma once

#include <array>
#include <cstdint>

#include "pool/placement/demand.h"

namespace tendril::pool {

inline constexpr uint32_t kGapSteps = 1000;
inline constexpr uint32_t kGapStep = kWholeGpu / kGapSteps;  // millionths

// Thousandths wasted, by the gap's size in thousandths. Until there are requests, every multiple of
// a twentieth counts as equally common.
using GapWaste = std::array<double, kGapSteps + 1>;
GapWaste gap_waste(const Demand& demand);

}  // namespace tendril::pool

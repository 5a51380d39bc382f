// SPDX-License-Identifier: Apache-2.0
// Compares the pool's history with the records of leases that ended, and its tiers with each other,
// at the end of a world, when no lease lives.
#pragma once

#include <string>

#include "pool/simulation/fake_store.h"

namespace tendril::pool::simulation {

// What does not agree; empty: all does, to the nanosecond.
std::string history_differs(const FakeStore& store);

}  // namespace tendril::pool::simulation

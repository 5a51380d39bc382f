// SPDX-License-Identifier: Apache-2.0
// What of this process' address space is taken, for addresses that a server gave out and that mean
// something here already. Called by memory.cc on such a collision, which is rare; reads /proc.
// Never allocates.
#pragma once

#include <cstdint>

namespace tendril::client::cuda {

// The mappings around [base, base + bytes) that lie close to each other, and where they are likely
// to grow. False: nothing is there.
bool occupied_around(uint64_t base, uint64_t bytes, uint64_t* first, uint64_t* end);
// The same of a file like /proc/self/maps.
bool occupied_around(int maps, uint64_t base, uint64_t bytes, uint64_t* first, uint64_t* end);

}  // namespace tendril::client::cuda

// SPDX-License-Identifier: Apache-2.0
// Which part of this process' address space is taken. memory.cc asks when a server gave out
// addresses that mean something here already, which is rare. Reads /proc; never allocates.
#pragma once

#include <cstdint>

namespace tendril::client::cuda {

// The mappings around [base, base + bytes) that lie close to each other, with the room into which
// they are likely to grow. False: nothing is there.
bool occupied_around(uint64_t base, uint64_t bytes, uint64_t* first, uint64_t* end);
// The same, read from a file like /proc/self/maps.
bool occupied_around(int maps, uint64_t base, uint64_t bytes, uint64_t* first, uint64_t* end);

}  // namespace tendril::client::cuda

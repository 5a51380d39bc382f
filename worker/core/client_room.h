// SPDX-License-Identifier: Apache-2.0
// The part of the worker's address space where a program's libraries and memory usually lie. A
// driver chooses where managed variables lie, and the client puts its copy at the same addresses,
// because programs use them as they are. So nothing else of the program may be there, and the
// worker's driver is kept out of this part. The client's memory may have mirrors there
// (cuda/memory/mirror.h).
#pragma once

#include <cstdint>

namespace tendril::worker {

struct ClientRoom {
  uint64_t begin = 0, end = 0;  // addresses; empty: no room was left
};

// Reserves all free addresses of that part, so that what this process maps from now on lies below
// it, at a random place. It costs addresses, no memory. Called once, before the driver is opened.
// Leaves nothing on a machine whose programs lie elsewhere, or that limits addresses.
void leave_room_for_clients();
// What was reserved. Parts may be mapped or unmapped since.
ClientRoom room_for_clients();

}  // namespace tendril::worker

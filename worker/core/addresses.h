// SPDX-License-Identifier: Apache-2.0
// Which part of the address space the worker's memory lies in. A driver chooses where managed
// variables lie, and the client puts its copy at the same addresses, because programs use them as
// they are. So nothing else of the program may be there. Used by process/ and cuda/.
#pragma once

#include <cstdint>

namespace tendril::worker {

// Takes all free addresses of the part where a program's libraries and memory usually lie, so that
// what this process maps from now on lies below it, at a random place. It costs addresses, no
// memory. Called before the driver is opened. Changes nothing on a machine whose programs lie
// elsewhere, or that limits addresses.
void leave_room_for_clients();
// Whether it took this address. Nothing is there, although this process has it mapped. Any thread.
bool is_left_for_clients(uint64_t address);

}  // namespace tendril::worker

// SPDX-License-Identifier: Apache-2.0
// What copies and mappings need of buffers. Any thread.
#pragma once

#include "client/opencl/object.h"

namespace tendril::client::opencl {

// Where the host sees the buffer while it is mapped: the program's own memory, or memory of this
// library that is made at the first mapping. Every mapping of one buffer has the same addresses.
// Null: no memory.
uint8_t* shadow_of(Memory* memory);
void free_shadow(Memory* memory);

}  // namespace tendril::client::opencl

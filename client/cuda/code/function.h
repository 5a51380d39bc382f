// SPDX-License-Identifier: Apache-2.0
// What launches, attributes and occupancy share about functions.
#pragma once

#include <cstdint>

#include "client/cuda/bodies.h"
#include "client/cuda/code/library.h"

namespace tendril::client::cuda {

// The id under which `session` knows a function; a kernel is loaded there on first use. 0 with
// *error set.
uint64_t function_wire_id(Function* function, Session* session, CUresult* error);
// Puts away what function_info() has learned: the function is gone.
void retire_function_info(Function* function);
// Drops the cached occupancy answers of a function whose attributes changed.
void forget_occupancy(Function* function);
// Finds the buffer with all parameters of a launch by `extra`. False: the list is malformed.
bool extra_buffer(void** extra, const void** buffer, size_t* bytes);

}  // namespace tendril::client::cuda

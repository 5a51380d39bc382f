// SPDX-License-Identifier: Apache-2.0
// What ordinary contexts know of those over several servers. Any thread.
#pragma once

#include "client/opencl/object.h"

namespace tendril::client::opencl::spread {

// A context with these devices, which are of several servers. A round trip to each. Null: `result`
// says why.
cl_context make_context(const cl_context_properties* properties,
                        const std::vector<Device*>& devices, cl_int* result);
bool is_spread(const void* handle);  // one of this folder's records, alive or not

// Nobody needs the record any more: its members end.
void end_members(Object* object);
// Takes the record out of its table.
void destroy(Object* object);

}  // namespace tendril::client::opencl::spread

// SPDX-License-Identifier: Apache-2.0
// What programs on one server and over several have in common. Any thread.
#pragma once

#include <vector>

#include "client/opencl/object.h"

namespace tendril::client::opencl {

// The devices of a list, each of which must be one of `all`. None: all of them.
cl_int devices_of(const std::vector<Device*>& all, cl_uint count, const cl_device_id* list,
                  std::vector<Device*>* devices);

}  // namespace tendril::client::opencl

// SPDX-License-Identifier: Apache-2.0
// A command that copies, as the driver wants it. For copy.cc and in_place.cc. Executor thread.
#pragma once

#include "gpu/opencl/driver.h"

namespace tendril::worker::opencl {

struct Command {
  cl_command_queue queue = nullptr;
  cl_mem memory = nullptr;
  cl_uint waits = 0;
  const cl_event* wait = nullptr;
};

}  // namespace tendril::worker::opencl

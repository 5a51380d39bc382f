// SPDX-License-Identifier: Apache-2.0
// OpenCL's entry in the worker's table of APIs (worker/core/api.h).
#pragma once

#include "worker/core/api.h"

namespace tendril::worker::opencl {

Api api();

}  // namespace tendril::worker::opencl

// SPDX-License-Identifier: Apache-2.0
// What objects over several servers have like those on one.
#include "client/opencl/information.h"
#include "client/opencl/memory.h"
#include "client/opencl/spread/functions.h"

namespace tendril::client::opencl::spread {
namespace mine = spread;
#include "client/opencl/alike/bodies.inc"
}  // namespace tendril::client::opencl::spread

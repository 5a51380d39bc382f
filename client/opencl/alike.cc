// SPDX-License-Identifier: Apache-2.0
// What objects on one server have like those over several.
#include "api/opencl_bodies.gen.h"
#include "client/opencl/information.h"
#include "client/opencl/memory.h"

namespace tendril::client::opencl {
namespace mine = opencl;
#include "client/opencl/alike/bodies.inc"
}  // namespace tendril::client::opencl

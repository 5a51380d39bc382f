// SPDX-License-Identifier: Apache-2.0
// What OpenCL answers to a handle that is none. Client and worker answer alike.
#pragma once

#include "api/opencl_abi.gen.h"
#include "api/opencl_kinds.gen.h"

namespace tendril::api::opencl {

constexpr cl_int error_of(Kind kind) {
  switch (kind) {
    case Kind::kDevice:
      return CL_INVALID_DEVICE;
    case Kind::kContext:
      return CL_INVALID_CONTEXT;
    case Kind::kQueue:
      return CL_INVALID_COMMAND_QUEUE;
    case Kind::kMemory:
      return CL_INVALID_MEM_OBJECT;
    case Kind::kProgram:
      return CL_INVALID_PROGRAM;
    case Kind::kKernel:
      return CL_INVALID_KERNEL;
    case Kind::kEvent:
      return CL_INVALID_EVENT;
    case Kind::kSampler:
      return CL_INVALID_SAMPLER;
    case Kind::kNone:
    case Kind::kCount:
      break;
  }
  return CL_INVALID_VALUE;
}

}  // namespace tendril::api::opencl

// SPDX-License-Identifier: Apache-2.0
// What the generated entries include: the bodies, and the answer of entry points without one. The
// library exports only what a loader asks for (exports.map); all others are in the table
// (table.cc).
#pragma once

#include "api/opencl_abi.gen.h"
#include "api/opencl_bodies.gen.h"
#include "api/opencl_entries.gen.h"

#define TENDRIL_OPENCL_ENTRY __attribute__((visibility("default")))

namespace tendril::client::opencl {

// Becomes whatever the entry point returns: an error, or no object.
struct Refusal {
  operator cl_int() const { return CL_INVALID_OPERATION; }  // NOLINT: entries return it
  template <typename T>
  operator T*() const {  // NOLINT
    return nullptr;
  }
};

// Says on stderr what is not there, once for each entry point.
Refusal refused(const char* name, const char* reason, cl_int* error);

// What is behind the slots of functions that are newer than the table.
cl_int unknown_slot();
#define TENDRIL_OPENCL_LATER reinterpret_cast<const void*>(&opencl::unknown_slot)
#define TENDRIL_OPENCL_LATER_SLOTS                                                            \
  TENDRIL_OPENCL_LATER, TENDRIL_OPENCL_LATER, TENDRIL_OPENCL_LATER, TENDRIL_OPENCL_LATER,     \
      TENDRIL_OPENCL_LATER, TENDRIL_OPENCL_LATER, TENDRIL_OPENCL_LATER, TENDRIL_OPENCL_LATER, \
      TENDRIL_OPENCL_LATER, TENDRIL_OPENCL_LATER, TENDRIL_OPENCL_LATER, TENDRIL_OPENCL_LATER

}  // namespace tendril::client::opencl

// SPDX-License-Identifier: Apache-2.0
// The table of functions that a loader finds behind every handle, in its order. No slot is empty.
// Newer loaders may know more slots than this one; these refuse.
#include "api/opencl_table.gen.h"
#include "client/common/log.h"
#include "client/opencl/entry.h"
#include "client/opencl/object.h"

#define TENDRIL_PROTOTYPE(symbol, result, arguments, names) \
  extern "C" __attribute__((visibility("default"))) result symbol arguments;
TENDRIL_OPENCL_FUNCTIONS(TENDRIL_PROTOTYPE)
#undef TENDRIL_PROTOTYPE

namespace tendril::client::opencl {

cl_int unknown_slot() {
  return refused("a function that is newer than this library", "it is not in OpenCL 3.0", nullptr);
}

Refusal refused(const char* name, const char* reason, cl_int* error) {
  log_once(LogLevel::kError, "%s is not available through Tendril: %s", name, reason);
  if (error != nullptr) *error = CL_INVALID_OPERATION;
  return {};
}

#define TENDRIL_SLOT(symbol) reinterpret_cast<const void*>(&::symbol),
const void* const kTable[] = {TENDRIL_OPENCL_TABLE(TENDRIL_SLOT) TENDRIL_OPENCL_LATER_SLOTS};
#undef TENDRIL_SLOT

}  // namespace tendril::client::opencl

// SPDX-License-Identifier: Apache-2.0
// The table of functions behind the handles of this folder. What the folder does not have is the
// ordinary entry, which finds no object of its own, or refuses.
#include "api/opencl_table.gen.h"
#include "client/opencl/entry.h"
#include "client/opencl/spread/functions.h"

#define TENDRIL_PROTOTYPE(symbol, result, arguments, names) \
  extern "C" __attribute__((visibility("default"))) result symbol arguments;
TENDRIL_OPENCL_FUNCTIONS(TENDRIL_PROTOTYPE)
#undef TENDRIL_PROTOTYPE

namespace tendril::client::opencl {

namespace ordinary {
#define TENDRIL_ORDINARY(symbol, result, arguments, names) using ::symbol;
TENDRIL_OPENCL_FUNCTIONS(TENDRIL_ORDINARY)
#undef TENDRIL_ORDINARY
}  // namespace ordinary

namespace spread {

using namespace ordinary;  // NOLINT: found only where this folder has no function of the name

#define TENDRIL_SLOT(symbol) reinterpret_cast<const void*>(&spread::symbol),
const void* const kTable[] = {TENDRIL_OPENCL_TABLE(TENDRIL_SLOT) TENDRIL_OPENCL_LATER_SLOTS};
#undef TENDRIL_SLOT

}  // namespace spread
}  // namespace tendril::client::opencl

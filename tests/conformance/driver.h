// SPDX-License-Identifier: Apache-2.0
// Every driver entry point as a function pointer under its own exported name (`cuMemAlloc_v2`).
// dlsym binds them from the library that TENDRIL_CONFORMANCE_DRIVER names (default: libcuda.so.1 by
// the normal search). Tests call them as if linked, with the ABI version spelt out. A name that the
// library lacks is bound to a stand-in, which complains once and answers CUDA_ERROR_NOT_SUPPORTED.
#pragma once

#include "api/cuda_abi.gen.h"

namespace tendril::conformance {

#define TENDRIL_DECLARE(symbol, result, arguments, names) extern symbol##_t* symbol;
TENDRIL_CUDA_FUNCTIONS(TENDRIL_DECLARE)
#undef TENDRIL_DECLARE

// Opens the library and binds everything. Ends the process with a message if it cannot. main calls
// it once. It makes no cu call.
void bind_driver();

// The exported symbol, or null. `driver_path` is what was opened.
void* exported(const char* symbol);
const char* driver_path();

// "CUDA_ERROR_INVALID_VALUE" for 1 and so on, without asking the driver.
const char* result_name(CUresult result);

}  // namespace tendril::conformance

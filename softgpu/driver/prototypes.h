// SPDX-License-Identifier: Apache-2.0
// Prototypes of the exported calls, for tests that link the objects of the library.
#pragma once

#include "api/cuda_abi.gen.h"

#define TENDRIL_SOFTGPU_PROTOTYPE(symbol, result, args, names) extern "C" result symbol args;
TENDRIL_CUDA_FUNCTIONS(TENDRIL_SOFTGPU_PROTOTYPE)
#undef TENDRIL_SOFTGPU_PROTOTYPE

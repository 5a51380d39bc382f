// SPDX-License-Identifier: Apache-2.0
// Prototypes of the driver API, as a toolkit's cuda.h would declare them, for the demo program.
#pragma once

#include "api/cuda_abi.gen.h"

#define TENDRIL_PROTOTYPE(symbol, result, arguments, names) extern "C" result symbol arguments;
TENDRIL_CUDA_FUNCTIONS(TENDRIL_PROTOTYPE)
#undef TENDRIL_PROTOTYPE

// SPDX-License-Identifier: Apache-2.0
// An empty libcuda.so.1 to link against, as toolkits ship one. Never loaded at run time: the
// programs carry no rpath to it. If it is loaded by mistake, each function answers
// CUDA_ERROR_STUB_LIBRARY.
#include "api/cuda_abi.gen.h"

#define TENDRIL_STUB(symbol, result, arguments, names)                        \
  extern "C" __attribute__((visibility("default"))) result symbol arguments { \
    return CUDA_ERROR_STUB_LIBRARY;                                           \
  }
TENDRIL_CUDA_FUNCTIONS(TENDRIL_STUB)

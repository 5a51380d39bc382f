// SPDX-License-Identifier: Apache-2.0
// What every hand-written body of the client includes: the generated declarations, the process'
// state, and the wire.
#pragma once

#include "api/cuda_bodies.gen.h"
#include "api/cuda_messages.gen.h"
#include "client/cuda/state.h"

// Leaves the body with the error of `expression`, if it is one.
#define TENDRIL_TRY(expression)                                                     \
  do {                                                                              \
    const CUresult tendril_result = (expression);                                   \
    if (__builtin_expect(tendril_result != CUDA_SUCCESS, 0)) return tendril_result; \
  } while (false)

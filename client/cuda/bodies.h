// SPDX-License-Identifier: Apache-2.0
// Every hand-written body includes this: the generated declarations, the state of the process, and
// the messages.
#pragma once

#include "api/cuda_bodies.gen.h"
#include "api/cuda_messages.gen.h"
#include "client/cuda/state.h"

// Returns from the body with the result of `expression` if that is an error.
#define TENDRIL_TRY(expression)                                                     \
  do {                                                                              \
    const CUresult tendril_result = (expression);                                   \
    if (__builtin_expect(tendril_result != CUDA_SUCCESS, 0)) return tendril_result; \
  } while (false)

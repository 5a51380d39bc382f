// SPDX-License-Identifier: Apache-2.0
// What the vendor's header gives a program: prototypes of every entry point.
#pragma once

#include "api/abacus_abi.gen.h"

#define TENDRIL_PROTOTYPE(symbol, result, arguments, names) extern "C" result symbol arguments;
TENDRIL_ABACUS_FUNCTIONS(TENDRIL_PROTOTYPE)
#undef TENDRIL_PROTOTYPE

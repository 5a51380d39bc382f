// SPDX-License-Identifier: Apache-2.0
// OpenCL for the programs of these tests: every function, found in the machine's loader. They need
// no header and no library of the machine when they are built.
#pragma once

#include "api/opencl_abi.gen.h"

struct OpenCl {
#define TENDRIL_MEMBER(symbol, result, arguments, names) symbol##_t* symbol = nullptr;
  TENDRIL_OPENCL_FUNCTIONS(TENDRIL_MEMBER)
#undef TENDRIL_MEMBER

  // False: the machine has no loader.
  bool open();
};

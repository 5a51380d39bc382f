// SPDX-License-Identifier: Apache-2.0
// Nothing but a reason for CMake to build the embedded PTX before the programs that include it.
#include "kernels.ptx.gen.h"

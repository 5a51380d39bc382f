// SPDX-License-Identifier: Apache-2.0
// Exists only so that CMake builds the embedded PTX before the programs that include it.
#include "kernels.ptx.gen.h"

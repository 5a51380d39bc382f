// SPDX-License-Identifier: Apache-2.0
// libtendril-nccl-driver.so: what the operator's NCCL gets in a worker in the place of
// libcuda.so.1. It exports the driver's names, and each goes to the function that the worker has
// put into the table. Any thread; the table is filled before NCCL is opened.
#include "gpu/nccl/driver/table.h"

namespace {

constinit tendril::gpu::DriverTable g_table;

}  // namespace

extern "C" __attribute__((visibility("default"))) tendril::gpu::DriverTable* tendril_driver_table(
    size_t bytes) {
  return bytes == sizeof g_table ? &g_table : nullptr;
}

// A function that the driver lacks is null in the table.
#define TENDRIL_DRIVER_STUB(symbol, result, arguments, names)                     \
  extern "C" __attribute__((visibility("default"))) result symbol arguments {     \
    return g_table.symbol != nullptr ? g_table.symbol names                       \
                                     : static_cast<result>(CUDA_ERROR_NOT_FOUND); \
  }
TENDRIL_CUDA_FUNCTIONS(TENDRIL_DRIVER_STUB)
#undef TENDRIL_DRIVER_STUB

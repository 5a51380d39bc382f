// SPDX-License-Identifier: Apache-2.0
// The entry points of the driver library that the operator's NCCL gets (stubs.cc): one function
// for each of the driver's. Whoever opens the library fills it in (gpu/nccl/driver.h).
#pragma once

#include <cstddef>

#include "api/cuda_abi.gen.h"

namespace tendril::gpu {

struct DriverTable {
#define TENDRIL_DRIVER_TABLE_MEMBER(symbol, result, arguments, names) symbol##_t* symbol = nullptr;
  TENDRIL_CUDA_FUNCTIONS(TENDRIL_DRIVER_TABLE_MEMBER)
#undef TENDRIL_DRIVER_TABLE_MEMBER
};

// Exported by the library. Null: it is of another build. `bytes`: of a DriverTable.
using TakeDriverTable = DriverTable*(size_t bytes);
inline constexpr char kTakeDriverTable[] = "tendril_driver_table";

}  // namespace tendril::gpu

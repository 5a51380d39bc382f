// SPDX-License-Identifier: Apache-2.0
// Opens the driver library for the operator's NCCL and puts it in the driver's place: NCCL opens
// libcuda.so.1 by name, and what it gets is ours. So each call that takes memory can be charged
// (worker/nccl/driver). One for each process, before NCCL is opened.
#pragma once

#include <string>

#include "base/result.h"
#include "gpu/cuda/driver.h"
#include "gpu/nccl/driver/table.h"
#include "gpu/nccl/substitute.h"

namespace tendril::gpu {

// The table, filled with the driver's own functions. From now on whoever opens the driver by name
// gets the library, so replace functions in the table before NCCL is opened. An error says why
// NCCL would get the driver itself; then nothing has changed.
base::Result<DriverTable*> take_drivers_place(const Driver& driver, const std::string& path);

}  // namespace tendril::gpu

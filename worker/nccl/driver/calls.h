// SPDX-License-Identifier: Apache-2.0
// The driver as the operator's NCCL sees it in a worker: the driver's own functions, except those
// that take memory (memory.h). A function that takes memory by a rule that is not here is refused,
// and the log says so. One for each process.
#pragma once

#include <cstdint>

#include "gpu/nccl/driver/table.h"
#include "worker/nccl/driver/memory.h"

namespace tendril::worker::nccl {

// Puts the functions into the table. They use `memory`, which lives for ever, and write to the file
// `log` what the operator should know.
void charge_calls(gpu::DriverTable* table, Memory* memory, int log);

// How often NCCL has looked for functions of the driver here, or has called one that is ours.
uint64_t calls_seen();

}  // namespace tendril::worker::nccl

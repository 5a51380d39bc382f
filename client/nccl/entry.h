// SPDX-License-Identifier: Apache-2.0
// What the generated entries of libnccl.so.2 include: the bodies, and the answer of entry points
// without one. Any thread.
#pragma once

#include "api/nccl_abi.gen.h"
#include "api/nccl_entries.gen.h"

#define TENDRIL_NCCL_ENTRY __attribute__((visibility("default"), used))

namespace tendril::client::nccl {

#define TENDRIL_NCCL_BODY(symbol, result, arguments, names) result symbol arguments;
TENDRIL_NCCL_FUNCTIONS(TENDRIL_NCCL_BODY)
#undef TENDRIL_NCCL_BODY

// Prints the name once on stderr.
ncclResult_t refused(const char* name);

}  // namespace tendril::client::nccl

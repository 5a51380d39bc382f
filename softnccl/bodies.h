// SPDX-License-Identifier: Apache-2.0
// The bodies of the exported functions: soft_nccl_Foo is ncclFoo. entry.cc exports them.
#pragma once

#include "softnccl/nccl.h"

namespace tendril::softnccl {

#define TENDRIL_SOFTNCCL_BODY(name, arguments, names) ncclResult_t soft_nccl_##name arguments;
TENDRIL_SOFTNCCL_FUNCTIONS(TENDRIL_SOFTNCCL_BODY)
#undef TENDRIL_SOFTNCCL_BODY

}  // namespace tendril::softnccl

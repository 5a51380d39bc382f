// SPDX-License-Identifier: Apache-2.0
// What programs pass as ncclConfig_t and ncclCollConfig_t, as it travels: the bytes, and behind
// them the texts that they point to. Any thread.
#pragma once

#include <stdint.h>

#include <vector>

#include "api/nccl/element.h"
#include "api/nccl_abi.gen.h"

namespace tendril::client::nccl {

// Both append to `extra` and name the place in `element`. Null is no configuration, and is fine.
// Otherwise: success, or what the call answers; why is remembered for ncclGetLastError.
ncclResult_t add_configuration(const ncclConfig_t* config, api::nccl::Element* element,
                               std::vector<uint8_t>* extra);
ncclResult_t add_configuration(const ncclCollConfig_t* config, api::nccl::Element* element,
                               std::vector<uint8_t>* extra);

}  // namespace tendril::client::nccl

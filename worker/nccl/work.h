// SPDX-License-Identifier: Apache-2.0
// Reads what a client wants NCCL to do. Nothing of it is trusted: a number that NCCL would use to
// find memory is checked here, or means nothing to NCCL but an address on the GPU. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/nccl/element.h"
#include "api/nccl_abi.gen.h"

namespace tendril::worker::nccl {

// False: the bytes are no work, or point out of `extra_bytes`.
bool read_work(const uint8_t* bytes, uint64_t count, uint64_t extra_bytes,
               std::vector<api::nccl::Element>* work);

// The unique ids of a kInit.
std::vector<ncclUniqueId> ids_of(const api::nccl::Element& element, const std::string& extra);

// The program's configuration, without what points into the program's memory.
struct Configuration {
  alignas(8) uint8_t bytes[api::nccl::kConfigBytesMax] = {};
  ncclConfig_t* given = nullptr;  // null: the program gave none
};
void read_configuration(const api::nccl::Element& element, const std::string& extra,
                        Configuration* out);

bool is_collective(api::nccl::What what);
bool reduces(api::nccl::What what);

}  // namespace tendril::worker::nccl

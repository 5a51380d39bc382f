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

// The ranks that a kShrink leaves out.
std::vector<int> ranks_of(const api::nccl::Element& element, const std::string& extra);

// The unique ids of a kInit.
std::vector<ncclUniqueId> ids_of(const api::nccl::Element& element, const std::string& extra);

// The program's configuration, whose pointers point here or nowhere. It is not copied or moved.
struct Configuration {
  Configuration() = default;
  Configuration(const Configuration&) = delete;
  Configuration& operator=(const Configuration&) = delete;
  alignas(8) uint8_t bytes[api::nccl::kConfigBytesMax] = {};
  char texts[api::nccl::kConfigTextsMax][api::nccl::kConfigTextBytesMax] = {};
  bool is_given = false;  // the program gave one
  ncclConfig_t* of_communicator() {
    return is_given ? reinterpret_cast<ncclConfig_t*>(bytes) : nullptr;
  }
  const ncclCollConfig_t* of_collective() const {
    return is_given ? reinterpret_cast<const ncclCollConfig_t*>(bytes) : nullptr;
  }
};
// Of a collective, or of what makes a communicator: `element.what` says.
void read_configuration(const api::nccl::Element& element, const std::string& extra,
                        Configuration* out);

bool is_collective(api::nccl::What what);
bool reduces(api::nccl::What what);

}  // namespace tendril::worker::nccl

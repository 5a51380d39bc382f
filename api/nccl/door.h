// SPDX-License-Identifier: Apache-2.0
// How our libnccl.so.2 reaches sessions: a private table of our libcuda.so.1, found with
// cuGetExportTable. Both are of one build; `digest` says whether they are. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "api/nccl/element.h"

namespace tendril::api::nccl {

inline constexpr unsigned char kDoorId[16] = {'t', 'e', 'n', 'd', 'r', 'i', 'l', ' ',
                                              'n', 'c', 'c', 'l', 'd', 'o', 'o', 'r'};

// Results are NCCL's.
struct Door {
  size_t bytes;  // of this table
  uint64_t digest;
  // The version of the current device's server. The lowest, if there is no current device.
  uint32_t (*version)(int32_t* version);
  // The current device's ordinal; without a current context 0, as the CUDA runtime has it; -1:
  // there is no device.
  int32_t (*current_device)();
  // Does the work as one group: sends each server its part, then awaits all. `id`: of kUniqueId.
  // `text`: what went wrong, for people.
  uint32_t (*run)(const Element* work, size_t count, const void* extra, size_t extra_bytes,
                  void* id, char* text, size_t text_bytes);
  // Sends collectives and awaits nothing. False: nothing was sent, and `run` is to do the work:
  // it is several servers', belongs to a capture, or a communicator has failed.
  bool (*run_ahead)(const Element* work, size_t count);
  // What the worker has told of the communicator: ncclSuccess, or how it failed. No round trip.
  uint32_t (*failure)(int32_t device, uint64_t communicator);
  // What NCCL says of the communicator now. With ncclSuccess also the rank, and how many there are.
  uint32_t (*state)(int32_t device, uint64_t communicator, int32_t* rank, int32_t* ranks);
  uint32_t (*abort)(int32_t device, uint64_t communicator);
  uint32_t (*allocate)(void** memory, size_t bytes);
  uint32_t (*free)(void* memory);
};

}  // namespace tendril::api::nccl

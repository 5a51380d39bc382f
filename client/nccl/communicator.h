// SPDX-License-Identifier: Apache-2.0
// What the library knows: communicators by the handle that the program holds, the group that the
// calling thread collects, and the door to sessions. Any thread.
#pragma once

#include <atomic>
#include <vector>

#include "api/nccl/door.h"
#include "api/nccl_abi.gen.h"

namespace tendril::client::nccl {

struct Communicator {
  uint64_t id = 0;  // on the wire; 0: this record is free
  int32_t device = 0;
  int rank = 0, ranks = 0;  // 0 ranks: from a split, not asked for yet
  // A call without blocking may not be done: only NCCL knows the state. Any thread.
  std::atomic<bool> in_progress{false};
  // Of operations with a scalar of the program's, by number less ncclNumOps.
  struct Operation {
    bool alive = false, on_device = false;
    uint32_t type = 0;
    uint64_t scalar = 0;
  };
  std::vector<Operation> operations;
};

// Null: the handle is no living communicator.
Communicator* find(ncclComm_t handle);
// A new one, whose handle *made gets.
Communicator* create(ncclComm_t* made, int32_t device, int rank, int ranks);
void destroy(ncclComm_t handle);

// Null: this process' libcuda.so.1 is not Tendril's, or of another build; that has been told.
const api::nccl::Door* door();

// What one thread collects between ncclGroupStart and ncclGroupEnd.
struct Group {
  unsigned depth = 0;
  ncclResult_t failed = ncclSuccess;  // the first error of a call inside
  std::vector<api::nccl::Element> work;
  std::vector<uint8_t> extra;
  std::vector<ncclComm_t> made;  // they are no more if the group fails
};
// The calling thread's, or null: it has none open.
Group* open_group();
void start_group();
// Closes one level. The outermost does the work.
ncclResult_t end_group();

// Adds to the open group, or does it at once. `extra` is what the element points into, from 0.
ncclResult_t submit(api::nccl::Element element, const std::vector<uint8_t>& extra = {},
                    ncclComm_t made = nullptr);

// Does it at once, also inside of a group.
ncclResult_t do_now(const api::nccl::Element& element);

// The id of a communicator to come, from the server of the device: 128 bytes.
ncclResult_t ask_unique_id(int32_t device, void* id);

// Remembers what went wrong, for ncclGetLastError.
void remember(const char* text);
const char* last_error();

}  // namespace tendril::client::nccl

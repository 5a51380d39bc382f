// SPDX-License-Identifier: Apache-2.0
// What the library knows: communicators by the handle that the program holds, the group that the
// calling thread collects, and the door to sessions. Any thread.
#pragma once

#include <atomic>
#include <vector>

#include "api/nccl/door.h"
#include "api/nccl_abi.gen.h"

namespace tendril::client::nccl {

// Which calls NCCL has done before for a communicator, so that it waits for no other rank when it
// is asked again: a connection, or a way of summing, is made at its first use. The same function
// with the same peer and as many bytes, to a power of two. Two calls may count as one; then NCCL
// may wait where it was not expected to. Any thread.
class Familiar {
 public:
  static uint32_t key_of(const api::nccl::Element& element, uint64_t bytes);
  bool has(uint32_t key) const {
    return (words_[key / 64].load(std::memory_order_relaxed) >> key % 64 & 1) != 0;
  }
  void add(uint32_t key) {
    words_[key / 64].fetch_or(uint64_t{1} << key % 64, std::memory_order_relaxed);
  }
  void clear() {
    for (std::atomic<uint64_t>& word : words_) word.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr uint32_t kKeys = 2048;
  std::atomic<uint64_t> words_[kKeys / 64] = {};
};

struct Communicator {
  uint64_t id = 0;  // on the wire; 0: this record is free
  int32_t device = 0;
  int rank = 0, ranks = 0;  // 0 ranks: from a split, not asked for yet
  // A call without blocking may not be done: only NCCL knows the state. Any thread.
  std::atomic<bool> in_progress{false};
  std::atomic<bool> blocking{true};  // NCCL's calls return when they have done their work
  Familiar familiar;
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
// Whether all communicators that this process has made are of one device. Then NCCL may be called
// ahead: no call of one rank keeps the call of another from reaching NCCL.
bool has_one_device();
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
  // Collectives that are done as all of these are familiar, or make them so.
  struct Use {
    Communicator* communicator;
    uint32_t key;
  };
  std::vector<Use> uses;
  bool only_collectives = true;
};
// The calling thread's, or null: it has none open.
Group* open_group();
void start_group();
// Closes one level. The outermost does the work.
ncclResult_t end_group();

// Adds to the open group, or does it at once. `extra` is what the element points into, from 0.
ncclResult_t submit(api::nccl::Element element, const std::vector<uint8_t>& extra = {},
                    ncclComm_t made = nullptr);
// The same for a collective with nothing in `extra`. It may be done after this returns; what fails
// then, the communicator's state says.
ncclResult_t submit_collective(const api::nccl::Element& element, Communicator* communicator,
                               uint64_t bytes);

// Does it at once, also inside of a group.
ncclResult_t do_now(const api::nccl::Element& element);

// The id of a communicator to come, from the server of the device: 128 bytes.
ncclResult_t ask_unique_id(int32_t device, void* id);

// Remembers what went wrong, for ncclGetLastError.
void remember(const char* text);
const char* last_error();

}  // namespace tendril::client::nccl

// SPDX-License-Identifier: Apache-2.0
// Parks a session: its device memory goes to this process' host memory and is free on the GPUs,
// while addresses, contexts and handles stay. tendrild orders it (core/park_line.h) and says when
// the memory may come back. docs/decisions/0032 says what leaves and what stays.
//
// The copies stay when the memory is back, so that the next park copies only what was written since
// (docs/decisions/0032), until tendrild wants their room.
//
// It happens between calls, or while a call waits at the gate, and only when all that was given to
// the GPUs is done; never in the middle of work. A call that comes while the memory is away asks
// tendrild for the lease's slices, waits, and then finds every byte where it was. Executor thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "session/lane/service.h"
#include "worker/core/park_line.h"
#include "worker/cuda/executor/executor.h"
#include "worker/cuda/memory/device_blocks.h"
#include "worker/cuda/parking/host_store.h"

namespace tendril::worker::cuda {

class Parking {
 public:
  // `line` may be null (tests): then nobody parks the session. `accounting` too.
  Parking(Executor* executor, ParkLine* line, wire::AccountingPage* accounting);

  // There is something to do between calls.
  bool ordered() const {
    return line_ != nullptr && (line_->wanted() != done_ || line_->chore() != ParkChore::kNone);
  }
  // Does it, if it can be done now. Otherwise call it again soon.
  void obey();
  // A call waits at the gate. False: the session is over.
  bool obey_at_gate();

  bool away() const { return away_ != 0; }
  // Calls matter to what is in the host's memory: tell them here before they run. One load.
  bool attends() const { return attends_; }
  // False: the session is over. *answered: the call is done.
  bool attend(const session::Call& call, bool* answered);

 private:
  // Whether this call can be answered without any device memory.
  static bool works_while_away(uint16_t opcode);
  // Answers a copy to the client out of what is parked. No GPU is needed. False: it cannot, and
  // nothing was answered. The call's context is current.
  static bool reads(const session::Call& call);
  bool read(const session::Call& call);
  bool read_to_shared(const session::Call& call);
  // Before any other call. Blocks until the memory is back. False: the session is over.
  bool wake();
  // Which copies are not as their memory once this call has run.
  void note_writes(const session::Call& call);
  bool note_range(const session::Call& call);
  void park(uint32_t number);
  bool settled(std::string* never);
  // Blocks that are copied together. Then their memory is free, before the next are copied.
  static constexpr uint64_t kLotBytes = 256u << 20;
  using Blocks = std::vector<DeviceBlocks::Block*>;
  struct Lots {
    std::vector<Blocks> blocks;
    std::vector<HostStore::Lot> ranges;  // of the same number
  };
  template <typename Which>
  Lots lots_of(Which&& which) const;
  static bool may_leave(const DeviceBlocks::Block& block);
  CUresult leave(uint32_t number, uint64_t* bytes);
  CUresult release(const Blocks& lot, uint64_t* bytes);
  void return_all(uint32_t number);
  CUresult bring_back();
  CUresult restore(const Blocks& lot);
  void obey_order(uint32_t wanted);
  void do_chore();
  void forget_copies();
  bool copy_ahead();
  void account(uint32_t slot, int64_t bytes);
  void moved(uint64_t bytes);
  bool stays_back(CUresult result);

  Executor& executor_;
  ParkLine* const line_;
  wire::AccountingPage* const accounting_;
  HostStore store_;
  uint32_t done_ = 0;          // the order that was obeyed or refused; 0: the memory is here
  uint32_t away_ = 0;          // under this number; 0: it is here
  bool attends_ = false;       // it is away, or a copy is as its memory
  bool copies_ahead_ = false;  // has begun to
};

}  // namespace tendril::worker::cuda

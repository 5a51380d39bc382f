// SPDX-License-Identifier: Apache-2.0
// GPUDirect: copies between the client and a GPU that a network card does alone, without the
// worker's staging. It knows which cards carry the session's data, whether they were tried with
// this GPU, and which device memory is registered with them. The rules are direct_choice.h's.
// docs/decisions/0045 says when a copy goes this way. Not exercised on hardware.
//
// Executor thread, except `read`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "session/lane/service.h"
#include "transport/registry.h"
#include "worker/core/exports.h"
#include "worker/cuda/executor/executor.h"
#include "worker/cuda/memory/device_blocks.h"
#include "worker/cuda/memory/direct_choice.h"

namespace tendril::worker::cuda {

class Direct final : public session::DeviceReader {
 public:
  Direct(Executor* executor, Exports* exports);
  ~Direct();
  // The cards that carry, or may come to carry, the session's data. Before the first call.
  void lend(std::shared_ptr<transport::PinnedMemory> cards);

  // Whether cards may write or read that memory of the call's context now: nothing that the copy
  // must come after is under way on `stream`. Registers the memory. The first copy to the device
  // that is long enough tries the cards; only its own destination is written for that.
  bool may_write(uint64_t address, uint64_t bytes, CUstream stream);
  bool may_read(uint64_t address, uint64_t bytes, CUstream stream);
  // After cards have written: from now on the GPU sees it.
  CUresult written();
  // For what may_read allowed; blocks until the client has it all.
  CUresult send(uint64_t transfer, uint64_t address, uint64_t bytes);
  // Before the block's memory goes, or leaves its GPU: no card knows it any more.
  void forget(const DeviceBlocks::Block& block);

  // When the session is over: tells how much cards have moved, if they have.
  void tell_sum();

  // What no card reads, in the context of the last may_read.
  bool read(uint64_t address, void* into, uint64_t bytes) override;

 private:
  struct Pair {  // of a GPU and a port
    std::shared_ptr<transport::CardPort> port;
    DirectChoice choice;
  };
  struct Gpu {
    DirectPlan plan;
    bool known = false, tried = false;
    std::vector<Pair> pairs;  // those that passed
    bool to_device = false, to_host = false;
  };
  struct Part {
    uint64_t bytes = 0, used = 0;
    uint32_t slot = 0;
    bool refused = false;  // a card did not take it, and is not asked again
  };

  Gpu& gpu_of(uint32_t slot);
  bool carries();
  // The block that holds the range, if its memory may be registered.
  const DeviceBlocks::Block* block_of(uint64_t address, uint64_t bytes);
  bool is_idle(CUstream stream);
  bool is_registered(const Gpu& gpu, const DeviceBlocks::Block& block, uint64_t address,
                     uint64_t bytes);
  void add_part(const Gpu& gpu, const DeviceBlocks::Block& block, const DirectPart& part);
  base::Status register_part(transport::CardPort* port, const DirectPlan& plan,
                             const DeviceBlocks::Block& block, const DirectPart& part);
  void drop_part(uint64_t begin);
  void give_up();
  void try_cards(Gpu* gpu, const DeviceBlocks::Block& block, uint64_t address);
  base::Status try_card(transport::CardPort* port, const DirectPlan& plan, uint64_t address,
                        uint8_t* host, DirectTrial* trial);
  void tell(const std::string& text);

  Executor& w_;
  Exports* const exports_;
  const DirectMode mode_;
  std::shared_ptr<transport::PinnedMemory> cards_;
  std::map<uint32_t, Gpu> gpus_;    // by slot
  std::map<uint64_t, Part> parts_;  // by address: what is registered, with all ports of its GPU
  uint64_t uses_ = 0;
  CUcontext context_ = nullptr;  // of the last may_read
  std::mutex read_mutex_;
};

}  // namespace tendril::worker::cuda

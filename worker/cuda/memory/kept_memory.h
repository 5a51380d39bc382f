// SPDX-License-Identifier: Apache-2.0
// Memory that a driver keeps is charged to the slice. For a pool or a graph's allocation nodes, a
// driver takes memory in pieces. It keeps what the program frees, until it trims or synchronises.
// So an allocation or launch passes if the most memory that it may need fits the quota. For an
// allocation that is all of it: nobody can tell which freed memory of a pool it may have.
// Afterwards the slice is charged for what the driver says it holds. When a slice runs short,
// memory kept by pools goes back first, and what streams have still to free is waited for. Memory
// kept by graphs stays until the program trims it. Executor thread.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "worker/cuda/executor/executor.h"

namespace tendril::worker::cuda {

class KeptMemory {
 public:
  explicit KeptMemory(Executor* executor);

  // False until the first allocation node: then graphs need no work here.
  bool has_graphs() const { return has_graphs_; }
  void use_graphs() { has_graphs_ = true; }
  // Notes how much the allocation nodes of `exec` may take. `exec` was made from `graph`. True: it
  // has such nodes, or it frees memory of other graphs.
  bool instantiated(CUgraphExec exec, CUgraph graph);
  // `order`: the client's number of the stream. False: the launch could exceed the quota.
  bool before_launch(CUgraphExec exec, uint64_t order);
  // Memory of graphs is freed in the order of this stream.
  void note_order(uint64_t order);
  // Charges a slot for what the driver now holds for graphs of its device.
  void settle_graphs(uint32_t slot);

  // CUDA_ERROR_OUT_OF_MEMORY: the slice has no room, or the allocation took more than there was.
  CUresult allocate(CUmemoryPool pool, uint64_t bytes, CUstream stream, CUdeviceptr* address);
  // The memory at an address has gone back to its pool.
  void freed(CUdeviceptr address);
  // The driver has destroyed a pool. What it held is charged until its last block is freed,
  // because one block keeps a whole piece, and until the streams have got there.
  void destroyed(CUmemoryPool pool);
  // Charges every pool's slot for what the pool now holds.
  void settle_pools();
  // A driver gives up free memory when somebody synchronises, and reports it to nobody. So after a
  // free the executor looks a few times while it is idle. Milliseconds until the next look; -1:
  // none is due.
  int look_again_ms() const {
    if (looks_left_ == 0 && !leaving_.empty()) return kFirstLookMs << kLooks;
    return looks_left_ == 0 || (pools_.empty() && leaving_.empty())
               ? -1
               : kFirstLookMs << (kLooks - looks_left_);
  }
  void look_again();
  // Passes a driver's result on. If it has no memory although the slice has, the server's log says
  // so: then more was promised than there is, or somebody outside uses the GPU.
  CUresult refused(CUresult result, uint32_t slot, uint64_t bytes);
  // Sets a limit of the call's context. The slice is charged for what kernels' stack, heap and
  // printf buffer take beyond the default. A heap is charged more than its limit.
  CUresult set_limit(CUlimit limit, uint64_t value);
  // The primary context of a slot was reset. Its pools hold nothing now.
  void forget_slot(uint32_t slot);

 private:
  CUresult set_stack(uint64_t value);
  struct Pool {
    uint32_t slot;
    uint64_t charged = 0;
    uint64_t room = 0;  // of that, surely free for the next allocation in any stream
  };
  struct Ended {
    uint32_t slot;
    uint64_t charged, blocks;
  };
  struct Block {
    CUmemoryPool pool;
    uint64_t bytes;
    uint64_t ended = 0;  // a key of ended_, if its pool is destroyed
  };
  struct Limit {
    uint64_t by_default = 0;
    uint64_t charged = 0;  // the key in the charge
  };
  bool settle(CUmemoryPool handle, Pool* pool, bool anyway);
  uint64_t most_growth(uint64_t bytes) const;
  bool take_ahead(CUmemoryPool handle, uint32_t slot, uint64_t bytes, uint64_t* ahead);
  template <typename Fits>
  bool wait_for_room(uint32_t slot, Fits&& fits);
  bool streams_are_done();
  void note_growth(Pool* pool, uint64_t bytes, uint64_t before, uint64_t room);
  void leaves(const Ended& ended);
  void give_up(uint32_t slot);

  static constexpr int kLooks = 8, kFirstLookMs = 20;
  Executor& w_;
  int looks_left_ = 0;
  bool has_graphs_ = false;
  std::unordered_map<CUgraphExec, uint64_t> needs_;
  std::unordered_map<CUmemoryPool, Pool> pools_;
  std::unordered_map<CUdeviceptr, Block> blocks_;
  std::unordered_map<uint64_t, Ended> ended_;
  uint64_t ended_count_ = 0;
  std::vector<Ended> leaving_;  // all is freed, but perhaps no stream has got there
  bool by_bytes_ = false;       // a driver without costs that does not grow by whole pieces
  int shortages_told_ = 0;
  std::map<uint32_t, uint64_t> graphs_charged_;  // by slot
  // The stream in which all has been that graphs did with memory since all streams were done.
  enum class Orders : uint8_t { kNone, kOne, kSeveral } orders_ = Orders::kNone;
  uint64_t order_ = 0;          // if it is one
  uint64_t launch_growth_ = 0;  // charged ahead of the launch under way
  std::map<std::pair<const WorkerContext*, CUlimit>, Limit> limits_;
};

}  // namespace tendril::worker::cuda

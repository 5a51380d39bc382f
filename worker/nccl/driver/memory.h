// SPDX-License-Identifier: Apache-2.0
// What NCCL takes of the session's slices: each of its driver calls that takes memory is charged
// here before the driver is asked, by the rules that hold for the program's own
// (docs/decisions/0020-what-a-driver-takes.md). NCCL calls on threads of its own, so this has an
// account of its own on the slices' common pages. Any thread; no lock is held in the driver.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "gpu/cuda/driver.h"
#include "worker/core/charge.h"
#include "worker/core/host_use.h"
#include "worker/core/page_charge.h"
#include "worker/core/pinned_charge.h"

namespace tendril::worker::nccl {

class Memory {
 public:
  using Call = std::function<CUresult()>;  // of the driver

  // `devices`: the driver's ordinal of each slot.
  Memory(const gpu::Driver* driver, const Charge& account, HostUse* host,
         std::vector<CUdevice> devices);

  // What NCCL does in this context is the slot's. Other contexts are those of their device.
  void belongs(CUcontext context, uint32_t slot);
  // The driver has ended the context with its memory.
  void context_ended(CUcontext context);
  // True, once: a slice had no room since the last call.
  bool had_no_room() { return no_room_.exchange(false); }
  const gpu::Driver& driver() const { return driver_; }

  // As the driver's calls of these names. CUDA_ERROR_OUT_OF_MEMORY: the slice has no room.
  CUresult allocate(CUdeviceptr* address, size_t bytes);
  CUresult allocate_pitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                          unsigned element);
  CUresult deallocate(CUdeviceptr address);
  CUresult create(CUmemGenericAllocationHandle* handle, size_t bytes,
                  const CUmemAllocationProp* properties, unsigned long long flags);
  CUresult retain(CUmemGenericAllocationHandle* handle, void* address);
  CUresult release(CUmemGenericAllocationHandle handle);
  CUresult map(CUdeviceptr address, size_t bytes, size_t offset,
               CUmemGenericAllocationHandle handle, unsigned long long flags);
  CUresult unmap(CUdeviceptr address, size_t bytes);
  CUresult create_pool(CUmemoryPool* pool, const CUmemPoolProps* properties);
  CUresult trim_pool(CUmemoryPool pool, size_t keep);
  CUresult destroy_pool(CUmemoryPool pool);
  // `allocate` and `give_up` do it in the order of a stream. `pool` null: from the device's own
  // pool.
  CUresult allocate_in_order(CUmemoryPool pool, CUdeviceptr* address, size_t bytes,
                             const Call& allocate);
  CUresult free_in_order(CUdeviceptr address, const Call& give_up);
  // `pin` pins memory of the host, which is at *memory from then on; `unpin` ends that.
  CUresult pin(void* const* memory, size_t bytes, const Call& pin);
  CUresult unpin(void* memory, const Call& unpin);
  // `make` makes *stream in the current context.
  CUresult make_stream(CUstream* stream, const Call& make);
  CUresult destroy_stream(CUstream stream);
  // Of the session's GPUs the worker has the primary contexts already.
  CUresult retain_primary(CUcontext* context, CUdevice device);
  // `make` makes *context.
  CUresult make_context(CUcontext* context, CUdevice device, const Call& make);
  CUresult destroy_context(CUcontext context);

 private:
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  struct Place {
    CUcontext context = nullptr;
    uint32_t slot = kNoSlot;
  };
  struct Physical {
    uint32_t slot;  // kNoSlot: memory of the host
    uint64_t bytes;
    uint32_t handles = 1, mappings = 0;
  };
  struct Mapping {
    uint64_t bytes, handle;
  };
  struct Pool {
    uint32_t slot;
    uint64_t charged = 0;
  };
  struct Ordered {  // from the device's own pool
    uint32_t slot;
    uint64_t bytes;
  };
  using Hold = std::unique_lock<std::mutex>;

  // Where the calling thread works. slot kNoSlot: it has no context, or another GPU's.
  Place place();
  uint32_t slot_of(CUdevice device) const;
  CUresult refuse();
  bool take_host(uint64_t bytes);
  void give_back_host(uint64_t bytes);
  void give_back(const Physical& physical);
  // Takes out what neither a handle nor a mapping needs. lock held
  bool take_out(uint64_t handle, Physical* gone);
  void settle(CUmemoryPool handle, uint64_t ahead);

  const gpu::Driver& driver_;
  HostUse& host_;
  const std::vector<CUdevice> devices_;
  std::atomic<bool> no_room_{false};
  std::mutex mutex_;  // guards all that follows
  Charge charge_;
  PageCharge pages_;
  PinnedCharge pinned_;
  std::unordered_map<CUcontext, uint32_t> slots_;
  // Which allocation is at an address: the driver may give it out again before a free has returned.
  std::unordered_map<CUdeviceptr, uint64_t> serials_;
  uint64_t next_serial_ = 1;
  std::unordered_map<uint64_t, Physical> physical_;
  std::map<uint64_t, Mapping> mappings_;
  std::unordered_map<CUmemoryPool, Pool> pools_;
  std::unordered_map<CUdeviceptr, CUmemoryPool> from_pool_;
  std::unordered_map<CUdeviceptr, Ordered> ordered_;
  std::unordered_map<void*, uint64_t> pinned_at_;
  std::unordered_map<CUcontext, uint32_t> made_;  // contexts
  std::unordered_map<CUstream, uint32_t> streams_;
  struct Streams {
    uint64_t now = 0, most = 0;  // a driver keeps what a stream had for the next
  };
  std::map<uint32_t, Streams> streams_of_;
};

}  // namespace tendril::worker::nccl

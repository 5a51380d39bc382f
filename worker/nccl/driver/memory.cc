// SPDX-License-Identifier: Apache-2.0
// See memory.h.
#include "worker/nccl/driver/memory.h"

#include <algorithm>

#include "base/page_blocks.h"
#include "worker/cuda/memory/context_memory.h"

namespace tendril::worker::nccl {
namespace {

constexpr uint64_t kPitchAlign = 512;       // what drivers round rows up to
constexpr uint64_t kPoolPiece = 32u << 20;  // what a pool grows by
constexpr uint64_t kBytesMax = uint64_t{1} << 48;

}  // namespace

Memory::Memory(const gpu::Driver* driver, const Charge& account, HostUse* host,
               std::vector<CUdevice> devices)
    : driver_(*driver),
      host_(*host),
      devices_(std::move(devices)),
      charge_(account.beside()),
      pages_(&charge_),
      pinned_(&charge_, static_cast<uint32_t>(devices_.size())) {}

void Memory::belongs(CUcontext context, uint32_t slot) {
  const Hold hold(mutex_);
  slots_[context] = slot;
}

void Memory::context_ended(CUcontext context) {
  const Hold hold(mutex_);
  pages_.release_context(context);
  slots_.erase(context);
}

uint32_t Memory::slot_of(CUdevice device) const {
  const auto found = std::find(devices_.begin(), devices_.end(), device);
  return found != devices_.end() ? static_cast<uint32_t>(found - devices_.begin()) : kNoSlot;
}

Memory::Place Memory::place() {
  Place place;
  CUdevice device = 0;
  if (driver_.cuCtxGetCurrent(&place.context) != CUDA_SUCCESS || place.context == nullptr)
    return {};
  {
    const Hold hold(mutex_);
    const auto found = slots_.find(place.context);
    if (found != slots_.end()) place.slot = found->second;
  }
  if (place.slot == kNoSlot && driver_.cuCtxGetDevice(&device) == CUDA_SUCCESS)
    place.slot = slot_of(device);
  return place;
}

CUresult Memory::refuse() {
  no_room_.store(true);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Memory::allocate(CUdeviceptr* address, size_t bytes) {
  const Place at = place();
  if (at.context == nullptr) return driver_.cuMemAlloc_v2(address, bytes);
  uint64_t ahead = 0;
  {
    const Hold hold(mutex_);
    if (!pages_.before(at.slot, bytes, &ahead)) return refuse();
  }
  const CUresult result = driver_.cuMemAlloc_v2(address, bytes);
  Hold hold(mutex_);
  if (result != CUDA_SUCCESS) {
    pages_.refused(at.slot, ahead);
    return result;
  }
  if (serials_.count(*address) != 0) pages_.freed(*address);
  if (pages_.after(at.slot, *address, bytes, at.context, ahead)) {
    serials_[*address] = next_serial_++;
    return result;
  }
  serials_.erase(*address);
  hold.unlock();
  driver_.cuMemFree_v2(*address);
  return refuse();
}

// A row is as long as any driver makes it.
CUresult Memory::allocate_pitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                                unsigned element) {
  if (pitch == nullptr || width == 0 || height == 0 || width > kBytesMax / height ||
      (element != 4 && element != 8 && element != 16))
    return CUDA_ERROR_INVALID_VALUE;
  const size_t row = base::rounded_up(width, kPitchAlign);
  const CUresult result = allocate(address, row * height);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

CUresult Memory::deallocate(CUdeviceptr address) {
  uint64_t serial = 0;
  {
    const Hold hold(mutex_);
    const auto found = serials_.find(address);
    if (found != serials_.end()) serial = found->second;
  }
  if (serial == 0)  // of a pool, or not NCCL's
    return free_in_order(address, [&] { return driver_.cuMemFree_v2(address); });
  const CUresult result = driver_.cuMemFree_v2(address);
  const Hold hold(mutex_);
  const auto found = serials_.find(address);
  if (result != CUDA_SUCCESS || found == serials_.end() || found->second != serial) return result;
  serials_.erase(found);
  pages_.freed(address);
  return result;
}

CUresult Memory::create(CUmemGenericAllocationHandle* handle, size_t bytes,
                        const CUmemAllocationProp* properties, unsigned long long flags) {
  if (handle == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Physical made = {kNoSlot, bytes};
  if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    const Place at = place();
    const bool here = at.slot != kNoSlot && devices_[at.slot] == properties->location.id;
    made.slot = here ? at.slot : slot_of(properties->location.id);
    if (made.slot == kNoSlot) return CUDA_ERROR_INVALID_DEVICE;
  }
  {
    const Hold hold(mutex_);
    const bool taken = made.slot == kNoSlot ? take_host(bytes) : charge_.try_take(made.slot, bytes);
    if (!taken) return refuse();
  }
  const CUresult result = driver_.cuMemCreate(handle, bytes, properties, flags);
  const Hold hold(mutex_);
  if (result == CUDA_SUCCESS)
    physical_[*handle] = made;
  else
    give_back(made);
  return result;
}

CUresult Memory::retain(CUmemGenericAllocationHandle* handle, void* address) {
  const CUresult result = driver_.cuMemRetainAllocationHandle(handle, address);
  if (result != CUDA_SUCCESS) return result;
  const Hold hold(mutex_);
  const auto found = physical_.find(*handle);
  if (found != physical_.end()) ++found->second.handles;
  return result;
}

bool Memory::take_out(uint64_t handle, Physical* gone) {
  const auto found = physical_.find(handle);
  if (found == physical_.end() || found->second.handles != 0 || found->second.mappings != 0)
    return false;
  *gone = found->second;
  physical_.erase(found);
  return true;
}

// It is taken out before the driver may give its number to another, and paid until it is gone.
CUresult Memory::release(CUmemGenericAllocationHandle handle) {
  Physical gone = {kNoSlot, 0};
  bool known = false, last = false;
  {
    const Hold hold(mutex_);
    const auto found = physical_.find(handle);
    known = found != physical_.end() && found->second.handles != 0;
    if (known) --found->second.handles;
    last = known && take_out(handle, &gone);
  }
  const CUresult result = driver_.cuMemRelease(handle);
  const Hold hold(mutex_);
  if (result == CUDA_SUCCESS) {
    if (last) give_back(gone);
    return result;
  }
  if (last) physical_[handle] = gone;
  if (known) ++physical_[handle].handles;
  return result;
}

CUresult Memory::map(CUdeviceptr address, size_t bytes, size_t offset,
                     CUmemGenericAllocationHandle handle, unsigned long long flags) {
  const CUresult result = driver_.cuMemMap(address, bytes, offset, handle, flags);
  const Hold hold(mutex_);
  const auto found = physical_.find(handle);
  if (result != CUDA_SUCCESS || found == physical_.end()) return result;
  ++found->second.mappings;
  mappings_[address] = {bytes, handle};
  return result;
}

CUresult Memory::unmap(CUdeviceptr address, size_t bytes) {
  std::map<uint64_t, Mapping> ended;
  {
    const Hold hold(mutex_);
    auto at = mappings_.lower_bound(address);
    while (at != mappings_.end() && at->first - address < bytes) {
      ended.insert(*at);
      at = mappings_.erase(at);
    }
  }
  const CUresult result = driver_.cuMemUnmap(address, bytes);
  const Hold hold(mutex_);
  if (result != CUDA_SUCCESS) {
    mappings_.insert(ended.begin(), ended.end());
    return result;
  }
  for (const auto& [begin, mapping] : ended) {
    const auto found = physical_.find(mapping.handle);
    if (found == physical_.end()) continue;
    --found->second.mappings;
    Physical gone = {kNoSlot, 0};
    if (take_out(mapping.handle, &gone)) give_back(gone);
  }
  return result;
}

void Memory::give_back(const Physical& physical) {
  if (physical.slot == kNoSlot)
    give_back_host(physical.bytes);
  else
    charge_.give_back(physical.slot, physical.bytes);
}

bool Memory::take_host(uint64_t bytes) {
  if (!host_.take(bytes)) return false;
  if (pinned_.take(bytes)) return true;
  host_.give_back(bytes);
  return false;
}

void Memory::give_back_host(uint64_t bytes) {
  pinned_.give_back(bytes);
  host_.give_back(bytes);
}

CUresult Memory::create_pool(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  if (pool == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // A pool of memory of the host has no bound that could be charged ahead.
  if (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  const uint32_t slot = slot_of(properties->location.id);
  if (slot == kNoSlot) return CUDA_ERROR_INVALID_DEVICE;
  const CUresult result = driver_.cuMemPoolCreate(pool, properties);
  const Hold hold(mutex_);
  if (result == CUDA_SUCCESS) pools_[*pool] = {slot};
  return result;
}

// The pool pays what it holds. `ahead` was taken for it before.
void Memory::settle(CUmemoryPool handle, uint64_t ahead) {
  cuuint64_t held = 0;
  const CUresult asked =
      driver_.cuMemPoolGetAttribute(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held);
  const Hold hold(mutex_);
  const auto found = pools_.find(handle);
  if (found == pools_.end()) return;
  Pool& pool = found->second;
  pool.charged += ahead;
  if (asked != CUDA_SUCCESS) return;
  if (held < pool.charged)
    charge_.give_back(pool.slot, pool.charged - held);
  else
    charge_.take_anyway(pool.slot, held - pool.charged);
  pool.charged = held;
}

CUresult Memory::allocate_in_order(CUmemoryPool pool, CUdeviceptr* address, size_t bytes,
                                   const Call& allocate) {
  if (bytes > kBytesMax) return CUDA_ERROR_OUT_OF_MEMORY;
  const Place at = place();
  uint32_t slot = at.slot;
  uint64_t ahead = base::whole_pages(bytes);
  bool own = false;
  {
    const Hold hold(mutex_);
    const auto found = pools_.find(pool);
    own = found != pools_.end();
    if (own) {
      slot = found->second.slot;
      ahead = base::rounded_up(bytes, kPoolPiece);
      if (!charge_.try_take(slot, ahead)) {
        // It may have room in what it holds.
        ahead = 0;
        cuuint64_t held = 0, used = 0;
        driver_.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &held);
        driver_.cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
        if (bytes > held - std::min(used, held)) return refuse();
      }
    } else if (!charge_.try_take(slot, ahead)) {
      return refuse();
    }
  }
  const CUresult result = allocate();
  if (own) {
    settle(pool, ahead);
    const Hold hold(mutex_);
    if (result == CUDA_SUCCESS) from_pool_[*address] = pool;
    return result;
  }
  const Hold hold(mutex_);
  if (result == CUDA_SUCCESS)
    ordered_[*address] = {slot, ahead};
  else
    charge_.give_back(slot, ahead);
  return result;
}

CUresult Memory::free_in_order(CUdeviceptr address, const Call& give_up) {
  CUmemoryPool pool = nullptr;
  Ordered gone = {kNoSlot, 0};
  {
    const Hold hold(mutex_);
    if (const auto found = from_pool_.find(address); found != from_pool_.end()) {
      pool = found->second;
      from_pool_.erase(found);
    }
    if (const auto found = ordered_.find(address); found != ordered_.end()) {
      gone = found->second;
      ordered_.erase(found);
    }
  }
  const CUresult result = give_up();
  if (pool != nullptr) settle(pool, 0);
  if (gone.slot == kNoSlot) return result;
  const Hold hold(mutex_);
  if (result == CUDA_SUCCESS)
    charge_.give_back(gone.slot, gone.bytes);
  else
    ordered_[address] = gone;
  return result;
}

CUresult Memory::trim_pool(CUmemoryPool pool, size_t keep) {
  const CUresult result = driver_.cuMemPoolTrimTo(pool, keep);
  settle(pool, 0);
  return result;
}

CUresult Memory::destroy_pool(CUmemoryPool pool) {
  Pool gone = {kNoSlot};
  {
    const Hold hold(mutex_);
    const auto found = pools_.find(pool);
    if (found != pools_.end()) gone = found->second;
    pools_.erase(pool);
  }
  const CUresult result = driver_.cuMemPoolDestroy(pool);
  if (gone.slot == kNoSlot) return result;
  const Hold hold(mutex_);
  if (result == CUDA_SUCCESS)
    charge_.give_back(gone.slot, gone.charged);
  else
    pools_[pool] = gone;
  return result;
}

CUresult Memory::pin(void* const* memory, size_t bytes, const Call& pin) {
  {
    const Hold hold(mutex_);
    if (!take_host(bytes)) return refuse();
  }
  const CUresult result = pin();
  const Hold hold(mutex_);
  if (result == CUDA_SUCCESS)
    pinned_at_[*memory] = bytes;
  else
    give_back_host(bytes);
  return result;
}

CUresult Memory::unpin(void* memory, const Call& unpin) {
  uint64_t bytes = 0;
  {
    const Hold hold(mutex_);
    const auto found = pinned_at_.find(memory);
    if (found != pinned_at_.end()) bytes = found->second;
    pinned_at_.erase(memory);
  }
  const CUresult result = unpin();
  if (bytes == 0) return result;
  const Hold hold(mutex_);
  if (result == CUDA_SUCCESS)
    give_back_host(bytes);
  else
    pinned_at_[memory] = bytes;
  return result;
}

CUresult Memory::make_stream(CUstream* stream, const Call& make) {
  const Place at = place();
  if (at.context == nullptr) return make();
  if (at.slot == kNoSlot) return CUDA_ERROR_INVALID_DEVICE;
  const auto cost = [](uint64_t streams) {
    return base::whole_pages(streams * cuda::kStreamBytes);
  };
  {
    const Hold hold(mutex_);
    Streams& all = streams_of_[at.slot];
    const bool more = all.now == all.most && charge_.context_bytes(at.slot) != 0;
    if (more && !charge_.try_take(at.slot, cost(all.most + 1) - cost(all.most))) return refuse();
    ++all.now;
    all.most = std::max(all.most, all.now);
  }
  const CUresult result = make();
  const Hold hold(mutex_);
  if (result == CUDA_SUCCESS)
    streams_[*stream] = at.slot;
  else
    --streams_of_[at.slot].now;
  return result;
}

CUresult Memory::destroy_stream(CUstream stream) {
  uint32_t slot = kNoSlot;
  {
    const Hold hold(mutex_);
    const auto found = streams_.find(stream);
    if (found != streams_.end()) slot = found->second;
    streams_.erase(stream);
  }
  const CUresult result = driver_.cuStreamDestroy_v2(stream);
  const Hold hold(mutex_);
  if (slot != kNoSlot) --streams_of_[slot].now;
  return result;
}

CUresult Memory::retain_primary(CUcontext* context, CUdevice device) {
  if (slot_of(device) == kNoSlot) return CUDA_ERROR_INVALID_DEVICE;
  return driver_.cuDevicePrimaryCtxRetain(context, device);
}

CUresult Memory::make_context(CUcontext* context, CUdevice device, const Call& make) {
  const uint32_t slot = slot_of(device);
  if (slot == kNoSlot) return CUDA_ERROR_INVALID_DEVICE;
  {
    const Hold hold(mutex_);
    if (!charge_.try_take(slot, charge_.context_bytes(slot))) return refuse();
  }
  const CUresult result = make();
  const Hold hold(mutex_);
  if (result == CUDA_SUCCESS)
    made_[*context] = slot;
  else
    charge_.give_back(slot, charge_.context_bytes(slot));
  return result;
}

CUresult Memory::destroy_context(CUcontext context) {
  uint32_t slot = kNoSlot;
  {
    const Hold hold(mutex_);
    const auto found = made_.find(context);
    if (found != made_.end()) slot = found->second;
    made_.erase(context);
  }
  const CUresult result = driver_.cuCtxDestroy_v2(context);
  if (result != CUDA_SUCCESS || slot == kNoSlot) return result;
  context_ended(context);
  const Hold hold(mutex_);
  charge_.give_back(slot, charge_.context_bytes(slot));
  return result;
}

}  // namespace tendril::worker::nccl

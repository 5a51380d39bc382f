// SPDX-License-Identifier: Apache-2.0
// Virtual memory management. Reservations and mappings are ranges of the client's map
// (range_map.h); physical memory has a record with its references here, so the program can get a
// handle back that it released while the memory was mapped. A reservation is made on the server of
// the current context. If memory of another server is mapped into it, that server reserves the same
// addresses.
#include <string.h>

#include <unordered_map>

#include "client/cuda/memory/export_handle.h"
#include "client/cuda/memory/keeper.h"
#include "client/cuda/memory/memory.h"
#include "client/cuda/stream/capture.h"

namespace tendril::client::cuda {

// Physical memory that the program holds or has mapped, by handle.
struct Physicals {
  struct One {
    Object* object = nullptr;
    Device* device = nullptr;
    uint32_t references = 0;  // the program's
    uint32_t mappings = 0;
  };
  base::Lock lock;
  std::unordered_map<uint64_t, One> all;
};

namespace {

constexpr uint64_t kFillerMost = 1u << 30;  // of addresses, which cost nothing

using Physical = Physicals::One;

// The record of a handle that the program still holds.
Physical* find_physical(uint64_t handle) {
  auto it = process()->physicals->all.find(handle);
  return it != process()->physicals->all.end() && it->second.references != 0 ? &it->second
                                                                             : nullptr;
}

void drop_if_unused(uint64_t handle) {
  auto it = process()->physicals->all.find(handle);
  if (it == process()->physicals->all.end() || it->second.references != 0 ||
      it->second.mappings != 0)
    return;
  destroy_object(Kind::kAllocation, it->second.object);
  process()->physicals->all.erase(it);
}

// Counts a mapping of a handle that the program still holds; *out gets a copy of its record.
bool count_mapping(uint64_t handle, Physical* out) {
  const base::Locked held(process()->physicals->lock);
  Physical* physical = find_physical(handle);
  if (physical == nullptr) return false;
  ++physical->mappings;
  *out = *physical;
  return true;
}

void uncount_mapping(uint64_t handle) {
  const base::Locked held(process()->physicals->lock);
  auto it = process()->physicals->all.find(handle);
  if (it != process()->physicals->all.end() && it->second.mappings != 0) --it->second.mappings;
  drop_if_unused(handle);
}

bool has_session(const Range& reserved, const Session* session) {
  return (reserved.sessions >> (session->index & 63) & 1) != 0;
}

// Makes the reservation known to the server whose memory is to be mapped into it.
CUresult reserve_also(const Range& reserved, Session* session) {
  uint64_t address = 0;
  TENDRIL_TRY(reserve_at(session, reserved.bytes, 0, reserved.base, 0, &address));
  if (address == reserved.base) {
    process()->ranges.reserved_in(reserved.base, session->index);
    return CUDA_SUCCESS;
  }
  release_at(session, address, reserved.bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// The context through which copies reach memory of this device.
Context* context_of(Device* device) {
  Context* current = current_context();
  return current != nullptr && current->device == device ? current : device->primary;
}

CUresult need_process() { return process() != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED; }

}  // namespace

CUresult reserve_at(Session* session, uint64_t size, uint64_t alignment, uint64_t wished,
                    uint64_t flags, uint64_t* address) {
  wire::cuda::vm_reserve_request request;
  wire::cuda::vm_reserve_reply reply;
  request.size = size;
  request.alignment = alignment;
  request.wished = wished;
  request.flags = flags;
  TENDRIL_TRY(session->call(kNoContext, request, reply));
  *address = reply.address;
  return CUDA_SUCCESS;
}

CUresult release_at(Session* session, uint64_t address, uint64_t size) {
  wire::cuda::vm_release_range_request request;
  wire::cuda::vm_release_range_reply reply;
  request.address = address;
  request.size = size;
  return session->call(kNoContext, request, reply);
}

Object* held_allocation(uint64_t handle) {
  const base::Locked held(process()->physicals->lock);
  const Physical* physical = find_physical(handle);
  return physical != nullptr ? physical->object : nullptr;
}

void adopt_allocation(Object* object, Device* device) {
  const base::Locked held(process()->physicals->lock);
  process()->physicals->all[handle_value(handle_cast<CUmemGenericAllocationHandle>(object))] = {
      object, device, 1, 0};
}

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  TENDRIL_TRY(need_process());
  if (ptr == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  Session* session = any_session();
  if (session == nullptr) return Session::lost_result();
  Range range;
  range.bytes = size;
  range.kind = RangeKind::kReserved;
  range.session = session;
  range.sessions = uint64_t{1} << (session->index & 63);
  const auto ask = [&](uint64_t so_much, uint64_t* at) {
    return reserve_at(session, so_much, alignment, so_much == size ? addr : 0, flags, at);
  };
  const auto settle = [&](uint64_t at) {
    range.base = at;
    const bool clear = hold_addresses(at, size) && process()->ranges.insert(range);
    if (clear) *ptr = at;
    return clear;
  };
  return get_clear(session, size, kFillerMost, ask, settle, [&](const Refused::Block& block) {
    release_at(session, block.address, block.bytes);
  });
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  TENDRIL_TRY(need_process());
  Range reserved;
  if (!process()->ranges.find_reserved(ptr, size, &reserved) || reserved.base != ptr ||
      reserved.bytes != size) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!process()->ranges.remove_reserved(ptr))
    return CUDA_ERROR_INVALID_VALUE;  // something is mapped there
  CUresult result = CUDA_SUCCESS;
  for (Session* session : process()->sessions) {
    if (!has_session(reserved, session)) continue;
    const CUresult here = release_at(session, ptr, size);
    if (result == CUDA_SUCCESS) result = here;
  }
  return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  TENDRIL_TRY(need_process());
  if (handle == nullptr || prop == nullptr || size == 0) return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_NOT_SUPPORTED;  // host memory would be the server's
  Device* device = device_of(prop->location.id);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  TENDRIL_TRY(check_unsafe_call());
  TENDRIL_TRY(device->session->begin());
  drop_closed_exports();
  Object* object = create_object(Kind::kAllocation, device->session, nullptr);
  if (object == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUmemAllocationProp there = *prop;
  there.location.id = static_cast<int>(device->slot);
  there.win32HandleMetaData = nullptr;
  wire::cuda::vm_create_request request;
  wire::cuda::vm_create_reply reply;
  request.handle = object->wire_id;
  request.size = size;
  request.properties = {reinterpret_cast<const uint8_t*>(&there), sizeof there};
  request.flags = flags;
  const CUresult result = call_for_memory(device->session, nullptr, 0, request, reply);
  if (result != CUDA_SUCCESS) {
    destroy_object(Kind::kAllocation, object);
    return result;
  }
  *handle = handle_cast<CUmemGenericAllocationHandle>(object);
  const base::Locked held(process()->physicals->lock);
  process()->physicals->all[*handle] = {object, device, 1, 0};
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  TENDRIL_TRY(need_process());
  drop_closed_exports();
  const base::Locked held(process()->physicals->lock);
  Physical* physical = find_physical(handle);
  if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (--physical->references != 0) return CUDA_SUCCESS;
  wire::cuda::vm_release_request request;
  request.handle = physical->object->wire_id;
  const CUresult result = physical->object->session->enqueue(kNoContext, request);
  drop_if_unused(handle);
  return result;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  TENDRIL_TRY(need_process());
  Range reserved;
  if (size == 0 || !process()->ranges.find_reserved(ptr, size, &reserved))
    return CUDA_ERROR_INVALID_VALUE;
  Physical physical;
  if (!count_mapping(handle, &physical)) return CUDA_ERROR_INVALID_VALUE;
  Session* session = physical.object->session;
  CUresult result = has_session(reserved, session) ? CUDA_SUCCESS : reserve_also(reserved, session);
  Range range;
  range.base = ptr;
  range.bytes = size;
  range.kind = RangeKind::kMapped;
  range.context = context_of(physical.device);
  range.session = session;
  range.allocation = handle;
  range.buffer_id = process()->next_buffer_id.fetch_add(1);
  // The map first: it knows the mappings of all servers, and a server only its own.
  if (result == CUDA_SUCCESS && !process()->ranges.insert(range)) result = CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) {
    uncount_mapping(handle);
    return result;
  }
  wire::cuda::vm_map_request request;
  wire::cuda::vm_map_reply reply;
  request.address = ptr;
  request.size = size;
  request.offset = offset;
  request.handle = physical.object->wire_id;
  request.flags = flags;
  result = session->call(kNoContext, request, reply);
  if (result != CUDA_SUCCESS) {
    process()->ranges.remove(ptr, &range);
    uncount_mapping(handle);
  }
  return result;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  TENDRIL_TRY(need_process());
  drop_closed_exports();
  std::vector<Range> pieces;
  if (size != 0 && process()->ranges.vacant(ptr, size))
    return CUDA_SUCCESS;  // as the driver has it
  if (!process()->ranges.mapped(ptr, size, &pieces)) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < pieces.size();) {
    wire::cuda::vm_unmap_request request;
    wire::cuda::vm_unmap_reply reply;
    request.address = pieces[i].base;
    size_t end = i;
    for (; end < pieces.size() && pieces[end].session == pieces[i].session; ++end)
      request.size += pieces[end].bytes;
    TENDRIL_TRY(pieces[i].session->call(kNoContext, request, reply));
    for (; i < end; ++i) {
      Range gone;
      if (process()->ranges.remove(pieces[i].base, &gone)) uncount_mapping(gone.allocation);
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  TENDRIL_TRY(need_process());
  Range range;
  if (desc == nullptr || count == 0 || !process()->ranges.find(ptr, &range) ||
      range.kind != RangeKind::kMapped) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::vector<CUmemAccessDesc> there(desc, desc + count);
  for (CUmemAccessDesc& one : there) {
    if (one.location.type != CU_MEM_LOCATION_TYPE_DEVICE) continue;
    Device* device = device_of(one.location.id);
    if (device == nullptr || device->session != range.session)
      return CUDA_ERROR_INVALID_DEVICE;  // no path between GPUs of two servers
    one.location.id = static_cast<int>(device->slot);
  }
  wire::cuda::vm_set_access_request request;
  wire::cuda::vm_set_access_reply reply;
  request.address = ptr;
  request.size = size;
  request.descriptors = {reinterpret_cast<const uint8_t*>(there.data()),
                         there.size() * sizeof(CUmemAccessDesc)};
  return range.session->call(kNoContext, request, reply);
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  TENDRIL_TRY(need_process());
  Range range;
  if (flags == nullptr || location == nullptr || !process()->ranges.find(ptr, &range))
    return CUDA_ERROR_INVALID_VALUE;
  if (range.kind != RangeKind::kMapped && range.kind != RangeKind::kReserved)
    return CUDA_ERROR_INVALID_VALUE;
  CUmemLocation there = *location;
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
    Device* device = device_of(location->id);
    if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    if (device->session != range.session) {
      *flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
      return CUDA_SUCCESS;
    }
    there.id = static_cast<int>(device->slot);
  }
  wire::cuda::vm_get_access_request request;
  wire::cuda::vm_get_access_reply reply;
  request.location = {reinterpret_cast<const uint8_t*>(&there), sizeof there};
  request.address = ptr;
  TENDRIL_TRY(range.session->call(kNoContext, request, reply));
  *flags = reply.flags;
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  TENDRIL_TRY(need_process());
  Range range;
  const uint64_t address = reinterpret_cast<uint64_t>(addr);
  if (handle == nullptr || !process()->ranges.find(address, &range) ||
      range.kind != RangeKind::kMapped)
    return CUDA_ERROR_INVALID_VALUE;
  Object* object = nullptr;
  bool held = false;
  {
    Physicals& physicals = process()->physicals.get();
    const base::Locked locked(physicals.lock);
    const auto found = physicals.all.find(range.allocation);
    if (found != physicals.all.end()) object = found->second.object;
    held = object != nullptr && found->second.references++ != 0;
  }
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!held) {
    wire::cuda::vm_retain_request request;
    wire::cuda::vm_retain_reply reply;
    request.address = address;
    request.handle = object->wire_id;
    const CUresult result = range.session->call(kNoContext, request, reply);
    if (result != CUDA_SUCCESS) {
      const base::Locked held(process()->physicals->lock);
      auto again = process()->physicals->all.find(range.allocation);
      if (again != process()->physicals->all.end()) --again->second.references;
      drop_if_unused(range.allocation);
      return result;
    }
  }
  *handle = range.allocation;
  return CUDA_SUCCESS;
}

}  // namespace tendril::client::cuda

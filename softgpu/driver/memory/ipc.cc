// SPDX-License-Identifier: Apache-2.0
// Memory and events of other processes, and handles and pointers of pools. See ipc.h.

#include "softgpu/driver/memory/ipc.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <tuple>

#include "softgpu/driver/device/context.h"
#include "softgpu/driver/device/device.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory/memory_map.h"
#include "softgpu/driver/stream/shared_event.h"
#include "softgpu/driver/stream/stream.h"

namespace tendril::softgpu {
namespace {

// Imported memory, by its handle's content. Opening it again counts.
struct Opened {
  CUdeviceptr address = 0;
  uint64_t id = 0;  // of the allocation there
  CUcontext context = nullptr;
  unsigned count = 0;
};
using OpenKey = std::tuple<int32_t, uint64_t, uint64_t, uint64_t>;
std::mutex g_opened_lock;

std::map<OpenKey, Opened>& opened() {
  static auto& all = *new std::map<OpenKey, Opened>;
  return all;
}

OpenKey key_of(const PeerToken& token) { return {token.pid, token.nonce, token.object, token.id}; }

// The import that begins at `address`. Pools do not count.
std::optional<Allocation> import_at(uint64_t address) {
  auto found = MemoryMap::instance().find(address);
  const bool is_one = found && found->base == address && found->pool == nullptr &&
                      found->kind == MemoryKind::kImported;
  return is_one ? found : std::nullopt;
}

// Whether it still exists: a context takes with it what is open in it.
bool is_open(const Opened& open) {
  auto found = import_at(open.address);
  return open.count != 0 && found && found->id == open.id;
}

template <typename Handle>
void put(const PeerToken& token, Handle* handle) {
  memset(handle, 0, sizeof *handle);
  memcpy(handle, &token, sizeof token);
}

}  // namespace

CUresult open_memory(const PeerToken& token, CUcontext context, CUmemoryPool pool,
                     CUdeviceptr* address) {
  if (token.bytes == 0 || token.bytes > address_plan().stride) return CUDA_ERROR_INVALID_VALUE;
  if (device_at(token.device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  uint64_t offset = 0;
  const int file = fetch_file(token, &offset);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t lead = offset % 4096;
  const uint64_t bytes = round_up(lead + token.bytes, kPageBytes);
  const off_t end = lseek(file, 0, SEEK_END);
  void* host = end < 0 || offset + token.bytes > static_cast<uint64_t>(end)
                   ? MAP_FAILED
                   : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                          static_cast<off_t>(offset - lead));
  close(file);
  if (host == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  MemoryMap::instance().arena(token.device);  // so that this device sees the import
  Allocation like;
  like.device = token.device;
  like.context = context;
  like.pool = pool;
  *address = MemoryMap::instance().add_import(static_cast<uint8_t*>(host), lead, token.bytes, like);
  if (*address != 0) return CUDA_SUCCESS;
  munmap(host, bytes);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void drop_import(CUdeviceptr address) {
  auto gone = MemoryMap::instance().remove(address, {MemoryKind::kImported});
  if (!gone) return;
  std::unique_lock running(MemoryMap::instance().execution());
  MemoryMap::instance().free(*gone);
}

SOFT(cuIpcGetMemHandle)(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  auto found = MemoryMap::instance().find(dptr);
  if (!found || found->kind != MemoryKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  PeerToken token = {};
  token.object = found->base;
  token.id = found->id;
  token.bytes = found->bytes;
  token.device = found->device;
  if (!make_token(PeerKind::kMemory, &token)) return CUDA_ERROR_OPERATING_SYSTEM;
  put(token, pHandle);
  return CUDA_SUCCESS;
}

SOFT(cuIpcOpenMemHandle_v2)(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  if (pdptr == nullptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  PeerToken token;
  if (!read_token(&handle, PeerKind::kMemory, &token)) return CUDA_ERROR_INVALID_VALUE;
  if (token.pid == getpid())
    return CUDA_ERROR_INVALID_CONTEXT;  // a process cannot open its own handles
  std::lock_guard guard(g_opened_lock);
  Opened& open = opened()[key_of(token)];
  if (open.context == context->handle && is_open(open)) {
    ++open.count;
    *pdptr = open.address;
    return CUDA_SUCCESS;
  }
  open = {0, 0, context->handle, 0};
  if (CUresult bad = open_memory(token, context->handle, nullptr, &open.address)) {
    opened().erase(key_of(token));
    return bad == CUDA_ERROR_INVALID_VALUE ? CUDA_ERROR_NOT_PERMITTED : bad;  // the memory is gone
  }
  open.id = import_at(open.address)->id;
  open.count = 1;
  *pdptr = open.address;
  return CUDA_SUCCESS;
}

SOFT(cuIpcOpenMemHandle)(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return soft_cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

SOFT(cuIpcCloseMemHandle)(CUdeviceptr dptr) {
  SOFT_CONTEXT(context);
  auto import = import_at(dptr);
  if (!import) return CUDA_ERROR_INVALID_VALUE;
  {
    std::lock_guard guard(g_opened_lock);
    auto found = std::find_if(opened().begin(), opened().end(),
                              [&](const auto& entry) { return entry.second.id == import->id; });
    if (found == opened().end()) return CUDA_ERROR_INVALID_VALUE;
    if (--found->second.count != 0) return CUDA_SUCCESS;
    opened().erase(found);
  }
  context->synchronise();
  drop_import(dptr);
  return CUDA_SUCCESS;
}

SOFT(cuIpcGetEventHandle)(CUipcEventHandle* pHandle, CUevent hEvent) {
  EventPtr event = events().get(hEvent);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((event->flags & CU_EVENT_INTERPROCESS) == 0) return CUDA_ERROR_INVALID_HANDLE;
  SOFT_CONTEXT(context);
  PeerToken token = {};
  token.object = reinterpret_cast<uint64_t>(hEvent);
  if (!make_token(PeerKind::kEvent, &token) || !share_event(event))
    return CUDA_ERROR_OPERATING_SYSTEM;
  put(token, pHandle);
  return CUDA_SUCCESS;
}

SOFT(cuIpcOpenEventHandle)(CUevent* phEvent, CUipcEventHandle handle) {
  if (phEvent == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  PeerToken token;
  if (!read_token(&handle, PeerKind::kEvent, &token)) return CUDA_ERROR_INVALID_VALUE;
  if (token.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  uint64_t offset = 0;
  const int file = fetch_file(token, &offset);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  auto shared = SharedEvent::open(file);
  if (!shared) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<Event>();
  made->context = context;
  made->context_handle = context->handle;
  made->flags = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;
  made->shared = std::move(shared);
  made->handle = events().mint();
  events().put(made->handle, made);
  *phEvent = made->handle;
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu

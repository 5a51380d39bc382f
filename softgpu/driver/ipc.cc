// SPDX-License-Identifier: Apache-2.0
// Memory handles for other processes. A handle names the exporter's process and the file behind its
// device memory, so it is good as long as that process lives and its user may look into it
// (/proc/PID/fd).

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_map.h"

namespace tendril::softgpu {
namespace {

constexpr uint64_t kMagic = 0x54454e4452494c47;  // tells our handles from arbitrary bytes

struct MemoryToken {
  uint64_t magic;
  int32_t pid;
  int32_t file;
  uint64_t offset;
  uint64_t bytes;
  uint64_t id;
};
static_assert(sizeof(MemoryToken) <= CU_IPC_HANDLE_SIZE);

}  // namespace

SOFT(cuIpcGetMemHandle)(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  if (pHandle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  auto found = MemoryMap::instance().find(dptr);
  if (!found || found->kind != MemoryKind::kDevice) return CUDA_ERROR_INVALID_VALUE;
  Arena& arena = MemoryMap::instance().arena(found->device);
  MemoryToken token = {kMagic,       getpid(), arena.file(), found->base - arena.base(),
                       found->bytes, found->id};
  memset(pHandle, 0, sizeof *pHandle);
  memcpy(pHandle, &token, sizeof token);
  return CUDA_SUCCESS;
}

SOFT(cuIpcOpenMemHandle_v2)(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  if (pdptr == nullptr || Flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    return CUDA_ERROR_INVALID_VALUE;
  SOFT_CONTEXT(context);
  MemoryToken token;
  memcpy(&token, &handle, sizeof token);
  if (token.magic != kMagic || token.bytes == 0 || token.bytes > kDeviceStride ||
      token.offset > kDeviceStride)
    return CUDA_ERROR_INVALID_VALUE;
  if (token.pid == getpid())
    return CUDA_ERROR_INVALID_CONTEXT;  // a process cannot open its own handles
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", token.pid, token.file);
  int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t start = token.offset / 4096 * 4096;
  uint64_t lead = token.offset - start;
  uint64_t bytes = round_up(lead + token.bytes, kPageBytes);
  off_t end = lseek(file, 0, SEEK_END);
  void* host = end < 0 || start + lead + token.bytes > static_cast<uint64_t>(end)
                   ? MAP_FAILED
                   : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                          static_cast<off_t>(start));
  close(file);
  if (host == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  MemoryMap::instance().arena(context->device);  // so that this device sees the import
  Allocation like;
  like.device = context->device;
  like.context = context->handle;
  uint64_t base =
      MemoryMap::instance().add_import(static_cast<uint8_t*>(host), lead + token.bytes, 0, like);
  if (base == 0) {
    munmap(host, bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *pdptr = base + lead;
  return CUDA_SUCCESS;
}

SOFT(cuIpcOpenMemHandle)(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
  return soft_cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
}

SOFT(cuIpcCloseMemHandle)(CUdeviceptr dptr) {
  SOFT_CONTEXT(context);
  auto found = MemoryMap::instance().find(dptr);
  if (!found || found->kind != MemoryKind::kImported) return CUDA_ERROR_INVALID_VALUE;
  context->synchronise();
  auto gone = MemoryMap::instance().remove(found->base, {MemoryKind::kImported});
  if (!gone) return CUDA_ERROR_INVALID_VALUE;
  std::unique_lock running(MemoryMap::instance().execution());
  MemoryMap::instance().free(*gone);
  return CUDA_SUCCESS;
}

}  // namespace tendril::softgpu

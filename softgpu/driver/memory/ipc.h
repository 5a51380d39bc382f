// SPDX-License-Identifier: Apache-2.0
// How processes that use this library share memory and events. As with real drivers, the importing
// process asks the exporting one. A thread of the exporter serves a local socket from its first
// export on, for processes of the same user only. It hands over the memory file behind a device's
// memory or behind an event (shared_event.h). An exporter that has ended answers nobody, but what
// others have mapped stays. Any thread.
#pragma once

#include <cstdint>

#include "api/cuda_abi.gen.h"

namespace tendril::softgpu {

enum class PeerKind : uint32_t { kMemory = 1, kEvent, kPool };

// What a handle holds: who exported, and what. Handles come from anywhere: nothing in one is
// believed before the exporter has confirmed it.
struct PeerToken {
  uint64_t magic;
  PeerKind kind;
  int32_t pid;      // of the exporter
  uint64_t nonce;   // of its socket, so that no other process of the same number answers
  uint64_t object;  // an address, an event, a pool
  uint64_t id;      // kMemory: distinguishes allocations at one address
  uint64_t bytes;
  int32_t device;
  uint32_t reserved;
};
static_assert(sizeof(PeerToken) <= CU_IPC_HANDLE_SIZE);

// Fills in who we are, and serves the thing that the token names. False: there is no socket.
bool make_token(PeerKind kind, PeerToken* token);
// The token in a handle of 64 bytes. False if the handle is not of this kind.
bool read_token(const void* handle, PeerKind kind, PeerToken* token);

// Asks the exporter for the file behind the token and for the offset where the thing begins. -1 if
// it is gone, or belongs to another user.
int fetch_file(const PeerToken& token, uint64_t* offset);

// Memory that `token` names, mapped into every device's view. `pool`: null for cuIpcOpenMemHandle.
CUresult open_memory(const PeerToken& token, CUcontext context, CUmemoryPool pool,
                     CUdeviceptr* address);

void drop_import(CUdeviceptr address);

}  // namespace tendril::softgpu

// SPDX-License-Identifier: Apache-2.0
// How memory and events are named between processes that use the same server: 64 bytes with the
// server's identity and a token that means something there. Programs pass them on as
// CUipcMemHandle, CUipcEventHandle and the like, or as a descriptor: one end of a socket pair in
// which these bytes wait to be looked at, so that this end sees when the last copy is closed, in
// whatever process. What comes in may be anything. Used by client/cuda/memory/ipc.cc.
#pragma once

#include "client/cuda/bodies.h"

namespace tendril::client::cuda {

inline constexpr uint32_t kServerIdBytes = 16, kExportTokenBytes = 16;

enum class ExportKind : uint32_t { kMemory = 1, kEvent, kAllocation, kPool, kPoolPointer };

struct ExportHandle {
  uint64_t magic;
  ExportKind kind;
  uint32_t reserved;
  uint8_t server[kServerIdBytes];
  uint8_t token[kExportTokenBytes];
  uint64_t bytes;
  uint64_t more;
};
static_assert(sizeof(ExportHandle) == CU_IPC_HANDLE_SIZE);
static_assert(sizeof(ExportHandle) == sizeof(CUmemPoolPtrExportData));

// The handle of what `token` names on the session's server; one round trip, the first time.
CUresult make_export(Session* session, ExportKind kind, const wire::Bytes& token, uint64_t bytes,
                     ExportHandle* out);
// Checks what a program brought, and finds the session on its server: `preferred` if that is one,
// else any. Nothing on that server is said aloud, once: `call` asked for it.
CUresult read_export(const void* handle, ExportKind kind, const char* call, Session* preferred,
                     Session** session, ExportHandle* out);

// A descriptor for the program to pass on; -1 with errno set. When all its copies are closed, the
// server is told.
int make_export_descriptor(Session* session, const ExportHandle& handle);
// False: `fd` is not such a descriptor.
bool read_export_descriptor(int fd, ExportHandle* out);
// Tells the servers of descriptors that are closed by now: where memory is given back or counted.
void drop_closed_exports();

}  // namespace tendril::client::cuda

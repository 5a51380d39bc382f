// SPDX-License-Identifier: Apache-2.0
// How processes that use the same server name memory and events to each other: 64 bytes with the
// server's identity and a token that the server knows. Programs pass them on as a CUipcMemHandle or
// CUipcEventHandle, or as a descriptor. The descriptor is one end of a socket pair, from which the
// bytes can be read. Our end sees when the last copy of it is closed, in any process. Bytes from
// programs are checked. Used by client/cuda/memory/ipc.cc.
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

// The handle of what `token` names on the session's server. One round trip the first time.
CUresult make_export(Session* session, ExportKind kind, const wire::Bytes& token, uint64_t bytes,
                     ExportHandle* out);
// Checks a handle from the program, and finds a session on its server: `preferred` if possible,
// otherwise any. If there is none, one line on stderr says so and names `call`.
CUresult read_export(const void* handle, ExportKind kind, const char* call, Session* preferred,
                     Session** session, ExportHandle* out);

// Makes a descriptor that the program may pass on. -1: see errno. When all its copies are closed,
// the server is notified.
int make_export_descriptor(Session* session, const ExportHandle& handle);
// False: `fd` is not such a descriptor.
bool read_export_descriptor(int fd, ExportHandle* out);
// Tells the servers which descriptors are closed. Called when memory is given back or counted.
void drop_closed_exports();

}  // namespace tendril::client::cuda

// SPDX-License-Identifier: Apache-2.0
// Host memory that a program and its worker share when both are on one host, page by page at the
// same addresses. The client's pinned and managed memory lies here. So the GPU reads and writes the
// program's own pages: no copy, no staging, nothing to synchronise
// (docs/decisions/0007-shared-host-memory.md). Called by client/ and worker/. The peer may change
// every byte at any time.
#pragma once

#include <cstdint>

#include "base/fd.h"

namespace tendril::transport {

// Where programs' pinned host memory is put. Neither drivers nor allocators use this part of the
// address space. So client and worker can have the same pages at the same addresses.
#if defined(__SANITIZE_THREAD__)  // its shadow memory lies there; below it is room
inline constexpr uint64_t kHostWindowBase = 0x10'0000'0000;
inline constexpr uint64_t kHostWindowBytes = 0x40'0000'0000;
#else
inline constexpr uint64_t kHostWindowBase = 0x2000'0000'0000;
inline constexpr uint64_t kHostWindowBytes = 0x1000'0000'0000;
#endif

// The end of a session's memory object, as long as the window. A page is at the same distance from
// the beginning of both. The object is sparse, so a page costs nothing until somebody touches it.
// Invalid if the session does not run over shared memory.
struct HostWindow {
  base::Fd memory;
  uint64_t offset = 0;  // of kHostWindowBase in `memory`
  bool valid() const { return memory.valid(); }
  // Maps the pages of [address, address + bytes) at that address, which must be free. Both are
  // multiples of the page size. False: outside the window, in use, or out of memory; errno says
  // which.
  bool map(uint64_t address, uint64_t bytes) const;
  // Unmaps. With `drop`, also frees the pages; no other process may use them any more.
  void unmap(uint64_t address, uint64_t bytes, bool drop) const;
};

// The window of a session's memory (shm.h), which map_shm must have accepted.
HostWindow host_window(base::Fd memory);

}  // namespace tendril::transport

// SPDX-License-Identifier: Apache-2.0
// See host_window.h.
#include "transport/host_window.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace tendril::transport {

// The size is sealed. The content of the file may have changed since map_shm read it.
HostWindow host_window(base::Fd memory) {
  HostWindow window;
  struct stat about;
  if (fstat(memory.get(), &about) != 0 || uint64_t(about.st_size) < kHostWindowBytes) return window;
  window.offset = uint64_t(about.st_size) - kHostWindowBytes;
  window.memory = std::move(memory);
  return window;
}

bool HostWindow::map(uint64_t address, uint64_t bytes) const {
  const uint64_t at = address - kHostWindowBase;
  if (!valid() || at >= kHostWindowBytes || bytes == 0 || bytes > kHostWindowBytes - at) {
    errno = EINVAL;
    return false;
  }
  void* wanted = reinterpret_cast<void*>(address);
  void* got = mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
                   memory.get(), off_t(offset + at));
  if (got == wanted) return true;
  if (got != MAP_FAILED) {  // an old kernel treats the flag as a hint
    munmap(got, bytes);
    errno = EEXIST;
  }
  return false;
}

void HostWindow::unmap(uint64_t address, uint64_t bytes, bool drop) const {
  munmap(reinterpret_cast<void*>(address), bytes);
  if (drop) {
    fallocate(memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              off_t(offset + (address - kHostWindowBase)), off_t(bytes));
  }
}

}  // namespace tendril::transport

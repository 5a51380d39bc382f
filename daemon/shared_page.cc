// SPDX-License-Identifier: Apache-2.0
// See shared_page.h.
#include "daemon/shared_page.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

namespace tendril::daemon {

base::Result<SharedMemory> SharedMemory::create(const char* name, size_t bytes) {
  base::Fd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return base::errno_status(base::Code::kExhausted,
                              ("cannot make the shared page '" + std::string(name) + "'").c_str(),
                              errno);
  }
  void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) {
    return base::errno_status(base::Code::kExhausted,
                              ("cannot map the shared page '" + std::string(name) + "'").c_str(),
                              errno);
  }
  return SharedMemory(std::move(fd), at, bytes);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)), at_(std::exchange(other.at_, nullptr)), bytes_(other.bytes_) {}

SharedMemory::~SharedMemory() {
  if (at_ != nullptr) munmap(at_, bytes_);
}

}  // namespace tendril::daemon

// SPDX-License-Identifier: Apache-2.0
// ioctl for everything in this process, the GPU driver's library included, which finds the
// executable's before the C library's: the same system call, and afterwards a look for what
// HardwareSlices wants to know. Any thread, before constructors have run too.
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/core/hardware_slices.h"

extern "C" int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  const long result = syscall(SYS_ioctl, fd, request, argument);
  if (result == 0) {
    const int error = errno;
    tendril::worker::hardware_slices.saw(fd, request, argument);
    errno = error;
  }
  return static_cast<int>(result);
}

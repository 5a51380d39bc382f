// SPDX-License-Identifier: Apache-2.0
// Replaces ioctl for everything in this process. The GPU driver's library uses it too, because the
// linker finds the executable's function before the C library's. It makes the same system call, and
// afterwards shows the call to HardwareSlices. Any thread, even before constructors have run.
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

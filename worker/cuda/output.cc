// SPDX-License-Identifier: Apache-2.0
// See output.h.
#include "worker/cuda/output.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tendril::worker::cuda {

Output::Output() {
  file_ = memfd_create("tendril-output", MFD_CLOEXEC);
  if (file_ < 0) return;
  fflush(stdout);
  // Append mode: the driver's writes and our truncation must not leave holes.
  if (dup2(file_, STDOUT_FILENO) < 0) {
    close(file_);
    file_ = -1;
  }
}

void Output::send(session::Service* service) {
  if (file_ < 0) return;
  fflush(stdout);
  struct stat info;
  if (fstat(file_, &info) != 0 || info.st_size == sent_) return;
  pthread_mutex_lock(&mutex_);
  char text[16384];
  while (sent_ < info.st_size) {
    const ssize_t got = pread(file_, text, sizeof text, sent_);
    if (got <= 0) break;
    service->push(wire::FrameKind::kOutput, 0, text, static_cast<uint32_t>(got));
    sent_ += got;
  }
  pthread_mutex_unlock(&mutex_);
}

}  // namespace tendril::worker::cuda

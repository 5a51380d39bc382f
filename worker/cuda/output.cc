// SPDX-License-Identifier: Apache-2.0
// See output.h.
#include "worker/cuda/output.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace tendril::worker::cuda {

Output::Output() {
  fflush(stdout);
  redirect(&out_, STDOUT_FILENO, false);
  redirect(&error_, STDERR_FILENO, true);
}

Output::~Output() {
  for (const Stream* stream : {&out_, &error_}) {
    if (stream->file >= 0) close(stream->file);
    if (stream->original >= 0) close(stream->original);
  }
}

void Output::redirect(Stream* stream, int descriptor, bool keep_original) {
  const int file = memfd_create("tendril-output", MFD_CLOEXEC);
  if (file < 0) return;
  if (keep_original) stream->original = fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
  if (dup2(file, descriptor) < 0) {
    close(file);
    return;
  }
  stream->file = file;
}

// The first byte of a kOutput frame says which output it is: 1 or 2.
void Output::send_stream(Stream* stream, char which, session::Service* service) {
  struct stat info;
  if (stream->file < 0 || fstat(stream->file, &info) != 0) return;
  char text[16384];
  text[0] = which;
  while (stream->sent < info.st_size) {
    const ssize_t got = pread(stream->file, text + 1, sizeof text - 1, stream->sent);
    if (got <= 0) break;
    service->push(wire::FrameKind::kOutput, 0, text, static_cast<uint32_t>(got + 1));
    if (stream->original >= 0 && write(stream->original, text + 1, static_cast<size_t>(got)) < 0) stream->original = -1;
    stream->sent += got;
  }
}

void Output::send(session::Service* service) {
  fflush(stdout);
  pthread_mutex_lock(&mutex_);
  send_stream(&out_, 1, service);
  send_stream(&error_, 2, service);
  pthread_mutex_unlock(&mutex_);
}

}  // namespace tendril::worker::cuda

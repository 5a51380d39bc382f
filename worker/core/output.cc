// SPDX-License-Identifier: Apache-2.0
// See output.h.
#include "worker/core/output.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace tendril::worker {
namespace {

constexpr int64_t kOutputPage = 4096;
constexpr int64_t kOutputDroppedLeast = 256 << 10;

}  // namespace

Output::Output() {
  fflush(stdout);
  redirect(&out_, STDOUT_FILENO, false);
  redirect(&error_, STDERR_FILENO, true);
}

Output::~Output() {
  for (const Stream* stream : {&out_, &error_}) {
    if (stream->window != nullptr) munmap(stream->window, 2 * kOutputPage);
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
  watch(stream);
}

// Moves the window to where the next text will be. The file is made long enough for it. The file's
// position says how much has been written.
void Output::watch(Stream* stream) {
  const int64_t page = stream->sent / kOutputPage * kOutputPage;
  if (stream->window != nullptr && stream->window_at == page) return;
  if (stream->window != nullptr) munmap(stream->window, 2 * kOutputPage);
  stream->window = nullptr;
  if (fallocate(stream->file, 0, page, 2 * kOutputPage) != 0) return;
  void* window = mmap(nullptr, 2 * kOutputPage, PROT_READ, MAP_SHARED, stream->file, page);
  if (window == MAP_FAILED) return;
  stream->window = static_cast<uint8_t*>(window);
  stream->window_at = page;
}

// Untouched bytes are zero. Text that begins with eight of them is seen when other text follows.
bool Output::is_new(const Stream& stream) {
  if (stream.window == nullptr) return true;  // or so it must be assumed
  uint64_t word;
  memcpy(&word, stream.window + (stream.sent - stream.window_at), sizeof word);
  return word != 0;
}

// Nobody reads it again. The driver's position stays where it is, so the file keeps its length.
void Output::drop_sent(Stream* stream) {
  const int64_t end = stream->sent / kOutputPage * kOutputPage;
  if (end - stream->dropped < kOutputDroppedLeast) return;
  if (fallocate(stream->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, stream->dropped,
                end - stream->dropped) == 0)
    stream->dropped = end;
}

// The first byte of a kOutput frame says which output it is: 1 or 2.
void Output::send_stream(Stream* stream, char which, session::Service* service) {
  if (stream->file < 0 || !is_new(*stream)) return;
  const off_t end = lseek(stream->file, 0, SEEK_CUR);  // the driver's descriptor moves along
  char text[16384];
  text[0] = which;
  while (stream->sent < end) {
    const size_t most = std::min(static_cast<size_t>(end - stream->sent), sizeof text - 1);
    const ssize_t got = pread(stream->file, text + 1, most, stream->sent);
    if (got <= 0) break;
    service->push(wire::FrameKind::kOutput, 0, text, static_cast<uint32_t>(got + 1));
    if (stream->original >= 0 && write(stream->original, text + 1, static_cast<size_t>(got)) < 0)
      stream->original = -1;
    stream->sent += got;
  }
  drop_sent(stream);
  watch(stream);
}

void Output::send(session::Service* service) {
  fflush(stdout);
  std::lock_guard<std::mutex> hold(mutex_);
  send_stream(&out_, 1, service);
  send_stream(&error_, 2, service);
}

}  // namespace tendril::worker

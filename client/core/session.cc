// SPDX-License-Identifier: Apache-2.0
// See session.h.
#include "client/core/session.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/common/log.h"
#include "client/core/progress.h"

namespace tendril::client::core {
namespace {

// Text that kernels print goes through the C library's buffer, so that it keeps its order with the
// program's text. Another thread may hold the buffer's lock and wait for this one. So after a while
// the text bypasses the buffer.
bool put_into_buffer(const char* text, size_t bytes) {
  constexpr int kTries = 100;
  for (int tries = 0; ftrylockfile(stdout) != 0; ++tries) {
    if (tries == kTries) return false;
    usleep(100);
  }
  fwrite_unlocked(text, 1, bytes, stdout);
  funlockfile(stdout);
  return true;
}

}  // namespace

void Session::output(const char* text, size_t bytes) {
  if (bytes == 0) return;
  const int descriptor = text[0] == STDERR_FILENO ? STDERR_FILENO : STDOUT_FILENO;
  if (descriptor == STDOUT_FILENO && put_into_buffer(text + 1, bytes - 1)) return;
  for (++text, --bytes; bytes != 0;) {
    const ssize_t done = ::write(descriptor, text, bytes);
    if (done < 0 && errno != EINTR) return;
    if (done > 0) {
      text += done;
      bytes -= static_cast<size_t>(done);
    }
  }
}

void Session::tell_lost(const base::Status& why, const char* answer) const {
  log_once(LogLevel::kError,
           "the session with GPU server %s has ended (%s); its GPUs answer %s from now on",
           endpoint.c_str(), why.message().c_str(), answer);
}

bool Session::send_bulk(uint64_t transfer, const void* data, uint64_t bytes) {
  const Blocked blocked(bytes);
  upload_begins(bytes);
  const uint64_t begun_ns = base::now_ns();
  const bool sent = lane->send_bulk(transfer, data, bytes);
  const uint64_t spent_ns = base::now_ns() - begun_ns;
  uploads.note(bytes, spent_ns);
  upload_ended(spent_ns);
  return sent;
}

bool Session::wait_bulk(uint64_t transfer, uint64_t bytes) {
  const Blocked blocked(bytes);
  return lane->wait_bulk(transfer);
}

Record* Session::remembered(uint64_t wire_id) {
  const base::Locked held(known_lock_);
  const auto found = known_.find(wire_id);
  return found != known_.end() ? found->second : nullptr;
}

void Session::remember(uint64_t wire_id, Record* record) {
  const base::Locked held(known_lock_);
  known_[wire_id] = record;
}

void Session::forget(uint64_t wire_id) {
  const base::Locked held(known_lock_);
  known_.erase(wire_id);
}

}  // namespace tendril::client::core

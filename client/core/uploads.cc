// SPDX-License-Identifier: Apache-2.0
// See uploads.h.
#include "client/core/uploads.h"

#include <algorithm>

#include "base/clock.h"
#include "client/core/session.h"

namespace tendril::client::core {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr uint64_t kTellingBytes = 256u
                                   << 10;  // smaller transfers do not show the speed of the line

}  // namespace

void Uploads::note(uint64_t bytes, uint64_t ns) {
  if (bytes < kTellingBytes) return;
  const uint64_t now = std::max<uint64_t>(1, ns * kMib / bytes),
                 before = ns_per_mib_.load(std::memory_order_relaxed);
  ns_per_mib_.store(before == 0 ? now : (3 * before + now) / 4, std::memory_order_relaxed);
}

bool Uploads::take(Session* session, uint64_t transfer, const void* data, uint64_t bytes) {
  const uint64_t expected_ns = ns_per_mib_.load(std::memory_order_relaxed) * bytes / kMib;
  // Without bulk channels the data travels on the lane, among the calls. Later calls would then
  // overtake it.
  if (expected_ns < kWorthNs || !session->lane->has_bulk_channels()) return false;
  {
    const base::Locked held(lock_);
    if (!thread_.running() && !thread_.start("tendril-upload", thread_main, session)) return false;
    queue_.push_back({transfer, static_cast<const uint8_t*>(data), bytes});
    held_.fetch_add(1, std::memory_order_release);
  }
  changed_.signal();
  return true;
}

bool Uploads::holds(uint64_t base, uint64_t bytes) {
  const base::Locked held(lock_);
  return std::any_of(queue_.begin(), queue_.end(), [&](const Upload& upload) {
    const uint64_t from = reinterpret_cast<uint64_t>(upload.data);
    return from < base + bytes && base < from + upload.bytes;
  });
}

void Uploads::settle(uint64_t base, uint64_t bytes) {
  if (held_.load(std::memory_order_acquire) == 0) return;
  for (;;) {
    const uint32_t seen = changed_.read();
    if (!holds(base, bytes)) return;
    changed_.wait(seen, -1);
  }
}

void Uploads::thread_main(void* session) {
  static_cast<Session*>(session)->uploads.send_all(static_cast<Session*>(session));
}

Uploads::Upload Uploads::next() {
  for (;;) {
    const uint32_t seen = changed_.read();
    {
      const base::Locked held(lock_);
      if (!queue_.empty()) return queue_.front();
    }
    changed_.wait(seen, -1);
  }
}

// If the session is lost, sending returns at once. A wait for the copy then reports the loss, as
// for any call.
void Uploads::send_all(Session* session) {
  for (;;) {
    const Upload upload = next();
    const uint64_t begun_ns = base::now_ns();
    const bool sent = session->lane->send_bulk(upload.transfer, upload.data, upload.bytes);
    if (sent) note(upload.bytes, base::now_ns() - begun_ns);
    {
      const base::Locked held(lock_);
      queue_.pop_front();
      held_.fetch_sub(1, std::memory_order_release);
    }
    changed_.signal();
  }
}

}  // namespace tendril::client::core

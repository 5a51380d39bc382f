// SPDX-License-Identifier: Apache-2.0
// See uploads.h.
#include "client/cuda/copy/uploads.h"

#include <algorithm>

#include "base/clock.h"
#include "client/cuda/state.h"

namespace tendril::client::cuda {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;
constexpr uint64_t kTellingBytes = 256u << 10;  // smaller transfers say nothing about the line

}  // namespace

void Uploads::note(uint64_t bytes, uint64_t ns) {
  if (bytes < kTellingBytes) return;
  const uint64_t now = std::max<uint64_t>(1, ns * kMib / bytes),
                 before = ns_per_mib_.load(std::memory_order_relaxed);
  ns_per_mib_.store(before == 0 ? now : (3 * before + now) / 4, std::memory_order_relaxed);
}

bool Uploads::take(Session* session, uint64_t transfer, const void* data, uint64_t bytes) {
  const uint64_t expected_ns = ns_per_mib_.load(std::memory_order_relaxed) * bytes / kMib;
  // Without channels of its own the data travels among the calls, where those that come after it
  // would pass it.
  if (expected_ns < kWorthNs || !session->lane->has_bulk_channels()) return false;
  pthread_mutex_lock(&mutex_);
  const bool runs = thread_.running() || thread_.start("tendril-upload", thread_main, session);
  if (runs) {
    queue_.push_back({transfer, static_cast<const uint8_t*>(data), bytes});
    held_.fetch_add(1, std::memory_order_release);
    pthread_cond_broadcast(&changed_);
  }
  pthread_mutex_unlock(&mutex_);
  return runs;
}

bool Uploads::holds(uint64_t base, uint64_t bytes) const {
  return std::any_of(queue_.begin(), queue_.end(), [&](const Upload& upload) {
    const uint64_t from = reinterpret_cast<uint64_t>(upload.data);
    return from < base + bytes && base < from + upload.bytes;
  });
}

void Uploads::settle(uint64_t base, uint64_t bytes) {
  if (held_.load(std::memory_order_acquire) == 0) return;
  pthread_mutex_lock(&mutex_);
  while (holds(base, bytes)) pthread_cond_wait(&changed_, &mutex_);
  pthread_mutex_unlock(&mutex_);
}

void Uploads::thread_main(void* session) {
  static_cast<Session*>(session)->uploads.send_all(static_cast<Session*>(session));
}

// A lost session answers at once, and whoever waits for one of these is told so as for any call.
void Uploads::send_all(Session* session) {
  pthread_mutex_lock(&mutex_);
  for (;;) {
    while (queue_.empty()) pthread_cond_wait(&changed_, &mutex_);
    const Upload upload = queue_.front();
    pthread_mutex_unlock(&mutex_);
    const uint64_t begun_ns = base::now_ns();
    const bool sent = session->lane->send_bulk(upload.transfer, upload.data, upload.bytes);
    if (sent) note(upload.bytes, base::now_ns() - begun_ns);
    pthread_mutex_lock(&mutex_);
    queue_.pop_front();
    held_.fetch_sub(1, std::memory_order_release);
    pthread_cond_broadcast(&changed_);
  }
}

}  // namespace tendril::client::cuda

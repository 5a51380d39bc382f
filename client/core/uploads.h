// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies from pinned memory to a server on another host. A thread of the library sends
// them while the program runs on. That is safe: the program does not change the memory until it has
// waited, and every wait that covers the copy ends after the worker has all of it. This way is used
// if sending would keep the caller for long, judging by earlier transfers. It is never used for
// pageable memory, because the program may change that as soon as its copy returns. Called by
// copies and by calls that free host memory. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>

#include "base/lock.h"
#include "base/thread.h"

namespace tendril::client::core {

class Session;

class Uploads {
 public:
  // The call that names `transfer` has been committed. True: this class sends the data. False: the
  // caller must send it.
  bool take(Session* session, uint64_t transfer, const void* data, uint64_t bytes);
  // Notes that sending a transfer of `bytes` bytes kept its thread for `ns`.
  void note(uint64_t bytes, uint64_t ns);
  // Returns when no upload reads [base, base + bytes) any more. The caller has waited for the
  // earlier calls.
  void settle(uint64_t base, uint64_t bytes);

 private:
  struct Upload {
    uint64_t transfer = 0;
    const uint8_t* data = nullptr;
    uint64_t bytes = 0;
  };
  // Handing over wakes a thread, which takes some tens of microseconds.
  static constexpr uint64_t kWorthNs = 300'000;

  static void thread_main(void* session);
  void send_all(Session* session);
  Upload next();
  bool holds(uint64_t base, uint64_t bytes);

  std::atomic<uint64_t> ns_per_mib_{0};  // in the last transfers; 0: there was none
  std::atomic<uint32_t> held_{0};        // uploads that are not over
  base::Lock lock_;
  base::Event changed_;       // the queue is longer or shorter
  std::deque<Upload> queue_;  // under lock_; the first one is being sent
  base::Thread thread_;
};

}  // namespace tendril::client::core

// SPDX-License-Identifier: Apache-2.0
// Asynchronous copies from pinned memory to a server elsewhere, sent by a thread of ours while the
// program runs on. The program leaves that memory alone until it has waited, and every wait that
// covers the copy ends after the worker has all of it. Used where sending would keep the caller for
// long, judging by earlier transfers. Called by copies and by whoever gives host memory up; any
// thread. Never for pageable memory: that is the program's again when its copy returns.
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
  // The call that names `transfer` has been committed. True: it is sent from here on. False: the
  // caller sends it.
  bool take(Session* session, uint64_t transfer, const void* data, uint64_t bytes);
  // A transfer of so many bytes has kept the thread that sent it for so long.
  void note(uint64_t bytes, uint64_t ns);
  // Returns when nothing of [base, base + bytes) is read any more. The caller has waited for the
  // calls before it.
  void settle(uint64_t base, uint64_t bytes);

 private:
  struct Upload {
    uint64_t transfer = 0;
    const uint8_t* data = nullptr;
    uint64_t bytes = 0;
  };
  // Handing over wakes a thread, some tens of microseconds.
  static constexpr uint64_t kWorthNs = 300'000;

  static void thread_main(void* session);
  void send_all(Session* session);
  Upload next();
  bool holds(uint64_t base, uint64_t bytes);

  std::atomic<uint64_t> ns_per_mib_{0};  // of the last transfers; 0: there was none
  std::atomic<uint32_t> held_{0};        // uploads that are not over
  base::Lock lock_;
  base::Event changed_;       // the queue is longer or shorter
  std::deque<Upload> queue_;  // under lock_; the first one is being sent
  base::Thread thread_;
};

}  // namespace tendril::client::core

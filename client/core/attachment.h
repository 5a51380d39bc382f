// SPDX-License-Identifier: Apache-2.0
// The one attachment of an API in this process. The first call that needs a server makes it. A
// forked child drops it and sends nothing to the servers. Process is the API's own record: its
// sessions, devices and tables. It is never destroyed, because programs call the library from their
// exit handlers.
#pragma once

#include <pthread.h>

#include <atomic>

#include "base/lock.h"

namespace tendril::client::core {

template <typename Process>
class Attachment {
 public:
  // Null: before the first attach, after a failed one, and in a forked child.
  Process* process() const { return process_.load(std::memory_order_acquire); }
  // Set already while attaching, because attaching looks things up.
  void set(Process* process) { process_.store(process); }

  // True: the child of a process that had attached. No call can work here.
  bool forked() const { return forked_.load(); }

  // Returns what `attach()` returned. A success is remembered. After a failure the next call tries
  // again. `in_child` runs in every child from now on, and must call one of the two below.
  template <typename Attach>
  int once(int success, void (*in_child)(), Attach&& attach) {
    if (result_.load(std::memory_order_acquire) == success) return success;
    const base::Locked held(lock_);
    if (result_.load() == success) return success;
    if (!registered_) registered_ = pthread_atfork(nullptr, nullptr, in_child) == 0;
    const int result = attach();
    result_.store(result, std::memory_order_release);
    return result;
  }

  // Call it in a forked child. Returns the parent's record. Its threads and locks do not work in
  // the child.
  Process* dropped_in_child() {
    Process* parents = process_.exchange(nullptr);
    lock_.reset_after_fork();
    if (parents == nullptr) {
      result_ = kNotTried;
    } else {
      forked_ = true;
      left_behind_ = parents;
    }
    return parents;
  }
  // The same, and the sessions of the parent are let alone. For an API whose Process has
  // `sessions`.
  void forget_in_child() {
    Process* parents = dropped_in_child();
    if (parents == nullptr) return;
    for (auto* session : parents->sessions) session->lane->abandon_after_fork();
  }

 private:
  static constexpr int kNotTried = -1;
  std::atomic<Process*> process_{nullptr};
  std::atomic<Process*> left_behind_{nullptr};  // for leak checkers to find
  std::atomic<int> result_{kNotTried};
  std::atomic<bool> forked_{false};
  base::Lock lock_;  // while attaching
  bool registered_ = false;
};

}  // namespace tendril::client::core

// SPDX-License-Identifier: Apache-2.0
// The state of one topic inside an API's process record. It is made at first use. It is never
// destroyed, because programs call the library from their exit handlers. Only the file that uses it
// needs to know T, so the process record includes no header for it. Any thread.
#pragma once

#include <atomic>

namespace tendril::client::core {

template <typename T>
class Part {
 public:
  T& get() {
    T* made = made_.load(std::memory_order_acquire);
    return made != nullptr ? *made : make();
  }
  T* operator->() { return &get(); }

 private:
  T& make() {
    T* fresh = new T;
    T* before = nullptr;
    if (made_.compare_exchange_strong(before, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;  // another thread was faster
    return *before;
  }
  std::atomic<T*> made_{nullptr};
};

}  // namespace tendril::client::core

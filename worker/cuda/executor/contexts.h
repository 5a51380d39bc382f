// SPDX-License-Identifier: Apache-2.0
// The contexts of one client process. A call names a context by its index. This class also knows
// which context is current in the driver. Executor thread, unless a member says otherwise.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/cuda/driver.h"

namespace tendril::worker::cuda {

// A context as the worker keeps it.
struct WorkerContext {
  CUcontext context = nullptr;
  uint32_t slot = 0;
  bool primary = false;
  uint32_t retains = 0;
  // The first error of calls without reply. The next wait reports it. Any thread.
  std::atomic<int> deferred{0};
  // The streams that calls in this context have named since the last wait for it. A wait for the
  // context asks these streams.
  std::vector<CUstream> touched;
  CUstream touched_last = nullptr;
  bool untold = false;        // there may be work that is in none of these streams
  std::atomic<int> waits{0};  // for the whole context, under way; any thread
  CUevent copied = nullptr;   // behind the last synchronous copy; ends with the context
};

class Contexts {
 public:
  explicit Contexts(gpu::Driver* driver) : driver_(driver) {}

  // The context of the call that runs now. Null: the call named none.
  WorkerContext* current() const { return current_; }
  // Makes the context of a call current, here and in the driver. Index 0: no context. Error: no
  // context has this index, or the driver refuses.
  CUresult enter(uint32_t index);
  WorkerContext* find(uint64_t id);
  // Null: the id is malformed. An older context with the same index is retired.
  WorkerContext* add(uint64_t id);
  // Takes the context out of the table. The object stays alive, because a wait may still point to
  // it.
  void retire(uint64_t id);
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (const std::unique_ptr<WorkerContext>& context : contexts_)
      if (context != nullptr) visit(*context);
  }

  // Makes `context` current in the driver, if it is not.
  CUresult use(CUcontext context) {
    return driver_current_ == context ? CUDA_SUCCESS : change(context);
  }
  CUcontext current_in_driver() const { return driver_current_; }
  // The driver's current context has changed without this class.
  void forget_current() { driver_current_ = nullptr; }

  // Keeps the error of a call without reply for the next wait in its context.
  void defer(CUresult result) {
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) remember(result);
  }
  // Returns that error once. Success: there is none, or `context` is null. Any thread.
  static CUresult take_deferred_of(WorkerContext* context);

 private:
  CUresult change(CUcontext context);
  void remember(CUresult result);

  gpu::Driver* driver_;
  std::vector<std::unique_ptr<WorkerContext>> contexts_;  // by the client's index
  std::vector<std::unique_ptr<WorkerContext>> retired_;
  WorkerContext* current_ = nullptr;
  CUcontext driver_current_ = nullptr;
};

// What was current in the driver is so again at the end of the scope.
class KeepsContext {
 public:
  explicit KeepsContext(Contexts* contexts)
      : contexts_(contexts), before_(contexts->current_in_driver()) {}
  ~KeepsContext() {
    if (before_ != nullptr) contexts_->use(before_);
  }
  KeepsContext(const KeepsContext&) = delete;
  KeepsContext& operator=(const KeepsContext&) = delete;

 private:
  Contexts* const contexts_;
  const CUcontext before_;
};

}  // namespace tendril::worker::cuda

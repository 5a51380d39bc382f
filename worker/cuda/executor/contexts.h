// SPDX-License-Identifier: Apache-2.0
// The contexts of one client process: by the index that a call names, and which of them is current
// in the driver. Executor thread, unless a member says otherwise.
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
  // The first error of calls without reply. The next wait tells it. Any thread.
  std::atomic<int> deferred{0};
  // The streams that calls in this context have named since it was last waited for, so that a wait
  // for it can ask them.
  std::vector<CUstream> touched;
  CUstream touched_last = nullptr;
  bool untold = false;        // there may be work that none of these streams knows of
  std::atomic<int> waits{0};  // for all of it, under way; any thread
  CUevent copied = nullptr;   // behind the last synchronous copy; ends with the context
};

class Contexts {
 public:
  explicit Contexts(gpu::Driver* driver) : driver_(driver) {}

  // The context of the call that is being run; null when it named none.
  WorkerContext* current() const { return current_; }
  // Makes the context of a call current, here and in the driver. 0: none. An error: there is none
  // by this index, or the driver refuses it.
  CUresult enter(uint32_t index);
  WorkerContext* find(uint64_t id);
  // Null: the id is malformed. One that was there by that id is retired.
  WorkerContext* add(uint64_t id);
  // Taken out of the table. It lives on, since a wait may still point at it.
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
  // The driver's current context changed behind our back.
  void forget_current() { driver_current_ = nullptr; }

  // Keeps the error of a call without reply for the next wait in its context.
  void defer(CUresult result) {
    if (__builtin_expect(result != CUDA_SUCCESS, 0)) remember(result);
  }
  // That error, once; success when there is none, or no context. Any thread.
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

}  // namespace tendril::worker::cuda

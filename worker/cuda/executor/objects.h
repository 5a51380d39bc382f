// SPDX-License-Identifier: Apache-2.0
// The driver's objects by CUDA's kinds of handles, and what ends with what. When the driver has
// ended an object, `gone` or `end` says so here. Otherwise a later call would hand a stale handle
// to the driver, which follows it. Executor thread.
#pragma once

#include <functional>

#include "api/cuda_kinds.gen.h"
#include "worker/core/objects.h"

namespace tendril::worker::cuda {

using api::cuda::Kind;

class Objects : public ObjectTables<Kind> {
 public:
  // Told about each object that has ended, after it was unbound.
  using Ended = std::function<void(Kind kind, uint64_t id, void* object)>;

  explicit Objects(
      uint64_t most = UINT64_MAX, Ended ended = [](Kind, uint64_t, void*) {})
      : ObjectTables(api::cuda::kKinds, most), ended_(std::move(ended)) {}

  // The driver has ended the object of `id`, and with it all that it owns. Null: there is none.
  void* gone(Kind kind, uint64_t id) {
    void* object = unbind(kind, id);
    if (object == nullptr) return nullptr;
    ended_(kind, id, object);
    end(object);
    return object;
  }
  // The driver has ended `owner`, which may have no id.
  void end(const void* owner) {
    if (owner != nullptr) ObjectTables::end(owner, ended_);
  }

 private:
  const Ended ended_;
};

}  // namespace tendril::worker::cuda

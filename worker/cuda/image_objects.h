// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects. Kernels get them, so the client knows the driver's own values. A
// value that the driver did not give to this session, or that has ended, never reaches the driver.
// Executor thread.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "worker/cuda/executor/executor.h"

namespace tendril::worker::cuda {

enum class ImageKind : uint8_t { kTexture, kSurface };

class ImageObjects {
 public:
  bool has(ImageKind kind, uint64_t value) const { return of(kind).count(value) != 0; }
  // `create(uint64_t* value)` calls the driver and returns its result.
  template <typename Create>
  CUresult make(Executor& executor, ImageKind kind, Create&& create) {
    if (!executor.objects().add_nameless()) return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t value = 0;
    const CUresult result = create(&value);
    if (result != CUDA_SUCCESS || !of(kind).emplace(value, current(executor)).second)
      executor.objects().drop_nameless();
    return result;
  }
  void forget(Executor& executor, ImageKind kind, uint64_t value) {
    if (of(kind).erase(value) != 0) executor.objects().drop_nameless();
  }
  // The context has ended, and its objects with it.
  void forget_context(Executor& executor, CUcontext context) {
    for (auto& values : values_) {
      for (auto it = values.begin(); it != values.end();) {
        if (it->second != context) {
          ++it;
          continue;
        }
        it = values.erase(it);
        executor.objects().drop_nameless();
      }
    }
  }

 private:
  using Values = std::unordered_map<uint64_t, CUcontext>;
  static CUcontext current(Executor& executor) { return executor.contexts().current_in_driver(); }
  Values& of(ImageKind kind) { return values_[static_cast<int>(kind)]; }
  const Values& of(ImageKind kind) const { return values_[static_cast<int>(kind)]; }

  Values values_[2];
};

}  // namespace tendril::worker::cuda

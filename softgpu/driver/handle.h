// SPDX-License-Identifier: Apache-2.0
// Typed handle tables. Every handle that leaves the library is a number minted here, never a
// pointer, and is never used again, unless the knob `handles` wants that. A stale, foreign or
// invented handle is not found. Callable from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "softgpu/driver/live.h"

namespace tendril::softgpu {

// Tells kinds of handles apart in a trace: handle = 0x0d00'0000'0000 | kind << 34 | serial << 4.
enum class HandleKind : uint64_t {
  kContext = 1,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kLibrary,
  kKernel,
  kGraph,
  kGraphNode,
  kGraphExec,
  kPool,
  kAllocation,
  kLinker,
  kArray,
  kUserObject,
  kGreen,
  kMipmap,
  kTexture,
  kSurface,
  kReference,
  kDescription,
};

template <typename H, typename T, HandleKind kKind>
class HandleTable {
 public:
  H mint() {
    uint64_t serial = next_.fetch_add(1, std::memory_order_relaxed);
    if (H ended{}; reuses_handles() && take_ended(&ended)) return ended;
    return (H)(0x0d0000000000ull | static_cast<uint64_t>(kKind) << 34 |
               serial << 4);  // NOLINT: pointer or integer
  }
  void put(H handle, std::shared_ptr<T> object) {
    std::unique_lock guard(lock_);
    objects_[key(handle)] = std::move(object);
    if (checks_handles()) handle_begins(key(handle));
  }
  H add(std::shared_ptr<T> object) {
    H handle = mint();
    put(handle, std::move(object));
    return handle;
  }
  std::shared_ptr<T> get(H handle) const {
    std::shared_lock guard(lock_);
    auto found = objects_.find(key(handle));
    return found == objects_.end() ? nullptr : found->second;
  }
  std::shared_ptr<T> remove(H handle) {
    std::unique_lock guard(lock_);
    auto found = objects_.find(key(handle));
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    objects_.erase(found);
    if (checks_handles()) handle_ends(key(handle));
    if (reuses_handles() && kKind != HandleKind::kContext) ended_.push_back(handle);
    return object;
  }
  std::vector<std::pair<H, std::shared_ptr<T>>> all() const {
    std::shared_lock guard(lock_);
    std::vector<std::pair<H, std::shared_ptr<T>>> list;
    for (const auto& [k, object] : objects_) list.emplace_back((H)k, object);  // NOLINT
    return list;
  }

 private:
  bool take_ended(H* handle) {
    std::unique_lock guard(lock_);
    if (ended_.empty()) return false;
    *handle = ended_.back();
    ended_.pop_back();
    return true;
  }
  static uint64_t key(H handle) { return (uint64_t)handle; }  // NOLINT
  mutable std::shared_mutex lock_;
  std::unordered_map<uint64_t, std::shared_ptr<T>> objects_;
  std::vector<H> ended_;  // for other objects
  std::atomic<uint64_t> next_{1};
};

}  // namespace tendril::softgpu

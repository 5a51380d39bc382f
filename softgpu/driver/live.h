// SPDX-License-Identifier: Apache-2.0
// Checks the handles that calls get, if the knob `handles` says so. This driver finds a stale
// handle in no table and answers an error. A vendor's driver, whose handles are pointers, follows
// it. With the knob the process aborts and names the call, also when a call on one thread ends an
// object that a call on another thread uses. Any thread.
#pragma once

#include <cstdint>
#include <type_traits>

#include "api/cuda_abi.gen.h"

namespace tendril::softgpu {

bool checks_handles();
// New handles are those of ended objects, if there are any, as a vendor's allocator would do it.
bool reuses_handles();

// From tables of handles (handle.h).
void handle_begins(uint64_t handle);
void handle_ends(uint64_t handle);
// A handle inside an array or a record that a call gets. Zero is no handle.
void check_live(uint64_t handle);
template <typename H>
void check_live(H handle) {
  if (checks_handles()) check_live((uint64_t)handle);  // NOLINT: pointer or integer
}

template <typename T>
inline constexpr bool kIsHandle =
    std::is_same_v<T, CUcontext> || std::is_same_v<T, CUstream> || std::is_same_v<T, CUevent> ||
    std::is_same_v<T, CUmodule> || std::is_same_v<T, CUfunction> || std::is_same_v<T, CUkernel> ||
    std::is_same_v<T, CUlibrary> || std::is_same_v<T, CUgraph> || std::is_same_v<T, CUgraphNode> ||
    std::is_same_v<T, CUgraphExec> || std::is_same_v<T, CUmemoryPool> ||
    std::is_same_v<T, CUarray> || std::is_same_v<T, CUmipmappedArray> ||
    std::is_same_v<T, CUlinkState> || std::is_same_v<T, CUuserObject> ||
    std::is_same_v<T, CUtexref> || std::is_same_v<T, CUsurfref> || std::is_same_v<T, CUgreenCtx> ||
    std::is_same_v<T, CUdevResourceDesc>;

// The handles of one call, while it runs. entry.cc makes one for each call.
class CallHandles {
 public:
  explicit CallHandles(const char* name);
  ~CallHandles();
  CallHandles(const CallHandles&) = delete;
  CallHandles& operator=(const CallHandles&) = delete;
  void add(uint64_t handle);

 private:
  static constexpr unsigned kMost = 8;
  uint64_t handles_[kMost];
  unsigned count_ = 0;
  const char* const before_;
};

class CheckCall {
 public:
  explicit CheckCall(CallHandles* handles) : handles_(handles) {}
  template <typename... T>
  void operator()(const T&... values) const {
    if (handles_ != nullptr) (add(values), ...);
  }

 private:
  template <typename T>
  void add(const T& value) const {
    if constexpr (kIsHandle<T>) handles_->add(reinterpret_cast<uint64_t>(value));
  }
  CallHandles* const handles_;
};

}  // namespace tendril::softgpu

// SPDX-License-Identifier: Apache-2.0
// See live.h.

#include "softgpu/driver/live.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "softgpu/driver/config.h"
#include "softgpu/driver/device/context.h"
#include "softgpu/driver/device/device.h"

namespace tendril::softgpu {
namespace {

struct Live {
  std::mutex lock;
  std::unordered_map<uint64_t, unsigned> calls;  // of live handles: how many use it now
};

Live& live() {
  static auto& all = *new Live;
  return all;
}

thread_local const char* t_call = "";

bool is_primary(uint64_t handle) {
  for (int device = 0; device < device_count(); ++device)
    if (reinterpret_cast<uint64_t>(device_at(device)->primary_handle) == handle) return true;
  return false;
}

// The null, legacy and per-thread streams.
bool is_special(uint64_t handle) { return handle <= 2; }

// Standard error as it was at first. A program may give it another place, and show nothing of that
// when it aborts.
int first_error() {
  static const int descriptor = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 64);
  return descriptor;
}

[[noreturn]] void refuse(const char* what, uint64_t handle) {
  dprintf(first_error(), "softgpu: %s: %s handle 0x%llx\n", t_call, what,
          static_cast<unsigned long long>(handle));
  abort();
}

}  // namespace

bool checks_handles() {
  static const bool on = config().handles != HandleMode::kFree && first_error() >= 0;
  return on;
}

bool reuses_handles() {
  static const bool on = config().handles == HandleMode::kReused;
  return on;
}

void handle_begins(uint64_t handle) {
  Live& all = live();
  const std::lock_guard guard(all.lock);
  all.calls.try_emplace(handle, 0);
}

void handle_ends(uint64_t handle) {
  Live& all = live();
  const std::lock_guard guard(all.lock);
  const auto found = all.calls.find(handle);
  if (found == all.calls.end()) return;
  // The call that ends it may name it.
  if (found->second > 1) refuse("ends, while another call uses it, the", handle);
  all.calls.erase(found);
}

void check_live(uint64_t handle) {
  if (is_special(handle)) return;
  Live& all = live();
  {
    const std::lock_guard guard(all.lock);
    if (all.calls.count(handle) != 0) return;
  }
  if (!is_primary(handle)) refuse("stale or foreign", handle);
}

CallHandles::CallHandles(const char* name) : before_(t_call) {
  t_call = name;
  if (strcmp(name, "cuCtxSetCurrent") == 0) return;  // it may leave a context that has ended
  const auto& stack = context_stack();
  if (!stack.empty() && stack.back() != nullptr) {
    const auto current = reinterpret_cast<uint64_t>(stack.back());
    Live& all = live();
    const std::lock_guard guard(all.lock);
    const auto found = all.calls.find(current);  // it may be current although it has ended
    if (found == all.calls.end()) return;
    ++found->second;
    handles_[count_++] = current;
  }
}

CallHandles::~CallHandles() {
  Live& all = live();
  const std::lock_guard guard(all.lock);
  for (unsigned i = 0; i < count_; ++i) {
    const auto found = all.calls.find(handles_[i]);
    if (found != all.calls.end() && found->second != 0) --found->second;
  }
  t_call = before_;
}

void CallHandles::add(uint64_t handle) {
  if (is_special(handle)) return;
  check_live(handle);
  for (unsigned i = 0; i < count_; ++i)
    if (handles_[i] == handle) return;
  if (count_ == kMost) return;
  Live& all = live();
  const std::lock_guard guard(all.lock);
  const auto found = all.calls.find(handle);
  if (found == all.calls.end()) return;
  ++found->second;
  handles_[count_++] = handle;
}

}  // namespace tendril::softgpu

// SPDX-License-Identifier: Apache-2.0
// The time slices that the GPU itself gives this process' contexts. NVIDIA's kernel driver
// schedules channel groups. A context owns a few of them. The user-mode driver makes them with
// ioctl. The process that made a group may set its time slice. So the worker watches the ioctl
// calls of its own process (process/driver_ioctl.cc), learns the groups, and sets the slices that
// tendrild asks for. A driver without channel groups, such as the software GPU, makes no such
// calls, and nothing happens. If a driver refuses, the log says so once. Numbers and layouts come
// from NVIDIA's open kernel modules (ctrla06c.h, nvos.h) and were tried on driver 580. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/lock.h"

namespace tendril::worker {

class HardwareSlices {
 public:
  using Ioctl = int (*)(int fd, unsigned long request, void* argument);
  // Ready before any constructor runs: drivers' threads come early.
  constexpr HardwareSlices() = default;

  // A successful ioctl of this process, after the call.
  void saw(int fd, unsigned long request, const void* argument);
  // Contexts of this GPU have just been made: the groups that are new since the last call of this
  // function belong to it.
  void claim(uint32_t gpu);
  enum class Outcome : uint8_t { kNothing, kDone, kRefused };
  // Sets the time slice of all groups of the GPU. 0 us: back to the slice that each group had at
  // first. *status: the driver's answer.
  Outcome set(uint32_t gpu, uint32_t us, Ioctl ioctl, uint32_t* status);
  size_t groups(uint32_t gpu);

 private:
  static constexpr size_t kGroupsMax = 256;  // a context has four
  static constexpr uint32_t kNobody = UINT32_MAX;
  struct Group {
    int fd = -1;
    // The kernel driver's handles; the parent is the device.
    uint32_t client = 0, parent = 0, object = 0;
    uint32_t gpu = kNobody;
    uint64_t first_us = 0;  // 0: not known yet
    uint32_t us = 0;        // as set; 0: unchanged
  };
  void add(int fd, uint32_t client, uint32_t parent, uint32_t object);
  void remove(uint32_t client, uint32_t object);
  static uint32_t set_group(Group* group, uint32_t us, Ioctl ioctl);

  base::Lock lock_;
  Group groups_[kGroupsMax] = {};
  size_t count_ = 0;
};

// The one of this process.
extern HardwareSlices hardware_slices;

}  // namespace tendril::worker

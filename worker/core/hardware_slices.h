// SPDX-License-Identifier: Apache-2.0
// The time that the GPU itself gives this process' contexts in turn. NVIDIA's kernel driver
// schedules channel groups; a context owns a few, made by the user-mode driver with ioctl, and
// whoever made one may set its time slice. The worker watches its own process' ioctl calls
// (process/driver_ioctl.cc) to learn the groups, and sets what tendrild asks for. Where a driver
// knows no such thing, the software GPU say, nothing is ever seen and nothing done; where it
// refuses, the log says so once. Numbers and layouts: NVIDIA's open kernel modules (ctrla06c.h,
// nvos.h), tried on driver 580. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/lock.h"

namespace tendril::worker {

class HardwareSlices {
 public:
  using Ioctl = int (*)(int fd, unsigned long request, void* argument);
  constexpr HardwareSlices() =
      default;  // ready before any constructor runs: drivers' threads come early

  // A successful ioctl of this process, after the call.
  void saw(int fd, unsigned long request, const void* argument);
  // The groups that have come since the last call belong to this GPU: its contexts have just been
  // made.
  void claim(uint32_t gpu);
  enum class Outcome : uint8_t { kNothing, kDone, kRefused };
  // Sets the slices of all groups of the GPU that have another one; 0 us: what they had at first.
  // *status: what the driver said.
  Outcome set(uint32_t gpu, uint32_t us, Ioctl ioctl, uint32_t* status);
  size_t groups(uint32_t gpu);

 private:
  static constexpr size_t kGroupsMax = 256;  // a context has four
  static constexpr uint32_t kNobody = UINT32_MAX;
  struct Group {
    int fd = -1;
    uint32_t client = 0, parent = 0,
             object = 0;  // handles of the kernel driver's; the parent is the device
    uint32_t gpu = kNobody;
    uint64_t first_us = 0;  // 0: not asked yet
    uint32_t us = 0;        // as set; 0: as it was
  };
  void add(int fd, uint32_t client, uint32_t parent, uint32_t object);
  void remove(uint32_t client, uint32_t object);
  static uint32_t set_group(Group* group, uint32_t us, Ioctl ioctl);

  base::Lock lock_;
  Group groups_[kGroupsMax] = {};
  size_t count_ = 0;
};

// Of this process.
extern HardwareSlices hardware_slices;

}  // namespace tendril::worker

// SPDX-License-Identifier: Apache-2.0
// See hardware_slices.h.
#include "worker/core/hardware_slices.h"

#include <sys/ioctl.h>

#include <cstring>

namespace tendril::worker {
namespace {

constexpr unsigned kFree = 0x29, kControl = 0x2a, kAllocate = 0x2b;  // numbers of type 'F'
constexpr uint32_t kChannelGroup = 0xa06c;                           // KEPLER_CHANNEL_GROUP_A
constexpr uint32_t kSetSlice = 0xa06c0103, kGetSlice = 0xa06c0104;

struct FreeCall {
  uint32_t client, parent, object, status;
};

struct ControlCall {
  uint32_t client, object, command, flags;
  uint64_t parameters;
  uint32_t parameter_bytes, status;
};

// Drivers use two layouts. Their sizes differ.
struct AllocateCall {
  uint32_t client, parent, object, object_class;
  uint64_t parameters, rights;
  uint32_t parameter_bytes, flags, status, padding;
};
struct ShortAllocateCall {
  uint32_t client, parent, object, object_class;
  uint64_t parameters;
  uint32_t parameter_bytes, status;
};
static_assert(sizeof(FreeCall) == 16 && sizeof(ControlCall) == 32 && sizeof(AllocateCall) == 48 &&
              sizeof(ShortAllocateCall) == 32);

uint32_t control(int fd, uint32_t client, uint32_t group, uint32_t command, uint64_t* us,
                 HardwareSlices::Ioctl ioctl) {
  ControlCall call{client, group, command, 0, reinterpret_cast<uint64_t>(us), sizeof *us, 0};
  if (ioctl(fd, _IOWR('F', kControl, ControlCall), &call) != 0) return UINT32_MAX;
  return call.status;
}

}  // namespace

constinit HardwareSlices hardware_slices;

void HardwareSlices::saw(int fd, unsigned long request, const void* argument) {
  if (_IOC_TYPE(request) != 'F' || argument == nullptr) return;
  const size_t bytes = _IOC_SIZE(request);
  if (_IOC_NR(request) == kFree && bytes == sizeof(FreeCall)) {
    FreeCall call;
    std::memcpy(&call, argument, sizeof call);
    if (call.status == 0) remove(call.client, call.object);
  } else if (_IOC_NR(request) == kAllocate && bytes == sizeof(AllocateCall)) {
    AllocateCall call;
    std::memcpy(&call, argument, sizeof call);
    if (call.object_class == kChannelGroup && call.status == 0)
      add(fd, call.client, call.parent, call.object);
  } else if (_IOC_NR(request) == kAllocate && bytes == sizeof(ShortAllocateCall)) {
    ShortAllocateCall call;
    std::memcpy(&call, argument, sizeof call);
    if (call.object_class == kChannelGroup && call.status == 0)
      add(fd, call.client, call.parent, call.object);
  }
}

void HardwareSlices::add(int fd, uint32_t client, uint32_t parent, uint32_t object) {
  const base::Locked hold(lock_);
  if (count_ == kGroupsMax) return;  // this group keeps the slice that the driver set
  Group& group = groups_[count_];
  group = {};
  group.fd = fd;
  group.client = client;
  group.parent = parent;
  group.object = object;
  // Another group of a known device.
  for (size_t i = 0; i < count_; ++i) {
    if (groups_[i].client == client && groups_[i].parent == parent) group.gpu = groups_[i].gpu;
  }
  ++count_;
}

// `object` is the group itself, its device or its client.
void HardwareSlices::remove(uint32_t client, uint32_t object) {
  const base::Locked hold(lock_);
  for (size_t i = 0; i < count_;) {
    const Group& group = groups_[i];
    if (group.client == client &&
        (group.object == object || group.parent == object || client == object)) {
      groups_[i] = groups_[--count_];
    } else {
      ++i;
    }
  }
}

void HardwareSlices::claim(uint32_t gpu) {
  const base::Locked hold(lock_);
  for (size_t i = 0; i < count_; ++i) {
    if (groups_[i].gpu == kNobody) groups_[i].gpu = gpu;
  }
}

size_t HardwareSlices::groups(uint32_t gpu) {
  const base::Locked hold(lock_);
  size_t found = 0;
  for (size_t i = 0; i < count_; ++i) found += groups_[i].gpu == gpu;
  return found;
}

HardwareSlices::Outcome HardwareSlices::set(uint32_t gpu, uint32_t us, Ioctl ioctl,
                                            uint32_t* status) {
  const base::Locked hold(lock_);
  Outcome outcome = Outcome::kNothing;
  for (size_t i = 0; i < count_; ++i) {
    if (groups_[i].gpu != gpu || groups_[i].us == us) continue;
    *status = set_group(&groups_[i], us, ioctl);
    if (*status != 0) return Outcome::kRefused;
    outcome = Outcome::kDone;
  }
  return outcome;
}

uint32_t HardwareSlices::set_group(Group* group, uint32_t us, Ioctl ioctl) {
  uint32_t status = 0;
  if (group->first_us == 0)
    status = control(group->fd, group->client, group->object, kGetSlice, &group->first_us, ioctl);
  uint64_t wanted = us != 0 ? us : group->first_us;
  if (status == 0)
    status = control(group->fd, group->client, group->object, kSetSlice, &wanted, ioctl);
  if (status == 0) group->us = us;
  return status;
}

}  // namespace tendril::worker

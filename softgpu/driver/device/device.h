// SPDX-License-Identifier: Apache-2.0
// The devices: what they claim to be, and the primary context of each. Fixed at the first use. Any
// thread.
#pragma once

#include <memory>
#include <mutex>

#include "api/cuda_abi.gen.h"

namespace tendril::softgpu {

class Context;

struct Device {
  int index = 0;
  CUuuid uuid = {};
  unsigned bus = 0;
  // Primary context: the same handle each time it comes alive.
  std::mutex primary_lock;
  CUcontext primary_handle = nullptr;
  unsigned primary_uses = 0;
  unsigned primary_flags = 0;
  // Pools by handle; see pool.cc.
  CUmemoryPool default_pool = nullptr;
  CUmemoryPool current_pool = nullptr;
};

int device_count();
// Null when there is no such device.
Device* device_at(CUdevice device);
// Value of an attribute; false when the number is not an attribute.
bool device_attribute(const Device& device, int attribute, int* value);
int attribute_of(int device, CUdevice_attribute attribute);

// Somebody has synchronised. Now pools may give up what streams have freed (pool.cc).
void settle_pools();
// Frees memory of a pool without a stream. Does nothing for other memory.
void freed_at_once(CUmemoryPool pool, uint64_t bytes);

}  // namespace tendril::softgpu

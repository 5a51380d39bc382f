// SPDX-License-Identifier: Apache-2.0
// See buffers.h.
#include "softnccl/buffers.h"

#include "softnccl/error.h"

namespace tendril::softnccl {

ncclResult_t Buffers::allocate(uint64_t bytes) {
  if (bytes == 0 || address_ != 0) return ncclSuccess;
  return driver_error(driver()->allocate(&address_, bytes), "cuMemAlloc");
}

ncclResult_t Buffers::map(uint64_t bytes, CUdevice device) {
  if (bytes == 0 || address_ != 0) return ncclSuccess;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  if (ncclResult_t bad =
          driver_error(driver()->physical_create(&physical_, bytes, &properties, 0), "cuMemCreate"))
    return bad;
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  int result = driver()->range_reserve(&address_, bytes, 0, 0, 0);
  if (result == CUDA_SUCCESS) result = driver()->map(address_, bytes, 0, physical_, 0);
  if (result == CUDA_SUCCESS) {
    mapped_ = bytes;
    result = driver()->access(address_, bytes, &access, 1);
  }
  // As NCCL does: the mapping keeps it.
  driver()->physical_release(physical_);
  return driver_error(result, "cuMemMap");
}

void Buffers::free() {
  if (mapped_ != 0) {
    driver()->unmap(address_, mapped_);
    driver()->range_free(address_, mapped_);
  } else if (address_ != 0) {
    driver()->deallocate(address_);
  }
  address_ = mapped_ = 0;
}

}  // namespace tendril::softnccl

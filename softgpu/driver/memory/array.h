// SPDX-License-Identifier: Apache-2.0
// CUDA arrays as plain rows in host memory, and mipmaps as arrays of halving size. texture.h has
// what samples them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "api/cuda_abi.gen.h"
#include "softgpu/driver/handle.h"
#include "softgpu/driver/memory/card_memory.h"

namespace tendril::softgpu {

struct Array {
  CUarray handle = nullptr;
  CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
  CUcontext context = nullptr;
  HiddenMemory memory;
  size_t pitch = 0, rows = 1, slices = 1;
  std::vector<uint8_t> bytes;
  ~Array();
};
using ArrayPtr = std::shared_ptr<Array>;
using ArrayTable = HandleTable<CUarray, Array, HandleKind::kArray>;
ArrayTable& arrays();

struct MipmappedArray {
  std::vector<ArrayPtr> levels;
  HiddenMemory memory;
  ~MipmappedArray();
};
using MipmappedArrayPtr = std::shared_ptr<MipmappedArray>;
using MipmapTable = HandleTable<CUmipmappedArray, MipmappedArray, HandleKind::kMipmap>;
MipmapTable& mipmaps();
// A context ends, and its arrays with it.
void drop_arrays(CUcontext context);

}  // namespace tendril::softgpu

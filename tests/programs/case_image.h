// SPDX-License-Identifier: Apache-2.0
// The texture or surface of a PTX case, as a line of the table describes it (tests/ptx/images.py):
// an array or memory with the given bytes, and an object on it. For ptx_cases.cc only.
#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "tests/programs/program.h"

class CaseImage {
 public:
  // The rest of a line that began with "image"; false when it is damaged.
  bool read(std::istringstream& line) {
    std::string what, hex;
    unsigned flags = 0, linear = 0, edge = 0, format = 0;
    line >> what >> shape_ >> format >> array_.NumChannels >> array_.Width >> array_.Height >>
        array_.Depth >> flags >> linear >> edge;
    for (float& b : sampling_.borderColor) {
      unsigned bits = 0;
      line >> std::hex >> bits;
      memcpy(&b, &bits, sizeof b);
    }
    line >> hex;
    if (!line || hex.size() % 2 != 0 || hex.size() > 1u << 20) return false;
    for (size_t i = 0; i < hex.size(); i += 2)
      bytes_.push_back(static_cast<uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
    surface_ = what == "surface";
    array_.Format = static_cast<CUarray_format>(format);
    array_.Flags = (surface_ ? CUDA_ARRAY3D_SURFACE_LDST : 0u) |
                   (shape_[0] == 'a' ? CUDA_ARRAY3D_LAYERED : 0u) |
                   (shape_ == "cube" ? CUDA_ARRAY3D_CUBEMAP : 0u);
    sampling_.flags = flags;
    sampling_.filterMode = linear ? CU_TR_FILTER_MODE_LINEAR : CU_TR_FILTER_MODE_POINT;
    for (CUaddress_mode& mode : sampling_.addressMode) mode = static_cast<CUaddress_mode>(edge);
    return true;
  }

  // Makes everything. The handle stays 0 if the case has no image.
  CUresult create(unsigned long long* handle) {
    *handle = 0;
    if (bytes_.empty()) return CUDA_SUCCESS;
    CUDA_RESOURCE_DESC resource = {};
    const CUresult bad =
        shape_ == "linear" || shape_ == "pitch" ? fill_memory(&resource) : fill_array(&resource);
    if (bad != CUDA_SUCCESS) return bad;
    const CUresult result = surface_ ? cuSurfObjectCreate(&object_, &resource)
                                     : cuTexObjectCreate(&object_, &resource, &sampling_, nullptr);
    *handle = object_;
    return result;
  }

  CUresult destroy() {
    if (bytes_.empty()) return CUDA_SUCCESS;
    CUresult result = surface_ ? cuSurfObjectDestroy(object_) : cuTexObjectDestroy(object_);
    if (result == CUDA_SUCCESS && handle_ != nullptr) result = cuArrayDestroy(handle_);
    if (result == CUDA_SUCCESS && memory_ != 0) result = cuMemFree(memory_);
    return result;
  }

 private:
  size_t rows() const { return array_.Height == 0 ? 1 : array_.Height; }
  size_t slices() const { return array_.Depth == 0 ? 1 : array_.Depth; }
  size_t row_bytes() const { return bytes_.size() / rows() / slices(); }

  CUresult fill_array(CUDA_RESOURCE_DESC* resource) {
    CUresult result = cuArray3DCreate_v2(&handle_, &array_);
    if (result != CUDA_SUCCESS) return result;
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = bytes_.data();
    copy.srcPitch = row_bytes(), copy.srcHeight = rows();
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY, copy.dstArray = handle_;
    copy.WidthInBytes = row_bytes(), copy.Height = rows(), copy.Depth = slices();
    resource->resType = CU_RESOURCE_TYPE_ARRAY;
    resource->res.array.hArray = handle_;
    return cuMemcpy3D_v2(&copy);
  }

  CUresult fill_memory(CUDA_RESOURCE_DESC* resource) {
    // the alignment that hardware asks for
    const size_t pitch = shape_ == "linear" ? row_bytes() : 512;
    std::vector<uint8_t> padded(pitch * rows());
    for (size_t y = 0; y < rows(); ++y)
      memcpy(&padded[y * pitch], &bytes_[y * row_bytes()], row_bytes());
    CUresult result = cuMemAlloc(&memory_, padded.size());
    if (result == CUDA_SUCCESS) result = cuMemcpyHtoD(memory_, padded.data(), padded.size());
    if (shape_ == "linear") {
      resource->resType = CU_RESOURCE_TYPE_LINEAR;
      resource->res.linear = {memory_, array_.Format, array_.NumChannels, padded.size()};
    } else {
      resource->resType = CU_RESOURCE_TYPE_PITCH2D;
      resource->res.pitch2D = {memory_,      array_.Format, array_.NumChannels,
                               array_.Width, array_.Height, pitch};
    }
    return result;
  }

  std::string shape_;
  bool surface_ = false;
  CUDA_ARRAY3D_DESCRIPTOR array_ = {};
  CUDA_TEXTURE_DESC sampling_ = {};
  std::vector<uint8_t> bytes_;
  CUarray handle_ = nullptr;
  CUdeviceptr memory_ = 0;
  unsigned long long object_ = 0;
};

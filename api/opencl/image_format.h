// SPDX-License-Identifier: Apache-2.0
// How many bytes an image has. Client and worker count alike: the client packs its data by this,
// and the worker lets the driver read exactly so many. Formats that are not here are refused.
#pragma once

#include <cstdint>

#include "api/opencl_abi.gen.h"

namespace tendril::api::opencl {

constexpr uint32_t channels_of(cl_channel_order order) {
  switch (order) {
    case CL_R:
    case CL_A:
    case CL_INTENSITY:
    case CL_LUMINANCE:
    case CL_DEPTH:
      return 1;
    case CL_RG:
    case CL_RA:
      return 2;
    case CL_RGBA:
    case CL_BGRA:
    case CL_ARGB:
    case CL_ABGR:
    case CL_sRGBA:
    case CL_sBGRA:
      return 4;
    default:
      return 0;
  }
}

// Bytes of one element; 0: unknown.
constexpr uint64_t element_bytes(const cl_image_format& format) {
  const bool rgb = format.image_channel_order == CL_RGB || format.image_channel_order == CL_RGBx;
  switch (format.image_channel_data_type) {
    case CL_SNORM_INT8:
    case CL_UNORM_INT8:
    case CL_SIGNED_INT8:
    case CL_UNSIGNED_INT8:
      return channels_of(format.image_channel_order);
    case CL_SNORM_INT16:
    case CL_UNORM_INT16:
    case CL_SIGNED_INT16:
    case CL_UNSIGNED_INT16:
    case CL_HALF_FLOAT:
      return 2 * channels_of(format.image_channel_order);
    case CL_SIGNED_INT32:
    case CL_UNSIGNED_INT32:
    case CL_FLOAT:
      return 4 * channels_of(format.image_channel_order);
    case CL_UNORM_SHORT_565:
    case CL_UNORM_SHORT_555:
      return rgb ? 2 : 0;
    case CL_UNORM_INT_101010:
      return rgb ? 4 : 0;
    case CL_UNORM_INT_101010_2:
      return format.image_channel_order == CL_RGBA ? 4 : 0;
    default:
      return 0;
  }
}

// The image in elements, as origins and regions count: an array's layers are its last dimension.
// False: there is no such type.
constexpr bool extents_of(const cl_image_desc& description, uint64_t extent[3]) {
  extent[0] = description.image_width;
  extent[1] = extent[2] = 1;
  switch (description.image_type) {
    case CL_MEM_OBJECT_IMAGE1D:
    case CL_MEM_OBJECT_IMAGE1D_BUFFER:
      return true;
    case CL_MEM_OBJECT_IMAGE1D_ARRAY:
      extent[1] = description.image_array_size;
      return true;
    case CL_MEM_OBJECT_IMAGE2D:
      extent[1] = description.image_height;
      return true;
    case CL_MEM_OBJECT_IMAGE2D_ARRAY:
      extent[1] = description.image_height;
      extent[2] = description.image_array_size;
      return true;
    case CL_MEM_OBJECT_IMAGE3D:
      extent[1] = description.image_height;
      extent[2] = description.image_depth;
      return true;
    default:
      return false;
  }
}

// False: it is more than 64 bits can count.
constexpr bool packed_bytes(uint64_t element, const uint64_t extent[3], uint64_t* bytes) {
  *bytes = element;
  for (int i = 0; i < 3; ++i)
    if (__builtin_mul_overflow(*bytes, extent[i], bytes)) return false;
  return true;
}

}  // namespace tendril::api::opencl

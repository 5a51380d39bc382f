// SPDX-License-Identifier: Apache-2.0
// Images. Devices say that they have none, so no format is supported.
#include "api/opencl_bodies.gen.h"
#include "client/opencl/state.h"

namespace tendril::client::opencl {

cl_int clGetSupportedImageFormats(cl_context context, cl_mem_flags, cl_mem_object_type,
                                  cl_uint num_entries, cl_image_format* image_formats,
                                  cl_uint* num_image_formats) {
  if (find(context) == nullptr) return CL_INVALID_CONTEXT;
  if (num_entries == 0 && image_formats != nullptr) return CL_INVALID_VALUE;
  if (num_image_formats != nullptr) *num_image_formats = 0;
  return CL_SUCCESS;
}

}  // namespace tendril::client::opencl

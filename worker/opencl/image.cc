// SPDX-License-Identifier: Apache-2.0
// Images, charged to the slices of their context as buffers are.
#include <cstring>

#include "api/opencl/image_format.h"
#include "api/opencl_handlers.gen.h"
#include "worker/opencl/executor.h"
#include "worker/opencl/incoming.h"
#include "worker/opencl/memory.h"
#include "worker/opencl/scope.h"

namespace tendril::worker::opencl {
namespace {

constexpr cl_uint kFormatsMax = 1024;

cl_mem make(const gpu::OpenclDriver& driver, cl_context context, cl_mem_flags flags,
            const cl_image_format& format, const cl_image_desc& description, const uint8_t* content,
            cl_int* result) {
  void* const host = const_cast<uint8_t*>(content);
  if (host != nullptr) flags |= CL_MEM_COPY_HOST_PTR;
  if (driver.clCreateImage != nullptr)
    return driver.clCreateImage(context, flags, &format, &description, host, result);
  *result = CL_INVALID_OPERATION;
  return nullptr;
}

}  // namespace

cl_int handle(Executor& w, const wire::opencl::image_create_request& m,
              wire::opencl::image_create_reply& r) {
  const cl_image_format format = {m.picture.order, m.picture.channel};
  cl_image_desc description = {};
  description.image_type = m.picture.type;
  description.image_width = m.picture.width;
  description.image_height = m.picture.height;
  description.image_depth = m.picture.depth;
  description.image_array_size = m.picture.layers;
  description.image_row_pitch = m.picture.row;
  description.image_slice_pitch = m.picture.slice;
  uint64_t extent[3], packed = 0;
  const uint64_t element = api::opencl::element_bytes(format);
  const bool known = element != 0 && api::opencl::extents_of(description, extent) &&
                     api::opencl::packed_bytes(element, extent, &packed) && packed != 0;
  Scope scope(w);
  Incoming content(w, m.transfer, m.has_content != 0 ? packed : 0, m.content);
  scope.reserve(Kind::kMemory, m.memory);
  auto context = scope.get<cl_context>(Kind::kContext, m.context);
  auto parent = m.parent != 0 ? scope.get<cl_mem>(Kind::kMemory, m.parent) : nullptr;
  if (!scope.ok()) return scope.error();
  if (!known || (m.has_content != 0 && parent != nullptr)) return CL_INVALID_IMAGE_DESCRIPTOR;
  description.mem_object = parent;
  if (parent == nullptr && (m.picture.row != 0 || m.picture.slice != 0))
    return CL_INVALID_IMAGE_DESCRIPTOR;  // those are the client's memory's
  if (parent == nullptr && !w.charge_all(context, m.memory, packed))
    return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  const uint8_t* data = content.take();
  cl_int result = CL_OUT_OF_HOST_MEMORY;
  cl_mem memory = nullptr;
  if (m.has_content == 0 || data != nullptr)
    memory =
        make(w.driver(), context, m.flags & kForwardedFlags, format, description, data, &result);
  size_t bytes = packed;
  if (result == CL_SUCCESS &&
      w.driver().clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof bytes, &bytes, nullptr) ==
          CL_SUCCESS &&
      parent == nullptr && bytes > packed && !w.charge_all(context, m.memory, bytes - packed)) {
    w.driver().clReleaseMemObject(memory);  // its padding does not fit the slice
    result = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  }
  if (result != CL_SUCCESS) {
    w.uncharge(m.memory);
    return result;
  }
  r.size = bytes;
  scope.bind(Kind::kMemory, m.memory, memory);
  return result;
}

cl_int handle(Executor& w, const wire::opencl::image_formats_request& m,
              wire::opencl::image_formats_reply& r) {
  Scope scope(w);
  auto context = scope.get<cl_context>(Kind::kContext, m.context);
  auto* formats = scope.scratch<cl_image_format>(kFormatsMax);
  if (!scope.ok()) return scope.error();
  if (w.driver().clGetSupportedImageFormats == nullptr) return CL_SUCCESS;
  cl_uint count = 0;
  const cl_int result =
      w.driver().clGetSupportedImageFormats(context, m.flags, m.type, kFormatsMax, formats, &count);
  if (result != CL_SUCCESS) return result;
  static_assert(sizeof(cl_image_format) == 2 * sizeof(uint32_t));
  r.formats = {reinterpret_cast<const uint32_t*>(formats), 2 * std::min(count, kFormatsMax)};
  return result;
}

cl_int handle(Executor& w, const wire::opencl::image_fill_request& m) {
  constexpr size_t kColorBytes = 16;
  Scope scope(w);
  if (m.event != 0) scope.reserve(Kind::kEvent, m.event);
  auto queue = scope.get<cl_command_queue>(Kind::kQueue, m.queue);
  auto image = scope.get<cl_mem>(Kind::kMemory, m.image);
  const cl_event* wait = scope.handles<cl_event>(Kind::kEvent, m.wait);
  scope.length(m.origin.count, 3, false);
  scope.length(m.region.count, 3, false);
  if (m.color.count > kColorBytes) scope.fail(CL_INVALID_VALUE);
  if (!scope.ok()) return scope.error();
  if (w.driver().clEnqueueFillImage == nullptr) return CL_INVALID_OPERATION;
  alignas(16) uint8_t color[kColorBytes] = {};
  std::memcpy(color, m.color.data, m.color.count);
  cl_event event = nullptr;
  const cl_int result = w.driver().clEnqueueFillImage(
      queue, image, color, m.origin.data, m.region.data, static_cast<cl_uint>(m.wait.count), wait,
      m.event != 0 ? &event : nullptr);
  if (result == CL_SUCCESS && m.event != 0) scope.bind(Kind::kEvent, m.event, event);
  return result;
}

}  // namespace tendril::worker::opencl

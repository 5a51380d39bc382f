// SPDX-License-Identifier: Apache-2.0
// Images of contexts over several servers. The first server has each at once, because it says
// whether there is such an image.
#include <algorithm>

#include "client/opencl/copy.h"
#include "client/opencl/information.h"
#include "client/opencl/memory.h"
#include "client/opencl/spread/command.h"
#include "client/opencl/spread/functions.h"

namespace tendril::client::opencl::spread {
namespace {

// The first server's image. The program's memory is read once, and host access is checked here.
cl_mem make_first(const Context& context, Memory* parent, cl_mem_flags flags,
                  const cl_image_format* format, const cl_image_desc* description, void* host_ptr,
                  cl_int* result) {
  cl_image_desc its = {};
  if (description != nullptr) its = *description;
  cl_mem_flags its_flags = flags & ~(kNoHostReads | kNoHostWrites | CL_MEM_USE_HOST_PTR);
  if (host_ptr != nullptr) its_flags |= CL_MEM_COPY_HOST_PTR;
  if (parent != nullptr) {
    *result = make_at(parent, 0);
    if (*result != CL_SUCCESS) return nullptr;
    its.mem_object = parent->at[0];
  }
  return opencl::clCreateImage(context.members[0].context, its_flags, format,
                               description != nullptr ? &its : nullptr, host_ptr, result);
}

bool is_part(const Memory& image, const size_t* origin, const size_t* region) {
  return origin != nullptr && region != nullptr && inside(image.picture, origin, region);
}

// Whether nothing of the content before remains.
Access writing(const Memory* image, const size_t* origin, const size_t* region) {
  if (image == nullptr || image->parent != nullptr || !is_part(*image, origin, region))
    return Access::kChange;
  const bool all = std::equal(region, region + 3, image->picture.extent);
  return all ? Access::kOverwrite : Access::kChange;
}

}  // namespace

cl_mem clCreateImage(cl_context context, cl_mem_flags flags, const cl_image_format* image_format,
                     const cl_image_desc* image_desc, void* host_ptr, cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_mem>(CL_INVALID_CONTEXT, errcode_ret);
  const bool is_part = image_desc != nullptr && image_desc->mem_object != nullptr;
  Memory* parent = is_part ? find(image_desc->mem_object) : nullptr;
  if (is_part && (parent == nullptr || parent->context != in))
    return give<cl_mem>(CL_INVALID_IMAGE_DESCRIPTOR, errcode_ret);
  const cl_mem_flags own = is_part ? flags & ~kHostMemory : flags;
  cl_int result = check_flags(own, host_ptr);
  if (result != CL_SUCCESS) return give<cl_mem>(result, errcode_ret);
  const base::Locked held(in->lock);
  const cl_mem real = make_first(*in, parent, own, image_format, image_desc, host_ptr, &result);
  if (real == nullptr) return give<cl_mem>(result, errcode_ret);
  Memory* memory = create<cl_mem>(in);
  if (memory == nullptr) {
    opencl::clReleaseMemObject(real);
    return give<cl_mem>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  }
  const opencl::Memory* its = opencl::find(real);
  reset(memory, its->bytes, is_part ? inherited_flags(own, *parent) : flags,
        (flags & CL_MEM_USE_HOST_PTR) != 0 ? host_ptr : nullptr);
  memory->picture = its->picture;
  memory->picture.description = *image_desc;
  memory->parent = parent;
  use(parent);
  memory->at.assign(in->members.size(), nullptr);
  memory->at[0] = real;
  memory->endings.clear();
  memory->pieces.assign(is_part ? 0 : 1, Piece());
  for (Piece& piece : memory->pieces) {
    piece.end = kWhole;
    piece.arrivals.resize(in->members.size());
    if (host_ptr != nullptr) piece.valid = bit(0);
  }
  return give<cl_mem>(CL_SUCCESS, errcode_ret, memory);
}

cl_int clGetImageInfo(cl_mem image, cl_image_info param_name, size_t param_value_size,
                      void* param_value, size_t* param_value_size_ret) {
  const Wanted answer = {param_value_size, param_value, param_value_size_ret};
  const Memory* found = find(image);
  if (found == nullptr || !found->is_image()) return CL_INVALID_MEM_OBJECT;
  if (param_name == CL_IMAGE_BUFFER) {
    auto* parent = static_cast<Memory*>(found->parent);
    return answer.one(
        handle_of<cl_mem>(parent != nullptr && parent->is_image() ? nullptr : parent));
  }
  return opencl::clGetImageInfo(found->at[0], param_name, param_value_size, param_value,
                                param_value_size_ret);
}

// Those that every server has.
cl_int clGetSupportedImageFormats(cl_context context, cl_mem_flags flags,
                                  cl_mem_object_type image_type, cl_uint num_entries,
                                  cl_image_format* image_formats, cl_uint* num_image_formats) {
  const Context* in = find(context);
  if (in == nullptr) return CL_INVALID_CONTEXT;
  if (num_entries == 0 && image_formats != nullptr) return CL_INVALID_VALUE;
  std::vector<cl_image_format> common;
  for (const Member& member : in->members) {
    cl_uint count = 0;
    cl_int result =
        opencl::clGetSupportedImageFormats(member.context, flags, image_type, 0, nullptr, &count);
    if (result != CL_SUCCESS) return result;
    std::vector<cl_image_format> its(count);
    if (count != 0)
      result = opencl::clGetSupportedImageFormats(member.context, flags, image_type, count,
                                                  its.data(), nullptr);
    if (result != CL_SUCCESS) return result;
    const auto missing = [&](const cl_image_format& one) {
      return std::none_of(its.begin(), its.end(), [&](const cl_image_format& other) {
        return one.image_channel_order == other.image_channel_order &&
               one.image_channel_data_type == other.image_channel_data_type;
      });
    };
    if (&member == &in->members[0])
      common = its;
    else
      common.erase(std::remove_if(common.begin(), common.end(), missing), common.end());
  }
  if (num_image_formats != nullptr) *num_image_formats = static_cast<cl_uint>(common.size());
  if (image_formats != nullptr)
    std::copy_n(common.data(), std::min<size_t>(num_entries, common.size()), image_formats);
  return CL_SUCCESS;
}

cl_int clEnqueueReadImage(cl_command_queue command_queue, cl_mem image, cl_bool blocking_read,
                          const size_t* origin, const size_t* region, size_t row_pitch,
                          size_t slice_pitch, void* ptr, cl_uint num_events_in_wait_list,
                          const cl_event* event_wait_list, cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory* from = c.image(image);
  if (c.ok() && (from->flags & kNoHostReads) != 0) c.fail(CL_INVALID_OPERATION);
  c.uses(from, Access::kRead);
  return c.run(CL_COMMAND_READ_IMAGE, blocking_read != CL_FALSE, event, [&](cl_event* made) {
    return opencl::clEnqueueReadImage(c.queue(), c.at(from), CL_FALSE, origin, region, row_pitch,
                                      slice_pitch, ptr, c.waits(), c.wait(), made);
  });
}

cl_int clEnqueueWriteImage(cl_command_queue command_queue, cl_mem image, cl_bool blocking_write,
                           const size_t* origin, const size_t* region, size_t input_row_pitch,
                           size_t input_slice_pitch, const void* ptr,
                           cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                           cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory* to = c.image(image);
  if (c.ok() && (to->flags & kNoHostWrites) != 0) c.fail(CL_INVALID_OPERATION);
  c.uses(to, writing(to, origin, region));
  return c.run(CL_COMMAND_WRITE_IMAGE, blocking_write != CL_FALSE, event, [&](cl_event* made) {
    return opencl::clEnqueueWriteImage(c.queue(), c.at(to), CL_FALSE, origin, region,
                                       input_row_pitch, input_slice_pitch, ptr, c.waits(), c.wait(),
                                       made);
  });
}

void* clEnqueueMapImage(cl_command_queue command_queue, cl_mem image, cl_bool blocking_map,
                        cl_map_flags map_flags, const size_t* origin, const size_t* region,
                        size_t* image_row_pitch, size_t* image_slice_pitch,
                        cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                        cl_event* event, cl_int* errcode_ret) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory* memory = c.image(image);
  size_t row = 0, slice = 0;
  if (c.ok()) {
    (void)spread::clGetImageInfo(image, CL_IMAGE_ROW_PITCH, sizeof row, &row, nullptr);
    (void)spread::clGetImageInfo(image, CL_IMAGE_SLICE_PITCH, sizeof slice, &slice, nullptr);
    if (!is_part(*memory, origin, region) || image_row_pitch == nullptr ||
        (image_slice_pitch == nullptr && slice != 0))
      c.fail(CL_INVALID_VALUE);
  }
  if (c.ok()) c.fail(check_map(*memory, map_flags));
  Mapping mapping = {};
  if (c.ok()) {
    const Picture& picture = memory->picture;
    uint8_t* const shadow = shadow_of(memory);
    if (shadow == nullptr) c.fail(CL_MAP_FAILURE);
    mapping = {map_flags, wire::opencl::Form::kImage, {}, {}};
    std::copy_n(origin, 3, mapping.shape.origin);
    std::copy_n(region, 3, mapping.shape.extent);
    mapping.host.first = shadow + origin[0] * picture.element_bytes +
                         origin[1] * picture.row_pitch + origin[2] * picture.slice_pitch;
  }
  const bool reads = (map_flags & CL_MAP_WRITE_INVALIDATE_REGION) == 0;
  if (reads) c.uses(memory, Access::kRead);
  const cl_int result =
      c.run(CL_COMMAND_MAP_IMAGE, blocking_map != CL_FALSE, event, [&](cl_event* made) {
        const cl_int sent =
            reads
                ? opencl::clEnqueueReadImage(c.queue(), c.at(memory), CL_FALSE, origin, region, row,
                                             slice, mapping.host.first, c.waits(), c.wait(), made)
                : opencl::clEnqueueMarkerWithWaitList(c.queue(), c.waits(), c.wait(), made);
        const base::Locked held(memory->lock);
        if (sent == CL_SUCCESS) memory->mappings.push_back(mapping);
        return sent;
      });
  if (errcode_ret != nullptr) *errcode_ret = result;
  if (result != CL_SUCCESS) return nullptr;
  *image_row_pitch = row;
  if (image_slice_pitch != nullptr) *image_slice_pitch = slice;
  return mapping.host.first;
}

cl_int clEnqueueFillImage(cl_command_queue command_queue, cl_mem image, const void* fill_color,
                          const size_t* origin, const size_t* region,
                          cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                          cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory* to = c.image(image);
  c.uses(to, writing(to, origin, region));
  return c.run(CL_COMMAND_FILL_IMAGE, false, event, [&](cl_event* made) {
    return opencl::clEnqueueFillImage(c.queue(), c.at(to), fill_color, origin, region, c.waits(),
                                      c.wait(), made);
  });
}

cl_int clEnqueueCopyImage(cl_command_queue command_queue, cl_mem src_image, cl_mem dst_image,
                          const size_t* src_origin, const size_t* dst_origin, const size_t* region,
                          cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                          cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory *from = c.image(src_image), *to = c.image(dst_image);
  c.uses(from, Access::kRead);
  c.uses(to, from == to ? Access::kChange : writing(to, dst_origin, region));
  return c.run(CL_COMMAND_COPY_IMAGE, false, event, [&](cl_event* made) {
    return opencl::clEnqueueCopyImage(c.queue(), c.at(from), c.at(to), src_origin, dst_origin,
                                      region, c.waits(), c.wait(), made);
  });
}

cl_int clEnqueueCopyImageToBuffer(cl_command_queue command_queue, cl_mem src_image,
                                  cl_mem dst_buffer, const size_t* src_origin, const size_t* region,
                                  size_t dst_offset, cl_uint num_events_in_wait_list,
                                  const cl_event* event_wait_list, cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory *from = c.image(src_image), *to = c.buffer(dst_buffer);
  c.uses(from, Access::kRead);
  c.uses(to, Access::kChange);
  return c.run(CL_COMMAND_COPY_IMAGE_TO_BUFFER, false, event, [&](cl_event* made) {
    return opencl::clEnqueueCopyImageToBuffer(c.queue(), c.at(from), c.at(to), src_origin, region,
                                              dst_offset, c.waits(), c.wait(), made);
  });
}

cl_int clEnqueueCopyBufferToImage(cl_command_queue command_queue, cl_mem src_buffer,
                                  cl_mem dst_image, size_t src_offset, const size_t* dst_origin,
                                  const size_t* region, cl_uint num_events_in_wait_list,
                                  const cl_event* event_wait_list, cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory *from = c.buffer(src_buffer), *to = c.image(dst_image);
  c.uses(from, Access::kRead);
  c.uses(to, writing(to, dst_origin, region));
  return c.run(CL_COMMAND_COPY_BUFFER_TO_IMAGE, false, event, [&](cl_event* made) {
    return opencl::clEnqueueCopyBufferToImage(c.queue(), c.at(from), c.at(to), src_offset,
                                              dst_origin, region, c.waits(), c.wait(), made);
  });
}

}  // namespace tendril::client::opencl::spread

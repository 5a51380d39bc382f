// SPDX-License-Identifier: Apache-2.0
// Copies, fills, migrations and mappings of buffers in contexts over several servers. A mapping
// lies in the client and is read from the queue's server. Unmapping writes it to that of its own
// queue.
#include "client/opencl/copy.h"

#include <algorithm>

#include "client/opencl/memory.h"
#include "client/opencl/spread/command.h"
#include "client/opencl/spread/functions.h"

namespace tendril::client::opencl::spread {

cl_int clEnqueueReadBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_read,
                           size_t offset, size_t cb, void* ptr, cl_uint num_events_in_wait_list,
                           const cl_event* event_wait_list, cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory* from = c.buffer(buffer);
  if (c.ok() && (from->flags & kNoHostReads) != 0) c.fail(CL_INVALID_OPERATION);
  c.uses(from, Access::kRead, offset, cb);
  return c.run(CL_COMMAND_READ_BUFFER, blocking_read != CL_FALSE, event, [&](cl_event* made) {
    return opencl::clEnqueueReadBuffer(c.queue(), c.at(from), CL_FALSE, offset, cb, ptr, c.waits(),
                                       c.wait(), made);
  });
}

cl_int clEnqueueWriteBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_write,
                            size_t offset, size_t cb, const void* ptr,
                            cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                            cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory* to = c.buffer(buffer);
  if (c.ok() && (to->flags & kNoHostWrites) != 0) c.fail(CL_INVALID_OPERATION);
  c.uses(to, Access::kOverwrite, offset, cb);
  return c.run(CL_COMMAND_WRITE_BUFFER, blocking_write != CL_FALSE, event, [&](cl_event* made) {
    return opencl::clEnqueueWriteBuffer(c.queue(), c.at(to), CL_FALSE, offset, cb, ptr, c.waits(),
                                        c.wait(), made);
  });
}

cl_int clEnqueueReadBufferRect(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_read,
                               const size_t* buffer_offset, const size_t* host_offset,
                               const size_t* region, size_t buffer_row_pitch,
                               size_t buffer_slice_pitch, size_t host_row_pitch,
                               size_t host_slice_pitch, void* ptr, cl_uint num_events_in_wait_list,
                               const cl_event* event_wait_list, cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory* from = c.buffer(buffer);
  if (c.ok() && (from->flags & kNoHostReads) != 0) c.fail(CL_INVALID_OPERATION);
  c.uses(from, Access::kRead);
  return c.run(CL_COMMAND_READ_BUFFER_RECT, blocking_read != CL_FALSE, event, [&](cl_event* made) {
    return opencl::clEnqueueReadBufferRect(
        c.queue(), c.at(from), CL_FALSE, buffer_offset, host_offset, region, buffer_row_pitch,
        buffer_slice_pitch, host_row_pitch, host_slice_pitch, ptr, c.waits(), c.wait(), made);
  });
}

cl_int clEnqueueWriteBufferRect(cl_command_queue command_queue, cl_mem buffer,
                                cl_bool blocking_write, const size_t* buffer_offset,
                                const size_t* host_offset, const size_t* region,
                                size_t buffer_row_pitch, size_t buffer_slice_pitch,
                                size_t host_row_pitch, size_t host_slice_pitch, const void* ptr,
                                cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                                cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory* to = c.buffer(buffer);
  if (c.ok() && (to->flags & kNoHostWrites) != 0) c.fail(CL_INVALID_OPERATION);
  c.uses(to, Access::kChange);
  const bool blocks = blocking_write != CL_FALSE;
  return c.run(CL_COMMAND_WRITE_BUFFER_RECT, blocks, event, [&](cl_event* made) {
    return opencl::clEnqueueWriteBufferRect(
        c.queue(), c.at(to), CL_FALSE, buffer_offset, host_offset, region, buffer_row_pitch,
        buffer_slice_pitch, host_row_pitch, host_slice_pitch, ptr, c.waits(), c.wait(), made);
  });
}

void* clEnqueueMapBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_map,
                         cl_map_flags map_flags, size_t offset, size_t cb,
                         cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                         cl_event* event, cl_int* errcode_ret) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory* memory = c.buffer(buffer);
  if (c.ok() && (cb == 0 || !inside(*memory, offset, cb))) c.fail(CL_INVALID_VALUE);
  if (c.ok()) c.fail(check_map(*memory, map_flags));
  uint8_t* const shadow = c.ok() ? shadow_of(memory) : nullptr;
  if (shadow == nullptr) c.fail(CL_MAP_FAILURE);
  const Mapping mapping = {map_flags, wire::opencl::Form::kLinear, linear_shape(offset, cb),
                           linear_place(shadow + offset, cb)};
  const bool reads = (map_flags & CL_MAP_WRITE_INVALIDATE_REGION) == 0;
  if (reads) c.uses(memory, Access::kRead, offset, cb);
  const bool blocks = blocking_map != CL_FALSE;
  const cl_int result = c.run(CL_COMMAND_MAP_BUFFER, blocks, event, [&](cl_event* made) {
    const cl_int sent =
        reads ? opencl::clEnqueueReadBuffer(c.queue(), c.at(memory), CL_FALSE, offset, cb,
                                            mapping.host.first, c.waits(), c.wait(), made)
              : opencl::clEnqueueMarkerWithWaitList(c.queue(), c.waits(), c.wait(), made);
    const base::Locked held(memory->lock);
    if (sent == CL_SUCCESS) memory->mappings.push_back(mapping);
    return sent;
  });
  if (errcode_ret != nullptr) *errcode_ret = result;
  return result == CL_SUCCESS ? mapping.host.first : nullptr;
}

cl_int clEnqueueUnmapMemObject(cl_command_queue command_queue, cl_mem memobj, void* mapped_ptr,
                               cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                               cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory* memory = c.record(memobj);
  if (!c.ok()) return c.error();
  Mapping mapping = {};
  if (!take_mapping(memory, mapped_ptr, &mapping)) return CL_INVALID_VALUE;
  const bool writes = (mapping.flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION)) != 0;
  const uint64_t* const origin = mapping.shape.origin;
  const uint64_t* const extent = mapping.shape.extent;
  if (writes && memory->is_image())
    c.uses(memory, Access::kChange);
  else if (writes)
    c.uses(memory, Access::kOverwrite, origin[0], extent[0]);
  size_t row = 0, slice = 0;
  if (memory->is_image()) {
    (void)spread::clGetImageInfo(memobj, CL_IMAGE_ROW_PITCH, sizeof row, &row, nullptr);
    (void)spread::clGetImageInfo(memobj, CL_IMAGE_SLICE_PITCH, sizeof slice, &slice, nullptr);
  }
  return c.run(CL_COMMAND_UNMAP_MEM_OBJECT, false, event, [&](cl_event* made) {
    if (!writes) return opencl::clEnqueueMarkerWithWaitList(c.queue(), c.waits(), c.wait(), made);
    if (memory->is_image())
      return opencl::clEnqueueWriteImage(c.queue(), c.at(memory), CL_FALSE, origin, extent, row,
                                         slice, mapping.host.first, c.waits(), c.wait(), made);
    return opencl::clEnqueueWriteBuffer(c.queue(), c.at(memory), CL_FALSE, origin[0], extent[0],
                                        mapping.host.first, c.waits(), c.wait(), made);
  });
}

cl_int clEnqueueCopyBuffer(cl_command_queue command_queue, cl_mem src_buffer, cl_mem dst_buffer,
                           size_t src_offset, size_t dst_offset, size_t cb,
                           cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                           cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory *from = c.buffer(src_buffer), *to = c.buffer(dst_buffer);
  c.uses(from, Access::kRead, src_offset, cb);
  c.uses(to, Access::kOverwrite, dst_offset, cb);
  return c.run(CL_COMMAND_COPY_BUFFER, false, event, [&](cl_event* made) {
    return opencl::clEnqueueCopyBuffer(c.queue(), c.at(from), c.at(to), src_offset, dst_offset, cb,
                                       c.waits(), c.wait(), made);
  });
}

cl_int clEnqueueCopyBufferRect(cl_command_queue command_queue, cl_mem src_buffer, cl_mem dst_buffer,
                               const size_t* src_origin, const size_t* dst_origin,
                               const size_t* region, size_t src_row_pitch, size_t src_slice_pitch,
                               size_t dst_row_pitch, size_t dst_slice_pitch,
                               cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                               cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory *from = c.buffer(src_buffer), *to = c.buffer(dst_buffer);
  c.uses(from, Access::kRead);
  c.uses(to, Access::kChange);
  return c.run(CL_COMMAND_COPY_BUFFER_RECT, false, event, [&](cl_event* made) {
    return opencl::clEnqueueCopyBufferRect(c.queue(), c.at(from), c.at(to), src_origin, dst_origin,
                                           region, src_row_pitch, src_slice_pitch, dst_row_pitch,
                                           dst_slice_pitch, c.waits(), c.wait(), made);
  });
}

cl_int clEnqueueFillBuffer(cl_command_queue command_queue, cl_mem buffer, const void* pattern,
                           size_t pattern_size, size_t offset, size_t cb,
                           cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                           cl_event* event) {
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  Memory* to = c.buffer(buffer);
  c.uses(to, Access::kOverwrite, offset, cb);
  return c.run(CL_COMMAND_FILL_BUFFER, false, event, [&](cl_event* made) {
    return opencl::clEnqueueFillBuffer(c.queue(), c.at(to), pattern, pattern_size, offset, cb,
                                       c.waits(), c.wait(), made);
  });
}

// To the queue's device: the content goes to its server. To the host: it stays where it is.
cl_int clEnqueueMigrateMemObjects(cl_command_queue command_queue, cl_uint num_mem_objects,
                                  const cl_mem* mem_objects, cl_mem_migration_flags flags,
                                  cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                                  cl_event* event) {
  if (num_mem_objects == 0 || mem_objects == nullptr) return CL_INVALID_VALUE;
  Command c(command_queue, num_events_in_wait_list, event_wait_list);
  const bool to_host = (flags & CL_MIGRATE_MEM_OBJECT_HOST) != 0;
  const bool undefined = (flags & CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED) != 0;
  std::vector<Memory*> all;
  for (cl_uint i = 0; i < num_mem_objects && c.ok(); ++i) {
    all.push_back(c.record(mem_objects[i]));
    if (!to_host) c.uses(all.back(), undefined ? Access::kOverwrite : Access::kRead);
  }
  return c.run(CL_COMMAND_MIGRATE_MEM_OBJECTS, false, event, [&](cl_event* made) {
    if (to_host) return opencl::clEnqueueMarkerWithWaitList(c.queue(), c.waits(), c.wait(), made);
    std::vector<cl_mem> reals;
    for (const Memory* each : all) reals.push_back(c.at(each));
    return opencl::clEnqueueMigrateMemObjects(c.queue(), num_mem_objects, reals.data(), flags,
                                              c.waits(), c.wait(), made);
  });
}

}  // namespace tendril::client::opencl::spread

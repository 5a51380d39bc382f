// SPDX-License-Identifier: Apache-2.0
// Copies between the program's memory and the device, mappings, and the checks of copies on the
// device. Data to the device leave before the call returns, so the program may reuse its memory.
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <memory>

#include "client/opencl/copy.h"
#include "client/opencl/memory.h"

namespace tendril::client::opencl {
namespace {

using wire::opencl::Form;
using wire::opencl::Shape;

// More travels beside the lane.
constexpr uint64_t kDeliveryBytesMax = wire::kReplyInlineMax;

template <typename Request>
void fill(Request* request, const Copy& copy) {
  request->form = copy.form;
  request->queue = copy.queue->wire_id;
  request->memory = copy.memory != nullptr ? copy.memory->wire_id : 0;
  request->shape = copy.shape;
  request->bytes = copy.host.bytes();
  request->event = copy.event;
  request->wait = copy.wait;
}

// Data that have come without gaps go to where they belong.
struct Scatter {
  HostPlace place;
  std::unique_ptr<uint8_t[]> packed;
};
void scatter(void* argument) {
  const std::unique_ptr<Scatter> mine(static_cast<Scatter*>(argument));
  mine->place.each_row([&](uint8_t* row, uint64_t at) {
    memcpy(row, mine->packed.get() + at, mine->place.row_bytes);
  });
}

cl_int read_now(const Copy& copy) {
  wire::opencl::read_now_request request;
  fill(&request, copy);
  return copy.queue->session->call_for_bytes(0, request, copy.host.first, request.bytes);
}

// Nobody waits; when the data are there, the session or the lane puts them into place.
cl_int read_later(const Copy& copy) {
  Session* session = copy.queue->session;
  wire::opencl::read_request request;
  fill(&request, copy);
  request.awaited = copy.blocking ? 1 : 0;
  if (copy.host.has_gaps()) {
    auto mine = std::make_unique<Scatter>();
    mine->place = copy.host;
    mine->packed.reset(new (std::nothrow) uint8_t[request.bytes]);
    if (mine->packed == nullptr) return CL_OUT_OF_HOST_MEMORY;
    uint8_t* const packed = mine->packed.get();
    request.address = reinterpret_cast<uint64_t>(packed);
    session->expect_delivery(packed, request.bytes, &scatter, mine.release());
  } else if (request.bytes <= kDeliveryBytesMax) {
    request.address = reinterpret_cast<uint64_t>(copy.host.first);
    session->expect_delivery(copy.host.first, request.bytes);
  } else {
    request.transfer = session->lane->new_transfer_id();
    session->lane->expect_bulk_async(request.transfer, copy.host.first, request.bytes);
  }
  return session->enqueue(0, request);
}

}  // namespace

bool is_pattern(size_t bytes) {
  constexpr size_t kPatternMax = 128;
  return bytes != 0 && (bytes & (bytes - 1)) == 0 && bytes <= kPatternMax;
}

cl_int wait_for_queue(Queue* queue) {
  wire::opencl::queue_finish_request request;
  wire::opencl::queue_finish_reply reply;
  request.queue = queue->wire_id;
  return queue->session->call(0, request, reply);
}

cl_int read(const Copy& copy) {
  if (copy.blocking && !copy.host.has_gaps() && copy.host.bytes() <= wire::kReplyInlineMax)
    return read_now(copy);
  const cl_int result = read_later(copy);
  if (result != CL_SUCCESS || !copy.blocking) return result;
  return wait_for_queue(copy.queue);
}

cl_int write(const Copy& copy) {
  Session* session = copy.queue->session;
  wire::opencl::write_request request;
  fill(&request, copy);
  const uint8_t* data = copy.host.first;
  std::unique_ptr<uint8_t[]> packed;
  if (copy.host.has_gaps()) {
    packed.reset(new (std::nothrow) uint8_t[request.bytes]);
    if (packed == nullptr) return CL_OUT_OF_HOST_MEMORY;
    copy.host.each_row([&](const uint8_t* row, uint64_t at) {
      memcpy(packed.get() + at, row, copy.host.row_bytes);
    });
    data = packed.get();
  }
  if (request.bytes <= wire::kInlineBytesMax) {
    request.data = {data, request.bytes};
    return session->enqueue(0, request);
  }
  request.transfer = session->lane->new_transfer_id();
  const cl_int result = session->enqueue(0, request);
  if (result != CL_SUCCESS) return result;
  return session->send_bulk(request.transfer, data, request.bytes) ? CL_SUCCESS : Results::kLost;
}

cl_int wait_only(Queue* queue, uint64_t event, const wire::Array<uint64_t>& wait) {
  wire::opencl::clEnqueueMarkerWithWaitList_request request;
  request.command_queue = queue->wire_id;
  request.num_events_in_wait_list = static_cast<uint32_t>(wait.count);
  request.event_wait_list = wait;
  request.event = event;
  return queue->session->enqueue(0, request);
}

Shape linear_shape(uint64_t offset, uint64_t bytes) {
  Shape shape = {};
  shape.origin[0] = offset;
  shape.extent[0] = bytes;
  shape.extent[1] = shape.extent[2] = 1;
  return shape;
}

cl_int check_map_flags(cl_map_flags flags) {
  constexpr cl_map_flags kKnown = CL_MAP_READ | CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
  const bool invalidates = (flags & CL_MAP_WRITE_INVALIDATE_REGION) != 0;
  if ((flags & ~kKnown) != 0 || (invalidates && flags != CL_MAP_WRITE_INVALIDATE_REGION))
    return CL_INVALID_VALUE;
  return CL_SUCCESS;
}

cl_int check_map(const Memory& memory, cl_map_flags flags) {
  const cl_int result = check_map_flags(flags);
  if (result != CL_SUCCESS) return result;
  if (((flags & CL_MAP_READ) != 0 && (memory.flags & kNoHostReads) != 0) ||
      ((flags & ~cl_map_flags{CL_MAP_READ}) != 0 && (memory.flags & kNoHostWrites) != 0))
    return CL_INVALID_OPERATION;
  return CL_SUCCESS;
}

cl_int read_for_map(const Copy& copy, cl_map_flags flags) {
  if ((flags & CL_MAP_WRITE_INVALIDATE_REGION) == 0) return read(copy);
  const cl_int result = wait_only(copy.queue, copy.event, copy.wait);
  return result == CL_SUCCESS && copy.blocking ? wait_for_queue(copy.queue) : result;
}

void* map(Forward* forward, Copy* copy, cl_map_flags flags, cl_command_type command,
          cl_event* event, cl_int* error) {
  copy->event = forward->mint_if(event, command);
  if (forward->ok()) forward->check(read_for_map(*copy, flags));
  if (error != nullptr) *error = forward->error();
  if (!forward->ok()) return nullptr;
  const base::Locked held(copy->memory->lock);
  copy->memory->mappings.push_back({flags, copy->form, copy->shape, copy->host});
  forward->adopt_into(event);
  return copy->host.first;
}

namespace {

// A rectangle in a buffer or in the program's memory, with pitches that are never 0.
struct Rectangle {
  uint64_t origin[3], row_pitch, slice_pitch;
};
// False: the pitches do not fit the region.
bool complete(const size_t* region, Rectangle* rectangle) {
  if (rectangle->row_pitch == 0) rectangle->row_pitch = region[0];
  if (rectangle->slice_pitch == 0) rectangle->slice_pitch = region[1] * rectangle->row_pitch;
  return rectangle->row_pitch >= region[0] &&
         rectangle->slice_pitch >= region[1] * rectangle->row_pitch &&
         rectangle->slice_pitch % rectangle->row_pitch == 0;
}
uint64_t first_byte(const Rectangle& rectangle) {
  return rectangle.origin[2] * rectangle.slice_pitch + rectangle.origin[1] * rectangle.row_pitch +
         rectangle.origin[0];
}
// Behind the last byte.
uint64_t end_byte(const Rectangle& rectangle, const size_t* region) {
  return first_byte(rectangle) + (region[2] - 1) * rectangle.slice_pitch +
         (region[1] - 1) * rectangle.row_pitch + region[0];
}
bool is_empty(const size_t* region) { return region[0] == 0 || region[1] == 0 || region[2] == 0; }

struct RectangleArguments {
  cl_command_queue queue;
  cl_mem buffer;
  cl_bool blocking;
  const size_t *buffer_origin, *host_origin, *region;
  size_t buffer_row, buffer_slice, host_row, host_slice;
  const void* pointer;
  cl_uint waits;
  const cl_event* wait;
  cl_event* event;
};

cl_int copy_rectangle(const RectangleArguments& a, bool reads) {
  Forward forward(true);
  Copy copy = {};
  copy.queue = forward.record(a.queue);
  copy.memory = forward.buffer(a.buffer);
  copy.wait = forward.waits(a.wait, a.waits);
  if (!forward.ok()) return forward.error();
  if (a.pointer == nullptr || a.buffer_origin == nullptr || a.host_origin == nullptr ||
      a.region == nullptr || is_empty(a.region))
    return CL_INVALID_VALUE;
  if ((copy.memory->flags & (reads ? kNoHostReads : kNoHostWrites)) != 0)
    return CL_INVALID_OPERATION;
  Rectangle device = {{}, a.buffer_row, a.buffer_slice}, host = {{}, a.host_row, a.host_slice};
  std::copy_n(a.buffer_origin, 3, device.origin);
  std::copy_n(a.host_origin, 3, host.origin);
  if (!complete(a.region, &device) || !complete(a.region, &host) ||
      end_byte(device, a.region) > copy.memory->bytes)
    return CL_INVALID_VALUE;
  copy.form = Form::kRectangle;
  std::copy_n(device.origin, 3, copy.shape.origin);
  std::copy_n(a.region, 3, copy.shape.extent);
  copy.shape.row = device.row_pitch;
  copy.shape.slice = device.slice_pitch;
  copy.host.first = const_cast<uint8_t*>(static_cast<const uint8_t*>(a.pointer)) + first_byte(host);
  copy.host.row_bytes = a.region[0];
  copy.host.rows = a.region[1];
  copy.host.slices = a.region[2];
  copy.host.row_pitch = host.row_pitch;
  copy.host.slice_pitch = host.slice_pitch;
  copy.blocking = a.blocking != CL_FALSE;
  copy.event =
      forward.mint_if(a.event, reads ? CL_COMMAND_READ_BUFFER_RECT : CL_COMMAND_WRITE_BUFFER_RECT);
  if (!forward.ok()) return forward.error();
  const cl_int result = reads ? read(copy) : write(copy);
  if (result == CL_SUCCESS) forward.adopt_into(a.event);
  return result;
}

cl_int copy_linear(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                   size_t bytes, const void* pointer, cl_uint waits, const cl_event* wait,
                   cl_event* event, bool reads) {
  Forward forward(true);
  Copy copy = {};
  copy.queue = forward.record(queue);
  copy.memory = forward.buffer(buffer);
  copy.wait = forward.waits(wait, waits);
  if (!forward.ok()) return forward.error();
  if (pointer == nullptr || bytes == 0 || !inside(*copy.memory, offset, bytes))
    return CL_INVALID_VALUE;
  if ((copy.memory->flags & (reads ? kNoHostReads : kNoHostWrites)) != 0)
    return CL_INVALID_OPERATION;
  copy.form = Form::kLinear;
  copy.shape = linear_shape(offset, bytes);
  copy.host = linear_place(pointer, bytes);
  copy.blocking = blocking != CL_FALSE;
  copy.event = forward.mint_if(event, reads ? CL_COMMAND_READ_BUFFER : CL_COMMAND_WRITE_BUFFER);
  if (!forward.ok()) return forward.error();
  const cl_int result = reads ? read(copy) : write(copy);
  if (result == CL_SUCCESS) forward.adopt_into(event);
  return result;
}

}  // namespace

cl_int clEnqueueReadBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_read,
                           size_t offset, size_t cb, void* ptr, cl_uint num_events_in_wait_list,
                           const cl_event* event_wait_list, cl_event* event) {
  return copy_linear(command_queue, buffer, blocking_read, offset, cb, ptr, num_events_in_wait_list,
                     event_wait_list, event, true);
}

cl_int clEnqueueWriteBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_write,
                            size_t offset, size_t cb, const void* ptr,
                            cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                            cl_event* event) {
  return copy_linear(command_queue, buffer, blocking_write, offset, cb, ptr,
                     num_events_in_wait_list, event_wait_list, event, false);
}

cl_int clEnqueueReadBufferRect(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_read,
                               const size_t* buffer_offset, const size_t* host_offset,
                               const size_t* region, size_t buffer_row_pitch,
                               size_t buffer_slice_pitch, size_t host_row_pitch,
                               size_t host_slice_pitch, void* ptr, cl_uint num_events_in_wait_list,
                               const cl_event* event_wait_list, cl_event* event) {
  return copy_rectangle({command_queue, buffer, blocking_read, buffer_offset, host_offset, region,
                         buffer_row_pitch, buffer_slice_pitch, host_row_pitch, host_slice_pitch,
                         ptr, num_events_in_wait_list, event_wait_list, event},
                        true);
}

cl_int clEnqueueWriteBufferRect(cl_command_queue command_queue, cl_mem buffer,
                                cl_bool blocking_write, const size_t* buffer_offset,
                                const size_t* host_offset, const size_t* region,
                                size_t buffer_row_pitch, size_t buffer_slice_pitch,
                                size_t host_row_pitch, size_t host_slice_pitch, const void* ptr,
                                cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                                cl_event* event) {
  return copy_rectangle({command_queue, buffer, blocking_write, buffer_offset, host_offset, region,
                         buffer_row_pitch, buffer_slice_pitch, host_row_pitch, host_slice_pitch,
                         ptr, num_events_in_wait_list, event_wait_list, event},
                        false);
}

void* clEnqueueMapBuffer(cl_command_queue command_queue, cl_mem buffer, cl_bool blocking_map,
                         cl_map_flags map_flags, size_t offset, size_t cb,
                         cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                         cl_event* event, cl_int* errcode_ret) {
  const auto refuse = [&](cl_int error) {
    if (errcode_ret != nullptr) *errcode_ret = error;
    return nullptr;
  };
  Forward forward(true);
  Copy copy = {};
  copy.queue = forward.record(command_queue);
  copy.memory = forward.buffer(buffer);
  copy.wait = forward.waits(event_wait_list, num_events_in_wait_list);
  if (!forward.ok()) return refuse(forward.error());
  if (cb == 0 || !inside(*copy.memory, offset, cb)) return refuse(CL_INVALID_VALUE);
  forward.check(check_map(*copy.memory, map_flags));
  if (!forward.ok()) return refuse(forward.error());
  uint8_t* const shadow = shadow_of(copy.memory);
  if (shadow == nullptr) return refuse(CL_MAP_FAILURE);
  copy.form = Form::kLinear;
  copy.shape = linear_shape(offset, cb);
  copy.host = linear_place(shadow + offset, cb);
  copy.blocking = blocking_map != CL_FALSE;
  return map(&forward, &copy, map_flags, CL_COMMAND_MAP_BUFFER, event, errcode_ret);
}

bool take_mapping(Memory* memory, const void* mapped, Mapping* mapping) {
  const base::Locked held(memory->lock);
  auto& all = memory->mappings;
  const auto found = std::find_if(all.rbegin(), all.rend(),
                                  [&](const Mapping& each) { return each.host.first == mapped; });
  if (mapped == nullptr || found == all.rend()) return false;
  *mapping = *found;
  all.erase(std::next(found).base());
  return true;
}

cl_int clEnqueueUnmapMemObject(cl_command_queue command_queue, cl_mem memobj, void* mapped_ptr,
                               cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                               cl_event* event) {
  Forward forward(true);
  Copy copy = {};
  copy.queue = forward.record(command_queue);
  copy.memory = forward.record(memobj);
  copy.wait = forward.waits(event_wait_list, num_events_in_wait_list);
  if (!forward.ok()) return forward.error();
  Mapping mapping = {};
  if (!take_mapping(copy.memory, mapped_ptr, &mapping)) return CL_INVALID_VALUE;
  copy.event = forward.mint_if(event, CL_COMMAND_UNMAP_MEM_OBJECT);
  if (!forward.ok()) return forward.error();
  cl_int result = CL_SUCCESS;
  if ((mapping.flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION)) != 0) {
    copy.form = mapping.form;
    copy.shape = mapping.shape;
    copy.host = mapping.host;
    result = write(copy);
  } else {
    result = wait_only(copy.queue, copy.event, copy.wait);
  }
  if (result == CL_SUCCESS) forward.adopt_into(event);
  return result;
}

namespace checks {

cl_int clEnqueueCopyBuffer(cl_command_queue, cl_mem src_buffer, cl_mem dst_buffer,
                           size_t src_offset, size_t dst_offset, size_t cb, cl_uint,
                           const cl_event*, cl_event*) {
  const Memory &from = *find(src_buffer), &to = *find(dst_buffer);
  if (from.is_image() || to.is_image()) return CL_INVALID_MEM_OBJECT;
  if (cb == 0 || !inside(from, src_offset, cb) || !inside(to, dst_offset, cb))
    return CL_INVALID_VALUE;
  const bool overlaps = src_offset < dst_offset + cb && dst_offset < src_offset + cb;
  return &from == &to && overlaps ? CL_MEM_COPY_OVERLAP : CL_SUCCESS;
}

cl_int clEnqueueCopyBufferRect(cl_command_queue, cl_mem src_buffer, cl_mem dst_buffer,
                               const size_t* src_origin, const size_t* dst_origin,
                               const size_t* region, size_t src_row_pitch, size_t src_slice_pitch,
                               size_t dst_row_pitch, size_t dst_slice_pitch, cl_uint,
                               const cl_event*, cl_event*) {
  const Memory &from = *find(src_buffer), &to = *find(dst_buffer);
  if (from.is_image() || to.is_image()) return CL_INVALID_MEM_OBJECT;
  if (is_empty(region)) return CL_INVALID_VALUE;
  Rectangle source = {{}, src_row_pitch, src_slice_pitch};
  Rectangle target = {{}, dst_row_pitch, dst_slice_pitch};
  std::copy_n(src_origin, 3, source.origin);
  std::copy_n(dst_origin, 3, target.origin);
  if (!complete(region, &source) || !complete(region, &target) ||
      end_byte(source, region) > from.bytes || end_byte(target, region) > to.bytes)
    return CL_INVALID_VALUE;
  if (&from != &to) return CL_SUCCESS;
  if (source.row_pitch != target.row_pitch || source.slice_pitch != target.slice_pitch)
    return CL_INVALID_VALUE;
  // Two rectangles of one buffer overlap if they do in each dimension.
  bool overlaps = true;
  for (int i = 0; i < 3; ++i)
    overlaps = overlaps && src_origin[i] < dst_origin[i] + region[i] &&
               dst_origin[i] < src_origin[i] + region[i];
  return overlaps ? CL_MEM_COPY_OVERLAP : CL_SUCCESS;
}

cl_int clEnqueueFillBuffer(cl_command_queue, cl_mem buffer, const void*, size_t pattern_size,
                           size_t offset, size_t cb, cl_uint, const cl_event*, cl_event*) {
  if (find(buffer)->is_image()) return CL_INVALID_MEM_OBJECT;
  if (!is_pattern(pattern_size) || !inside(*find(buffer), offset, cb) ||
      offset % pattern_size != 0 || cb % pattern_size != 0)
    return CL_INVALID_VALUE;
  return CL_SUCCESS;
}

cl_int clEnqueueMigrateMemObjects(cl_command_queue, cl_uint num_mem_objects,
                                  const cl_mem* mem_objects, cl_mem_migration_flags flags, cl_uint,
                                  const cl_event*, cl_event*) {
  constexpr cl_mem_migration_flags kKnown =
      CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
  return num_mem_objects == 0 || mem_objects == nullptr || (flags & ~kKnown) != 0 ? CL_INVALID_VALUE
                                                                                  : CL_SUCCESS;
}

}  // namespace checks
}  // namespace tendril::client::opencl

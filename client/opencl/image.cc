// SPDX-License-Identifier: Apache-2.0
// Images: made, described, copied and mapped. The program's memory may have gaps between rows and
// slices. What travels has none.
#include <algorithm>

#include "api/opencl/image_format.h"
#include "client/opencl/copy.h"
#include "client/opencl/information.h"
#include "client/opencl/memory.h"

namespace tendril::client::opencl {
namespace {

using wire::opencl::Form;
using wire::opencl::Shape;

bool is_array(cl_mem_object_type type) {
  return type == CL_MEM_OBJECT_IMAGE1D_ARRAY || type == CL_MEM_OBJECT_IMAGE2D_ARRAY;
}
bool has_slices(const Picture& picture) {
  return is_array(picture.description.image_type) ||
         picture.description.image_type == CL_MEM_OBJECT_IMAGE3D;
}
bool is_of_rows(cl_mem_object_type type) { return type == CL_MEM_OBJECT_IMAGE1D_ARRAY; }

// The pitches that the program means, where it may say 0. In an array of rows, what OpenCL calls a
// slice is a row.
void complete(const Picture& picture, const uint64_t region[3], uint64_t row, uint64_t slice,
              uint64_t pitches[2]) {
  pitches[0] = row != 0 ? row : region[0] * picture.element_bytes;
  if (is_of_rows(picture.description.image_type) && slice != 0) pitches[0] = slice;
  pitches[1] =
      !is_of_rows(picture.description.image_type) && slice != 0 ? slice : pitches[0] * region[1];
}

// False: there is no such image.
cl_int describe(const cl_image_format* format, const cl_image_desc* description, bool has_host,
                Picture* picture) {
  if (format == nullptr) return CL_INVALID_IMAGE_FORMAT_DESCRIPTOR;
  if (description == nullptr) return CL_INVALID_IMAGE_DESCRIPTOR;
  picture->format = *format;
  picture->description = *description;
  picture->element_bytes = api::opencl::element_bytes(*format);
  if (picture->element_bytes == 0) return CL_IMAGE_FORMAT_NOT_SUPPORTED;
  if (!api::opencl::extents_of(*description, picture->extent) || description->num_mip_levels != 0 ||
      description->num_samples != 0)
    return CL_INVALID_IMAGE_DESCRIPTOR;
  uint64_t bytes = 0;
  if (!api::opencl::packed_bytes(picture->element_bytes, picture->extent, &bytes))
    return CL_INVALID_IMAGE_SIZE;
  if (bytes == 0) return CL_INVALID_IMAGE_SIZE;
  const uint64_t row = description->image_row_pitch, slice = description->image_slice_pitch;
  const uint64_t row_bytes = picture->extent[0] * picture->element_bytes;
  // Without memory of the program's, pitches mean nothing, unless the image lies in a buffer.
  if ((row != 0 || slice != 0) && !has_host && description->mem_object == nullptr)
    return CL_INVALID_IMAGE_DESCRIPTOR;
  uint64_t pitches[2];
  complete(*picture, picture->extent, row, has_slices(*picture) ? slice : 0, pitches);
  if (pitches[0] < row_bytes || row % picture->element_bytes != 0 ||
      pitches[1] < pitches[0] * picture->extent[1])
    return CL_INVALID_IMAGE_DESCRIPTOR;
  picture->row_pitch = pitches[0];
  picture->slice_pitch = pitches[1];
  return CL_SUCCESS;
}

// The part of an image in memory with these pitches, whose first element is at `first`.
HostPlace place_of(const Picture& picture, uint8_t* first, const size_t* region,
                   const uint64_t pitches[2]) {
  HostPlace place;
  place.first = first;
  place.row_bytes = region[0] * picture.element_bytes;
  place.rows = region[1];
  place.slices = region[2];
  place.row_pitch = pitches[0];
  place.slice_pitch = pitches[1];
  return place;
}

Shape shape_of(const size_t* origin, const size_t* region) {
  Shape shape = {};
  std::copy_n(origin, 3, shape.origin);
  std::copy_n(region, 3, shape.extent);
  return shape;
}

cl_int make_at_server(Memory* memory, uint8_t* host) {
  using Request = wire::opencl::image_create_request;
  const Picture& picture = memory->picture;
  const cl_image_desc& description = picture.description;
  Request request;
  wire::opencl::image_create_reply reply;
  request.memory = memory->wire_id;
  request.context = memory->context->wire_id;
  request.flags = memory->flags;
  request.picture = {picture.format.image_channel_order,
                     picture.format.image_channel_data_type,
                     description.image_type,
                     description.num_samples,
                     description.image_width,
                     description.image_height,
                     description.image_depth,
                     description.image_array_size,
                     memory->parent != nullptr ? description.image_row_pitch : 0,
                     memory->parent != nullptr ? description.image_slice_pitch : 0};
  request.parent = memory->parent != nullptr ? memory->parent->wire_id : 0;
  std::unique_ptr<uint8_t[]> packed;
  HostPlace place;
  if (host != nullptr) {
    const uint64_t pitches[2] = {picture.row_pitch, picture.slice_pitch};
    place = place_of(picture, host, picture.extent, pitches);
    request.has_content = 1;
    if (place.has_gaps()) {
      packed.reset(new (std::nothrow) uint8_t[place.bytes()]);
      if (packed == nullptr) return CL_OUT_OF_HOST_MEMORY;
      place.each_row([&](const uint8_t* row, uint64_t at) {
        memcpy(packed.get() + at, row, place.row_bytes);
      });
    }
  }
  const uint8_t* const content = packed != nullptr ? packed.get() : host;
  const cl_int result = memory->session->call_with(&request, &Request::content, content,
                                                   host != nullptr ? place.bytes() : 0, &reply);
  memory->bytes = reply.size;
  return result;
}

// The object whose memory an image has. Without it the image has its own.
cl_int find_parent(const cl_image_desc* description, const Context* context, void* host_ptr,
                   Memory** parent) {
  if (description == nullptr || description->mem_object == nullptr) return CL_SUCCESS;
  *parent = find(description->mem_object);
  const bool of_buffer = description->image_type == CL_MEM_OBJECT_IMAGE1D_BUFFER;
  const bool may = of_buffer || description->image_type == CL_MEM_OBJECT_IMAGE2D;
  if (*parent == nullptr || (*parent)->context != context || !may || host_ptr != nullptr ||
      (of_buffer && (*parent)->is_image()))
    return CL_INVALID_IMAGE_DESCRIPTOR;
  return CL_SUCCESS;
}

struct ImageArguments {
  cl_command_queue queue;
  cl_mem image;
  cl_bool blocking;
  const size_t *origin, *region;
  size_t row, slice;
  const void* pointer;
  cl_uint waits;
  const cl_event* wait;
  cl_event* event;
};

// Queue, image, wait list and part. False: `forward` has the error.
bool begin(const ImageArguments& a, Forward* forward, Copy* copy) {
  copy->queue = forward->record(a.queue);
  copy->memory = forward->image(a.image);
  copy->wait = forward->waits(a.wait, a.waits);
  if (!forward->ok()) return false;
  if (a.origin == nullptr || a.region == nullptr ||
      !inside(copy->memory->picture, a.origin, a.region)) {
    forward->fail(CL_INVALID_VALUE);
    return false;
  }
  copy->form = Form::kImage;
  copy->shape = shape_of(a.origin, a.region);
  copy->blocking = a.blocking != CL_FALSE;
  return true;
}

cl_int copy_image(const ImageArguments& a, bool reads) {
  Forward forward(true);
  Copy copy = {};
  if (!begin(a, &forward, &copy)) return forward.error();
  const Picture& picture = copy.memory->picture;
  if (a.pointer == nullptr || (a.slice != 0 && !has_slices(picture))) return CL_INVALID_VALUE;
  if ((copy.memory->flags & (reads ? kNoHostReads : kNoHostWrites)) != 0)
    return CL_INVALID_OPERATION;
  uint64_t pitches[2];
  complete(picture, copy.shape.extent, a.row, a.slice, pitches);
  if (pitches[0] < a.region[0] * picture.element_bytes || pitches[1] < pitches[0] * a.region[1])
    return CL_INVALID_VALUE;
  copy.host = place_of(picture, const_cast<uint8_t*>(static_cast<const uint8_t*>(a.pointer)),
                       a.region, pitches);
  copy.event = forward.mint_if(a.event, reads ? CL_COMMAND_READ_IMAGE : CL_COMMAND_WRITE_IMAGE);
  if (!forward.ok()) return forward.error();
  const cl_int result = reads ? read(copy) : write(copy);
  if (result == CL_SUCCESS) forward.adopt_into(a.event);
  return result;
}

cl_int check_part(const Memory& memory, const size_t* origin, const size_t* region) {
  if (!memory.is_image()) return CL_INVALID_MEM_OBJECT;
  return inside(memory.picture, origin, region) ? CL_SUCCESS : CL_INVALID_VALUE;
}

// An image, a buffer with an offset, and the region that is copied between them.
cl_int check_with_buffer(const Memory& image, const size_t* origin, const size_t* region,
                         const Memory& buffer, size_t offset) {
  if (buffer.is_image()) return CL_INVALID_MEM_OBJECT;
  const cl_int result = check_part(image, origin, region);
  if (result != CL_SUCCESS) return result;
  uint64_t bytes = 0;
  const uint64_t extent[3] = {region[0], region[1], region[2]};
  return api::opencl::packed_bytes(image.picture.element_bytes, extent, &bytes) &&
                 opencl::inside(buffer, offset, bytes)
             ? CL_SUCCESS
             : CL_INVALID_VALUE;
}

}  // namespace

bool inside(const Picture& picture, const size_t* origin, const size_t* region) {
  for (int i = 0; i < 3; ++i)
    if (region[i] == 0 || origin[i] > picture.extent[i] ||
        region[i] > picture.extent[i] - origin[i])
      return false;
  return true;
}

cl_image_desc flat_image(size_t width, size_t height, size_t row_pitch) {
  cl_image_desc description = {};
  description.image_type = CL_MEM_OBJECT_IMAGE2D;
  description.image_width = width;
  description.image_height = height;
  description.image_row_pitch = row_pitch;
  return description;
}

cl_image_desc deep_image(size_t width, size_t height, size_t depth, size_t row_pitch,
                         size_t slice_pitch) {
  cl_image_desc description = flat_image(width, height, row_pitch);
  description.image_type = CL_MEM_OBJECT_IMAGE3D;
  description.image_depth = depth;
  description.image_slice_pitch = slice_pitch;
  return description;
}

cl_mem clCreateImage(cl_context context, cl_mem_flags flags, const cl_image_format* image_format,
                     const cl_image_desc* image_desc, void* host_ptr, cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_mem>(CL_INVALID_CONTEXT, errcode_ret);
  Memory* parent = nullptr;
  cl_int result = find_parent(image_desc, in, host_ptr, &parent);
  // An image has from its parent where the memory is, and what it does not say itself.
  const cl_mem_flags own = parent != nullptr ? flags & ~kHostMemory : flags;
  if (result == CL_SUCCESS) result = check_flags(own, host_ptr);
  Picture picture;
  if (result == CL_SUCCESS)
    result = describe(image_format, image_desc, host_ptr != nullptr, &picture);
  if (result != CL_SUCCESS) return give<cl_mem>(result, errcode_ret);
  Memory* memory = create<cl_mem>(in->session, in);
  if (memory == nullptr) return give<cl_mem>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  reset(memory, 0, parent != nullptr ? inherited_flags(own, *parent) : flags,
        (flags & CL_MEM_USE_HOST_PTR) != 0 ? host_ptr : nullptr);
  memory->picture = picture;
  memory->parent = parent;
  use(parent);
  result = make_at_server(memory, static_cast<uint8_t*>(host_ptr));
  if (result != CL_SUCCESS) discard(memory);
  return give<cl_mem>(result, errcode_ret, memory);
}

cl_int clGetImageInfo(cl_mem image, cl_image_info param_name, size_t param_value_size,
                      void* param_value, size_t* param_value_size_ret) {
  const Wanted answer = {param_value_size, param_value, param_value_size_ret};
  const Memory* found = find(image);
  if (found == nullptr || !found->is_image()) return CL_INVALID_MEM_OBJECT;
  const Picture& picture = found->picture;
  const cl_image_desc& description = picture.description;
  const cl_mem_object_type type = description.image_type;
  const bool flat = type == CL_MEM_OBJECT_IMAGE1D || type == CL_MEM_OBJECT_IMAGE1D_BUFFER ||
                    type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
  switch (param_name) {
    case CL_IMAGE_FORMAT:
      return answer.one(picture.format);
    case CL_IMAGE_ELEMENT_SIZE:
      return answer.one(size_t{picture.element_bytes});
    case CL_IMAGE_ROW_PITCH:
      return answer.one(
          size_t{is_of_rows(type) ? picture.extent[0] * picture.element_bytes : picture.row_pitch});
    case CL_IMAGE_SLICE_PITCH:
      return answer.one(size_t{!has_slices(picture) ? 0
                               : is_of_rows(type)   ? picture.row_pitch
                                                    : picture.slice_pitch});
    case CL_IMAGE_WIDTH:
      return answer.one(size_t{picture.extent[0]});
    case CL_IMAGE_HEIGHT:
      return answer.one(size_t{flat ? 0 : picture.extent[1]});
    case CL_IMAGE_DEPTH:
      return answer.one(size_t{type == CL_MEM_OBJECT_IMAGE3D ? picture.extent[2] : 0});
    case CL_IMAGE_ARRAY_SIZE:
      return answer.one(size_t{is_array(type) ? description.image_array_size : 0});
    case CL_IMAGE_BUFFER: {
      auto* parent = static_cast<Memory*>(found->parent);
      return answer.one(
          handle_of<cl_mem>(parent != nullptr && parent->is_image() ? nullptr : parent));
    }
    case CL_IMAGE_NUM_MIP_LEVELS:
    case CL_IMAGE_NUM_SAMPLES:
      return answer.one(cl_uint{0});
    default:
      return ask_server({found->session, wire::opencl::Subject::kImage, found->wire_id}, param_name,
                        answer);
  }
}

cl_int clGetSupportedImageFormats(cl_context context, cl_mem_flags flags,
                                  cl_mem_object_type image_type, cl_uint num_entries,
                                  cl_image_format* image_formats, cl_uint* num_image_formats) {
  const Context* in = find(context);
  if (in == nullptr) return CL_INVALID_CONTEXT;
  if (num_entries == 0 && image_formats != nullptr) return CL_INVALID_VALUE;
  wire::opencl::image_formats_request request;
  wire::opencl::image_formats_reply reply;
  request.context = in->wire_id;
  request.flags = flags;
  request.type = image_type;
  const cl_int result = in->session->call(0, request, reply);
  if (result != CL_SUCCESS) return result;
  std::vector<cl_image_format> known;
  for (uint64_t i = 0; i + 1 < reply.formats.count; i += 2) {
    const cl_image_format format = {reply.formats[i], reply.formats[i + 1]};
    if (api::opencl::element_bytes(format) != 0) known.push_back(format);
  }
  if (num_image_formats != nullptr) *num_image_formats = static_cast<cl_uint>(known.size());
  if (image_formats != nullptr)
    std::copy_n(known.data(), std::min<size_t>(num_entries, known.size()), image_formats);
  return CL_SUCCESS;
}

cl_int clEnqueueReadImage(cl_command_queue command_queue, cl_mem image, cl_bool blocking_read,
                          const size_t* origin, const size_t* region, size_t row_pitch,
                          size_t slice_pitch, void* ptr, cl_uint num_events_in_wait_list,
                          const cl_event* event_wait_list, cl_event* event) {
  return copy_image({command_queue, image, blocking_read, origin, region, row_pitch, slice_pitch,
                     ptr, num_events_in_wait_list, event_wait_list, event},
                    true);
}

cl_int clEnqueueWriteImage(cl_command_queue command_queue, cl_mem image, cl_bool blocking_write,
                           const size_t* origin, const size_t* region, size_t input_row_pitch,
                           size_t input_slice_pitch, const void* ptr,
                           cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                           cl_event* event) {
  return copy_image({command_queue, image, blocking_write, origin, region, input_row_pitch,
                     input_slice_pitch, ptr, num_events_in_wait_list, event_wait_list, event},
                    false);
}

void* clEnqueueMapImage(cl_command_queue command_queue, cl_mem image, cl_bool blocking_map,
                        cl_map_flags map_flags, const size_t* origin, const size_t* region,
                        size_t* image_row_pitch, size_t* image_slice_pitch,
                        cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                        cl_event* event, cl_int* errcode_ret) {
  const auto refuse = [&](cl_int error) {
    if (errcode_ret != nullptr) *errcode_ret = error;
    return nullptr;
  };
  Forward forward(true);
  Copy copy = {};
  if (!begin({command_queue, image, blocking_map, origin, region, 0, 0, nullptr,
              num_events_in_wait_list, event_wait_list, event},
             &forward, &copy))
    return refuse(forward.error());
  const Picture& picture = copy.memory->picture;
  if (image_row_pitch == nullptr || (image_slice_pitch == nullptr && has_slices(picture)))
    return refuse(CL_INVALID_VALUE);
  forward.check(check_map(*copy.memory, map_flags));
  if (!forward.ok()) return refuse(forward.error());
  uint8_t* const shadow = shadow_of(copy.memory);
  if (shadow == nullptr) return refuse(CL_MAP_FAILURE);
  const uint64_t pitches[2] = {picture.row_pitch, picture.slice_pitch};
  copy.host = place_of(
      picture,
      shadow + origin[0] * picture.element_bytes + origin[1] * pitches[0] + origin[2] * pitches[1],
      region, pitches);
  void* const mapped = map(&forward, &copy, map_flags, CL_COMMAND_MAP_IMAGE, event, errcode_ret);
  if (mapped == nullptr) return nullptr;
  (void)opencl::clGetImageInfo(image, CL_IMAGE_ROW_PITCH, sizeof *image_row_pitch, image_row_pitch,
                               nullptr);
  if (image_slice_pitch != nullptr)
    (void)opencl::clGetImageInfo(image, CL_IMAGE_SLICE_PITCH, sizeof *image_slice_pitch,
                                 image_slice_pitch, nullptr);
  return mapped;
}

cl_int clEnqueueFillImage(cl_command_queue command_queue, cl_mem image, const void* fill_color,
                          const size_t* origin, const size_t* region,
                          cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                          cl_event* event) {
  constexpr uint64_t kDepthBytes = 4, kColorBytes = 16;
  Forward forward(true);
  Copy copy = {};
  if (!begin({command_queue, image, CL_FALSE, origin, region, 0, 0, nullptr,
              num_events_in_wait_list, event_wait_list, event},
             &forward, &copy))
    return forward.error();
  if (fill_color == nullptr) return CL_INVALID_VALUE;
  const bool is_depth = copy.memory->picture.format.image_channel_order == CL_DEPTH;
  wire::opencl::image_fill_request request;
  request.queue = copy.queue->wire_id;
  request.image = copy.memory->wire_id;
  request.origin = {copy.shape.origin, 3};
  request.region = {copy.shape.extent, 3};
  request.color = {static_cast<const uint8_t*>(fill_color), is_depth ? kDepthBytes : kColorBytes};
  request.event = forward.mint_if(event, CL_COMMAND_FILL_IMAGE);
  request.wait = copy.wait;
  if (!forward.ok()) return forward.error();
  const cl_int result = forward.enqueue(request);
  if (result == CL_SUCCESS) forward.adopt_into(event);
  return result;
}

namespace checks {

cl_int clEnqueueCopyImage(cl_command_queue, cl_mem src_image, cl_mem dst_image,
                          const size_t* src_origin, const size_t* dst_origin, const size_t* region,
                          cl_uint, const cl_event*, cl_event*) {
  const Memory &from = *find(src_image), &to = *find(dst_image);
  cl_int result = check_part(from, src_origin, region);
  if (result == CL_SUCCESS) result = check_part(to, dst_origin, region);
  if (result != CL_SUCCESS) return result;
  const cl_image_format &one = from.picture.format, &other = to.picture.format;
  if (one.image_channel_order != other.image_channel_order ||
      one.image_channel_data_type != other.image_channel_data_type)
    return CL_IMAGE_FORMAT_MISMATCH;
  bool overlaps = &from == &to;
  for (int i = 0; i < 3; ++i)
    overlaps = overlaps && src_origin[i] < dst_origin[i] + region[i] &&
               dst_origin[i] < src_origin[i] + region[i];
  return overlaps ? CL_MEM_COPY_OVERLAP : CL_SUCCESS;
}

cl_int clEnqueueCopyImageToBuffer(cl_command_queue, cl_mem src_image, cl_mem dst_buffer,
                                  const size_t* src_origin, const size_t* region, size_t dst_offset,
                                  cl_uint, const cl_event*, cl_event*) {
  return check_with_buffer(*find(src_image), src_origin, region, *find(dst_buffer), dst_offset);
}

cl_int clEnqueueCopyBufferToImage(cl_command_queue, cl_mem src_buffer, cl_mem dst_image,
                                  size_t src_offset, const size_t* dst_origin, const size_t* region,
                                  cl_uint, const cl_event*, cl_event*) {
  return check_with_buffer(*find(dst_image), dst_origin, region, *find(src_buffer), src_offset);
}

}  // namespace checks
}  // namespace tendril::client::opencl

// SPDX-License-Identifier: Apache-2.0
// Images and samplers: what an ordinary program does with them. Says what came back wrong.
#include <string.h>

#include "tests/opencl/program.h"

namespace {

constexpr char kSource[] = R"(
constant sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
kernel void copy(read_only image2d_t from, write_only image2d_t to) {
  int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imageui(to, at, read_imageui(from, nearest, at) + 1u);
}
kernel void sample(read_only image2d_t from, sampler_t how, global uint* value) {
  value[0] = read_imageui(from, how, (float2)(-5.0f, 2.5f)).x;
}
)";

constexpr size_t kWide = 16, kHigh = 8;
constexpr cl_image_format kFour = {CL_RGBA, CL_UNSIGNED_INT8};
constexpr cl_image_format kOne = {CL_R, CL_UNSIGNED_INT32};

cl_image_desc described(cl_mem_object_type type, size_t width, size_t height = 0, size_t depth = 0,
                        size_t layers = 0) {
  cl_image_desc description = {};
  description.image_type = type;
  description.image_width = width;
  description.image_height = height;
  description.image_depth = depth;
  description.image_array_size = layers;
  return description;
}

std::vector<unsigned> counted(size_t count) {
  std::vector<unsigned> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<unsigned>(i);
  return values;
}

cl_mem image_of(const cl_image_desc& description, std::vector<unsigned>* content,
                const cl_image_format& format = kOne) {
  cl_int error = CL_SUCCESS;
  cl_mem image =
      cl.clCreateImage(g_context, CL_MEM_READ_WRITE | (content ? CL_MEM_COPY_HOST_PTR : 0), &format,
                       &description, content ? content->data() : nullptr, &error);
  EXPECT(error == CL_SUCCESS);
  return image;
}

constexpr size_t kZero[3] = {0, 0, 0};

void read_whole(cl_command_queue queue, cl_mem image, const size_t* region,
                std::vector<unsigned>* into) {
  EXPECT(cl.clEnqueueReadImage(queue, image, CL_TRUE, kZero, region, 0, 0, into->data(), 0, nullptr,
                               nullptr) == CL_SUCCESS);
}

}  // namespace

// Every type of image: content at creation, a part written with gaps, everything read.
void images() {
  cl_command_queue queue = queue_with(0);
  struct Case {
    cl_image_desc description;
    size_t whole[3];
  };
  const Case cases[] = {
      {described(CL_MEM_OBJECT_IMAGE1D, 64), {64, 1, 1}},
      {described(CL_MEM_OBJECT_IMAGE1D_ARRAY, 16, 0, 0, 4), {16, 4, 1}},
      {described(CL_MEM_OBJECT_IMAGE2D, kWide, kHigh), {kWide, kHigh, 1}},
      {described(CL_MEM_OBJECT_IMAGE2D_ARRAY, 8, 4, 0, 3), {8, 4, 3}},
      {described(CL_MEM_OBJECT_IMAGE3D, 8, 4, 3), {8, 4, 3}},
  };
  for (const Case& each : cases) {
    const size_t count = each.whole[0] * each.whole[1] * each.whole[2];
    std::vector<unsigned> content = counted(count), back(count, 0);
    cl_mem image = image_of(each.description, &content);
    read_whole(queue, image, each.whole, &back);
    EXPECT(back == content);
    // A part in the middle, from rows that are longer than the part.
    const size_t origin[3] = {2, each.whole[1] > 1 ? 1u : 0u, each.whole[2] > 1 ? 1u : 0u};
    const size_t region[3] = {4, each.whole[1] > 1 ? 2u : 1u, each.whole[2] > 1 ? 2u : 1u};
    std::vector<unsigned> part(8 * region[1] * region[2], 1000);
    const bool of_rows = each.description.image_type == CL_MEM_OBJECT_IMAGE1D_ARRAY;
    const size_t slice = of_rows ? 8 * 4 : each.whole[2] > 1 ? 8 * 4 * region[1] : 0;
    EXPECT(cl.clEnqueueWriteImage(queue, image, CL_FALSE, origin, region, of_rows ? 0 : 8 * 4,
                                  slice, part.data(), 0, nullptr, nullptr) == CL_SUCCESS);
    read_whole(queue, image, each.whole, &back);
    size_t changed = 0;
    for (size_t i = 0; i < count; ++i) changed += back[i] != content[i];
    EXPECT(changed == region[0] * region[1] * region[2]);
    const size_t row = each.whole[0], plane = row * each.whole[1];
    EXPECT(back[origin[2] * plane + origin[1] * row + 2] == 1000);
    EXPECT(cl.clReleaseMemObject(image) == CL_SUCCESS);
  }
  EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
}

void image_information() {
  cl_uint count = 0;
  EXPECT(cl.clGetSupportedImageFormats(g_context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, 0,
                                       nullptr, &count) == CL_SUCCESS);
  std::vector<cl_image_format> formats(count);
  EXPECT(cl.clGetSupportedImageFormats(g_context, CL_MEM_READ_WRITE, CL_MEM_OBJECT_IMAGE2D, count,
                                       formats.data(), nullptr) == CL_SUCCESS);
  bool found = false;
  for (const cl_image_format& each : formats) found = found || memcmp(&each, &kFour, 8) == 0;
  EXPECT(count > 10 && found);
  cl_mem image = image_of(described(CL_MEM_OBJECT_IMAGE2D, kWide, kHigh), nullptr, kFour);
  size_t number = 0;
  EXPECT(cl.clGetImageInfo(image, CL_IMAGE_WIDTH, sizeof number, &number, nullptr) == CL_SUCCESS);
  EXPECT(number == kWide);
  EXPECT(cl.clGetImageInfo(image, CL_IMAGE_ELEMENT_SIZE, sizeof number, &number, nullptr) ==
         CL_SUCCESS);
  EXPECT(number == 4);
  cl_image_format format = {};
  EXPECT(cl.clGetImageInfo(image, CL_IMAGE_FORMAT, sizeof format, &format, nullptr) == CL_SUCCESS);
  EXPECT(memcmp(&format, &kFour, sizeof format) == 0);
  cl_mem_object_type type = 0;
  EXPECT(cl.clGetMemObjectInfo(image, CL_MEM_TYPE, sizeof type, &type, nullptr) == CL_SUCCESS);
  EXPECT(type == CL_MEM_OBJECT_IMAGE2D);
  EXPECT(cl.clReleaseMemObject(image) == CL_SUCCESS);
  cl_int error = CL_SUCCESS;
  cl_sampler sampler =
      cl.clCreateSampler(g_context, CL_FALSE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, &error);
  cl_addressing_mode mode = 0;
  EXPECT(error == CL_SUCCESS);
  EXPECT(cl.clGetSamplerInfo(sampler, CL_SAMPLER_ADDRESSING_MODE, sizeof mode, &mode, nullptr) ==
         CL_SUCCESS);
  EXPECT(mode == CL_ADDRESS_CLAMP);
  EXPECT(cl.clReleaseSampler(sampler) == CL_SUCCESS);
  EXPECT(cl.clReleaseSampler(nullptr) == CL_INVALID_SAMPLER);
  const cl_image_desc nothing = described(CL_MEM_OBJECT_IMAGE2D, 0, 4);
  EXPECT(cl.clCreateImage(g_context, CL_MEM_READ_WRITE, &kFour, &nothing, nullptr, &error) ==
         nullptr);
  EXPECT(error != CL_SUCCESS);
}

void image_kernels() {
  cl_command_queue queue = queue_with(0);
  cl_program program = built(kSource);
  cl_kernel copy = kernel_of(program, "copy"), sample = kernel_of(program, "sample");
  std::vector<unsigned> content = counted(kWide * kHigh);
  const cl_image_desc description = described(CL_MEM_OBJECT_IMAGE2D, kWide, kHigh);
  cl_mem from = image_of(description, &content), to = image_of(description, nullptr);
  EXPECT(cl.clSetKernelArg(copy, 0, sizeof from, &from) == CL_SUCCESS);
  EXPECT(cl.clSetKernelArg(copy, 1, sizeof to, &to) == CL_SUCCESS);
  const size_t all[3] = {kWide, kHigh, 1};
  EXPECT(cl.clEnqueueNDRangeKernel(queue, copy, 2, nullptr, all, nullptr, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  std::vector<unsigned> back(content.size());
  read_whole(queue, to, all, &back);
  EXPECT(back[0] == 1 && back[kWide * kHigh - 1] == kWide * kHigh);
  // Beyond the edge, the sampler decides: the nearest element.
  cl_int error = CL_SUCCESS;
  const cl_sampler_properties wanted[] = {CL_SAMPLER_NORMALIZED_COORDS,
                                          CL_FALSE,
                                          CL_SAMPLER_ADDRESSING_MODE,
                                          CL_ADDRESS_CLAMP_TO_EDGE,
                                          CL_SAMPLER_FILTER_MODE,
                                          CL_FILTER_NEAREST,
                                          0};
  cl_sampler sampler = cl.clCreateSamplerWithProperties(g_context, wanted, &error);
  EXPECT(error == CL_SUCCESS);
  std::vector<int> value(1);
  cl_mem result = buffer_of(value);
  const size_t one = 1;
  EXPECT(cl.clSetKernelArg(sample, 0, sizeof from, &from) == CL_SUCCESS);
  EXPECT(cl.clSetKernelArg(sample, 1, sizeof sampler, &sampler) == CL_SUCCESS);
  EXPECT(cl.clSetKernelArg(sample, 2, sizeof result, &result) == CL_SUCCESS);
  EXPECT(cl.clEnqueueNDRangeKernel(queue, sample, 1, nullptr, &one, nullptr, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  EXPECT(cl.clEnqueueReadBuffer(queue, result, CL_TRUE, 0, sizeof(int), value.data(), 0, nullptr,
                                nullptr) == CL_SUCCESS);
  EXPECT(value[0] == static_cast<int>(2 * kWide));
  EXPECT(cl.clReleaseSampler(sampler) == CL_SUCCESS);
  for (cl_mem each : {from, to, result}) EXPECT(cl.clReleaseMemObject(each) == CL_SUCCESS);
  for (cl_kernel each : {copy, sample}) EXPECT(cl.clReleaseKernel(each) == CL_SUCCESS);
  EXPECT(cl.clReleaseProgram(program) == CL_SUCCESS);
  EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
}

void image_copies() {
  cl_command_queue queue = queue_with(0);
  std::vector<unsigned> content = counted(kWide * kHigh), back(content.size());
  const cl_image_desc description = described(CL_MEM_OBJECT_IMAGE2D, kWide, kHigh);
  cl_mem from = image_of(description, &content), to = image_of(description, nullptr);
  const size_t all[3] = {kWide, kHigh, 1}, corner[3] = {4, 2, 0}, part[3] = {4, 2, 1};
  const unsigned color[4] = {77, 0, 0, 0};
  EXPECT(cl.clEnqueueFillImage(queue, to, color, kZero, all, 0, nullptr, nullptr) == CL_SUCCESS);
  EXPECT(cl.clEnqueueCopyImage(queue, from, to, kZero, corner, part, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  read_whole(queue, to, all, &back);
  EXPECT(back[0] == 77 && back[2 * kWide + 4] == 0 && back[3 * kWide + 7] == kWide + 3);
  std::vector<int> numbers(64, -1);
  cl_mem buffer = buffer_of(numbers);
  EXPECT(cl.clEnqueueCopyImageToBuffer(queue, from, buffer, corner, part, 16, 0, nullptr,
                                       nullptr) == CL_SUCCESS);
  EXPECT(cl.clEnqueueCopyBufferToImage(queue, buffer, to, 16, kZero, part, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  EXPECT(cl.clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, 64 * sizeof(int), numbers.data(), 0,
                                nullptr, nullptr) == CL_SUCCESS);
  EXPECT(numbers[3] == -1 && numbers[4] == 2 * kWide + 4 && numbers[11] == 3 * kWide + 7);
  read_whole(queue, to, all, &back);
  EXPECT(back[0] == 2 * kWide + 4 && back[kWide + 3] == 3 * kWide + 7);
  EXPECT(cl.clEnqueueCopyImageToBuffer(queue, from, buffer, kZero, all, 0, 0, nullptr, nullptr) ==
         CL_INVALID_VALUE);  // it is too small
  const size_t beyond[3] = {kWide, 1, 1};
  EXPECT(cl.clEnqueueFillImage(queue, to, color, corner, beyond, 0, nullptr, nullptr) ==
         CL_INVALID_VALUE);
  for (cl_mem each : {from, to, buffer}) EXPECT(cl.clReleaseMemObject(each) == CL_SUCCESS);
  EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
}

void image_mappings() {
  cl_command_queue queue = queue_with(0);
  std::vector<unsigned> content = counted(kWide * kHigh), back(content.size());
  cl_mem image = image_of(described(CL_MEM_OBJECT_IMAGE2D, kWide, kHigh), &content);
  const size_t all[3] = {kWide, kHigh, 1}, corner[3] = {4, 2, 0}, part[3] = {4, 2, 1};
  size_t row = 0, slice = 1;
  cl_int error = CL_SUCCESS;
  auto* at = static_cast<uint8_t*>(cl.clEnqueueMapImage(queue, image, CL_TRUE,
                                                        CL_MAP_READ | CL_MAP_WRITE, corner, part,
                                                        &row, &slice, 0, nullptr, nullptr, &error));
  EXPECT(error == CL_SUCCESS && at != nullptr && row >= kWide * 4);
  unsigned value = 0;
  memcpy(&value, at + row + 4, sizeof value);
  EXPECT(value == 3 * kWide + 5);
  value = 5000;
  memcpy(at + row + 4, &value, sizeof value);
  EXPECT(cl.clEnqueueUnmapMemObject(queue, image, at, 0, nullptr, nullptr) == CL_SUCCESS);
  read_whole(queue, image, all, &back);
  EXPECT(back[3 * kWide + 5] == 5000 && back[3 * kWide + 4] == 3 * kWide + 4);
  EXPECT(cl.clReleaseMemObject(image) == CL_SUCCESS);
  // The program's own memory, with gaps between its rows.
  std::vector<unsigned> mine(32 * kHigh, 7);
  cl_image_desc description = described(CL_MEM_OBJECT_IMAGE2D, kWide, kHigh);
  description.image_row_pitch = 32 * sizeof(unsigned);
  image = cl.clCreateImage(g_context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, &kOne, &description,
                           mine.data(), &error);
  EXPECT(error == CL_SUCCESS);
  const unsigned color[4] = {9, 0, 0, 0};
  EXPECT(cl.clEnqueueFillImage(queue, image, color, corner, part, 0, nullptr, nullptr) ==
         CL_SUCCESS);
  void* mapped = cl.clEnqueueMapImage(queue, image, CL_TRUE, CL_MAP_READ, kZero, all, &row, &slice,
                                      0, nullptr, nullptr, &error);
  EXPECT(mapped == mine.data() && row == 32 * sizeof(unsigned));
  EXPECT(mine[2 * 32 + 4] == 9 && mine[2 * 32 + 8] == 7 && mine[2 * 32 + 20] == 7);
  EXPECT(cl.clEnqueueUnmapMemObject(queue, image, mapped, 0, nullptr, nullptr) == CL_SUCCESS);
  EXPECT(cl.clFinish(queue) == CL_SUCCESS);
  EXPECT(cl.clReleaseMemObject(image) == CL_SUCCESS);
  EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
}

// An image that lies in a buffer.
void image_of_a_buffer() {
  cl_command_queue queue = queue_with(0);
  std::vector<int> numbers(64);
  for (int i = 0; i < 64; ++i) numbers[static_cast<size_t>(i)] = i;
  cl_mem buffer = buffer_of(numbers);
  cl_image_desc description = described(CL_MEM_OBJECT_IMAGE1D_BUFFER, 64);
  description.mem_object = buffer;
  cl_mem image = image_of(description, nullptr);
  cl_mem parent = nullptr;
  EXPECT(cl.clGetImageInfo(image, CL_IMAGE_BUFFER, sizeof parent, &parent, nullptr) == CL_SUCCESS);
  EXPECT(parent == buffer);
  const size_t all[3] = {64, 1, 1};
  std::vector<unsigned> back(64);
  read_whole(queue, image, all, &back);
  EXPECT(back[63] == 63);
  EXPECT(cl.clReleaseMemObject(image) == CL_SUCCESS);
  EXPECT(cl.clReleaseMemObject(buffer) == CL_SUCCESS);
  EXPECT(cl.clReleaseCommandQueue(queue) == CL_SUCCESS);
}

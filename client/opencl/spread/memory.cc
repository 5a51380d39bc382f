// SPDX-License-Identifier: Apache-2.0
// Buffers and their parts in contexts over several servers. None is made at a server before it is
// used there.
#include "client/opencl/memory.h"

#include <string.h>

#include <algorithm>
#include <new>

#include "client/opencl/information.h"
#include "client/opencl/spread/functions.h"
#include "client/opencl/spread/move.h"

namespace tendril::client::opencl::spread {
namespace {

// What the program gave is kept until it is at the servers. With CL_MEM_USE_HOST_PTR the program
// keeps it.
cl_int keep_first(Memory* memory, const void* host_ptr) {
  memory->pieces.assign(1, Piece());
  memory->pieces[0].end = memory->bytes;
  memory->pieces[0].arrivals.resize(memory->at.size());
  memory->kept.reset();
  memory->first = static_cast<const uint8_t*>(host_ptr);
  if (host_ptr == nullptr) return CL_SUCCESS;
  memory->pieces[0].valid = 0;
  memory->pieces[0].is_first = true;
  if (memory->host_pointer != nullptr) return CL_SUCCESS;
  memory->kept.reset(new (std::nothrow) uint8_t[memory->bytes]);
  if (memory->kept == nullptr) return CL_OUT_OF_HOST_MEMORY;
  memcpy(memory->kept.get(), host_ptr, memory->bytes);
  memory->first = memory->kept.get();
  return CL_SUCCESS;
}

}  // namespace

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void* host_ptr,
                      cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_mem>(CL_INVALID_CONTEXT, errcode_ret);
  cl_int result = check_flags(flags, host_ptr);
  if (result != CL_SUCCESS) return give<cl_mem>(result, errcode_ret);
  if (size == 0 || size > in->buffer_bytes_max)
    return give<cl_mem>(CL_INVALID_BUFFER_SIZE, errcode_ret);
  Memory* memory = create<cl_mem>(in);
  if (memory == nullptr) return give<cl_mem>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  reset(memory, size, flags, (flags & CL_MEM_USE_HOST_PTR) != 0 ? host_ptr : nullptr);
  memory->at.assign(in->members.size(), nullptr);
  memory->endings.clear();
  result = keep_first(memory, host_ptr);
  if (result != CL_SUCCESS) release(memory);
  return give<cl_mem>(result, errcode_ret, memory);
}

cl_mem clCreateSubBuffer(cl_mem buffer, cl_mem_flags flags,
                         cl_buffer_create_type buffer_create_type, const void* buffer_create_info,
                         cl_int* errcode_ret) {
  Memory* parent = find(buffer);
  if (parent == nullptr || parent->parent != nullptr || parent->is_image())
    return give<cl_mem>(CL_INVALID_MEM_OBJECT, errcode_ret);
  const auto* region = static_cast<const cl_buffer_region*>(buffer_create_info);
  cl_int result = buffer_create_type == CL_BUFFER_CREATE_TYPE_REGION
                      ? check_region(*parent, flags, region)
                      : CL_INVALID_VALUE;
  if (result != CL_SUCCESS) return give<cl_mem>(result, errcode_ret);
  if (region->origin % context_of(parent)->part_align_bytes != 0)
    return give<cl_mem>(CL_MISALIGNED_SUB_BUFFER_OFFSET, errcode_ret);
  Memory* memory = create<cl_mem>(parent->context);
  if (memory == nullptr) return give<cl_mem>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  auto* const host = static_cast<uint8_t*>(parent->host_pointer);
  reset(memory, region->size, inherited_flags(flags, *parent),
        host != nullptr ? host + region->origin : nullptr);
  memory->origin = region->origin;
  memory->parent = parent;
  use(parent);
  memory->at.assign(parent->at.size(), nullptr);
  memory->endings.clear();
  const base::Locked held(context_of(parent)->lock);
  cut(&parent->pieces, region->origin);
  cut(&parent->pieces, region->origin + region->size);
  return give<cl_mem>(CL_SUCCESS, errcode_ret, memory);
}

cl_int ask(const Memory& memory, cl_mem_info parameter, const Wanted& wanted) {
  if (parameter != CL_MEM_TYPE) return CL_INVALID_VALUE;
  return wanted.one(memory.is_image() ? memory.picture.description.image_type
                                      : cl_mem_object_type{CL_MEM_OBJECT_BUFFER});
}

cl_int clSetMemObjectDestructorCallback(cl_mem memobj, cl_mem_notify pfn_notify, void* user_data) {
  Memory* found = find(memobj);
  if (found == nullptr) return CL_INVALID_MEM_OBJECT;
  if (pfn_notify == nullptr) return CL_INVALID_VALUE;
  const base::Locked held(context_of(found)->lock);
  found->endings.emplace_back(pfn_notify, user_data);
  return CL_SUCCESS;
}

cl_sampler clCreateSampler(cl_context context, cl_bool normalized_coords,
                           cl_addressing_mode addressing_mode, cl_filter_mode filter_mode,
                           cl_int* errcode_ret) {
  const cl_sampler_properties all[] = {CL_SAMPLER_NORMALIZED_COORDS,
                                       normalized_coords,
                                       CL_SAMPLER_ADDRESSING_MODE,
                                       addressing_mode,
                                       CL_SAMPLER_FILTER_MODE,
                                       filter_mode,
                                       0};
  const cl_sampler made = spread::clCreateSamplerWithProperties(context, all, errcode_ret);
  if (Sampler* sampler = find(made); sampler != nullptr) sampler->properties.clear();
  return made;
}

// One is small, so each server has it at once.
cl_sampler clCreateSamplerWithProperties(cl_context context,
                                         const cl_sampler_properties* sampler_properties,
                                         cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_sampler>(CL_INVALID_CONTEXT, errcode_ret);
  Sampler* sampler = create<cl_sampler>(in);
  if (sampler == nullptr) return give<cl_sampler>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  sampler->at.assign(in->members.size(), nullptr);
  cl_int result = CL_SUCCESS;
  for (size_t i = 0; i < in->members.size() && result == CL_SUCCESS; ++i)
    sampler->at[i] =
        opencl::clCreateSamplerWithProperties(in->members[i].context, sampler_properties, &result);
  if (result != CL_SUCCESS) {
    release(sampler);
    return give<cl_sampler>(result, errcode_ret);
  }
  sampler->properties = opencl::find(sampler->at[0])->properties;
  return give<cl_sampler>(CL_SUCCESS, errcode_ret, sampler);
}

cl_int ask(const Sampler& sampler, cl_sampler_info parameter, const Wanted& wanted) {
  return opencl::clGetSamplerInfo(sampler.at[0], parameter, wanted.room, wanted.value,
                                  wanted.length);
}

}  // namespace tendril::client::opencl::spread

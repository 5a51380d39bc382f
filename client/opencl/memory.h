// SPDX-License-Identifier: Apache-2.0
// What buffers and images have in common. Any thread.
#pragma once

#include "client/opencl/object.h"

namespace tendril::client::opencl {

constexpr cl_mem_flags kHostMemory =
    CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR;

cl_int check_flags(cl_mem_flags flags, const void* host_ptr);
// Of a part of a buffer.
cl_int check_region(const Memory& parent, cl_mem_flags flags, const cl_buffer_region* region);
// Flags of a part of `parent`: what it does not say, it has from the whole.
cl_mem_flags inherited_flags(cl_mem_flags flags, const Memory& parent);
// What a new record has whatever it was before. A buffer; an image gets its picture later.
void reset(Memory* memory, uint64_t bytes, cl_mem_flags flags, void* host_pointer);

// What the old functions for images say (image.cc).
cl_image_desc flat_image(size_t width, size_t height, size_t row_pitch);
cl_image_desc deep_image(size_t width, size_t height, size_t depth, size_t row_pitch,
                         size_t slice_pitch);

// Where the host sees the object while it is mapped: the program's own memory, or memory of this
// library that is made at the first mapping. Every mapping of one object has the same addresses.
// Null: no memory.
uint8_t* shadow_of(Memory* memory);
void free_shadow(Memory* memory);
uint64_t host_bytes(const Memory& memory);

}  // namespace tendril::client::opencl

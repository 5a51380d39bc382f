// SPDX-License-Identifier: Apache-2.0
// Copies between the program's memory and a memory object, as commands of a queue. Buffers and
// images use it. Data to the device leave before `write` returns. Any thread.
#pragma once

#include "client/opencl/forward.h"

namespace tendril::client::opencl {

constexpr cl_mem_flags kNoHostReads = CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_NO_ACCESS;
constexpr cl_mem_flags kNoHostWrites = CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;

// One copy, as the program asked for it.
struct Copy {
  Queue* queue;
  Memory* memory;  // null: shared virtual memory
  wire::opencl::Form form;
  wire::opencl::Shape shape;
  HostPlace host;
  bool blocking;
  uint64_t event;
  wire::Array<uint64_t> wait;
};

cl_int read(const Copy& copy);
cl_int write(const Copy& copy);
// A command that only waits, for an event of a mapping without data.
cl_int wait_only(Queue* queue, uint64_t event, const wire::Array<uint64_t>& wait);
// Until everything in the queue is over.
cl_int wait_for_queue(Queue* queue);

// The program sees `copy.host`, whose content is the device's unless the program overwrites all of
// it. `flags`: why. The flags have been checked against those of the memory (check_map).
// `command` and `event` are those of the program's call. Returns the address, or null with an
// error.
void* map(Forward* forward, Copy* copy, cl_map_flags flags, cl_command_type command,
          cl_event* event, cl_int* error);
cl_int check_map(const Memory& memory, cl_map_flags flags);
// The newest mapping at this address, which is one no more. False: there is none.
bool take_mapping(Memory* memory, const void* mapped, Mapping* mapping);
// The same without a memory object.
cl_int read_for_map(const Copy& copy, cl_map_flags flags);
cl_int check_map_flags(cl_map_flags flags);
// Whether OpenCL fills memory with patterns of this length.
bool is_pattern(size_t bytes);

wire::opencl::Shape linear_shape(uint64_t offset, uint64_t bytes);
inline bool inside(const Memory& memory, uint64_t offset, uint64_t bytes) {
  return offset <= memory.bytes && bytes <= memory.bytes - offset;
}

// Whether the part lies in the image (image.cc).
bool inside(const Picture& picture, const size_t* origin, const size_t* region);

}  // namespace tendril::client::opencl

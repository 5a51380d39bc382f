// SPDX-License-Identifier: Apache-2.0
// Buffers and parts of them. The host's side of a buffer stays in the program: its content travels
// when the program copies or maps.
#include "client/opencl/memory.h"

#include <sys/mman.h>

#include "client/opencl/callbacks.h"
#include "client/opencl/forward.h"
#include "client/opencl/information.h"
#include "client/opencl/svm.h"

namespace tendril::client::opencl {
namespace {

constexpr cl_mem_flags kAccess = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
constexpr cl_mem_flags kHostAccess =
    CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;

bool at_most_one(cl_mem_flags flags) { return (flags & (flags - 1)) == 0; }

cl_int make_at_server(Memory* memory, const void* content) {
  using Request = wire::opencl::buffer_create_request;
  Request request;
  wire::opencl::buffer_create_reply reply;
  request.memory = memory->wire_id;
  request.context = memory->context->wire_id;
  request.flags = memory->flags;
  request.size = memory->bytes;
  if (memory->shared) {
    request.shared = reinterpret_cast<uint64_t>(memory->host_pointer);
    content = nullptr;
  }
  request.has_content = content != nullptr ? 1 : 0;
  return memory->session->call_with(&request, &Request::content, content,
                                    content != nullptr ? memory->bytes : 0, &reply);
}

struct Destruction {
  cl_mem memory;
  cl_mem_notify notify;
  void* data;
};

void destroyed(void* argument, int32_t) {
  const std::unique_ptr<Destruction> wish(static_cast<Destruction*>(argument));
  wish->notify(wish->memory, wish->data);
}

// The host may do with a part no more than with the whole.
bool may_inherit(cl_mem_flags flags, const Memory& parent) {
  if ((flags & kHostAccess) == 0 || (parent.flags & kHostAccess) == 0) return true;
  return (flags & CL_MEM_HOST_NO_ACCESS) != 0 || (flags & parent.flags & kHostAccess) != 0;
}

}  // namespace

cl_int check_flags(cl_mem_flags flags, const void* host_ptr) {
  constexpr cl_mem_flags kKnown = kAccess | kHostAccess | kHostMemory;
  if ((flags & ~kKnown) != 0 || !at_most_one(flags & kAccess) || !at_most_one(flags & kHostAccess))
    return CL_INVALID_VALUE;
  const bool uses = (flags & CL_MEM_USE_HOST_PTR) != 0;
  if (uses && (flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0)
    return CL_INVALID_VALUE;
  const bool wants = (flags & (CL_MEM_USE_HOST_PTR | CL_MEM_COPY_HOST_PTR)) != 0;
  return wants != (host_ptr != nullptr) ? CL_INVALID_HOST_PTR : CL_SUCCESS;
}

cl_int check_region(const Memory& parent, cl_mem_flags flags, const cl_buffer_region* region) {
  if (region == nullptr || (flags & kHostMemory) != 0 || !at_most_one(flags & kAccess) ||
      !at_most_one(flags & kHostAccess) || !may_inherit(flags, parent))
    return CL_INVALID_VALUE;
  if (region->size == 0) return CL_INVALID_BUFFER_SIZE;
  return region->origin > parent.bytes || region->size > parent.bytes - region->origin
             ? CL_INVALID_VALUE
             : CL_SUCCESS;
}

void reset(Memory* memory, uint64_t bytes, cl_mem_flags flags, void* host_pointer) {
  memory->bytes = bytes;
  memory->origin = 0;
  memory->flags = (flags & kAccess) == 0 ? flags | CL_MEM_READ_WRITE : flags;
  memory->host_pointer = host_pointer;
  memory->shared = false;
  memory->picture = {};
  memory->properties.clear();
  memory->shadow = nullptr;
  memory->mappings.clear();
}

cl_mem_flags inherited_flags(cl_mem_flags flags, const Memory& parent) {
  cl_mem_flags all = flags | (parent.flags & kHostMemory);
  if ((flags & kAccess) == 0) all |= parent.flags & kAccess;
  if ((flags & kHostAccess) == 0) all |= parent.flags & kHostAccess;
  return all;
}

uint64_t host_bytes(const Memory& memory) {
  return memory.is_image() ? memory.picture.slice_pitch * memory.picture.extent[2] : memory.bytes;
}

uint8_t* shadow_of(Memory* memory) {
  if (memory->parent != nullptr) {
    uint8_t* whole = shadow_of(static_cast<Memory*>(memory->parent));
    return whole != nullptr ? whole + memory->origin : nullptr;
  }
  if (memory->host_pointer != nullptr) return static_cast<uint8_t*>(memory->host_pointer);
  const base::Locked held(memory->lock);
  if (memory->shadow == nullptr) {
    void* made = mmap(nullptr, host_bytes(*memory), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made != MAP_FAILED) memory->shadow = static_cast<uint8_t*>(made);
  }
  return memory->shadow;
}

void free_shadow(Memory* memory) {
  if (memory->shadow != nullptr) munmap(memory->shadow, host_bytes(*memory));
  memory->shadow = nullptr;
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void* host_ptr,
                      cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_mem>(CL_INVALID_CONTEXT, errcode_ret);
  if (size == 0) return give<cl_mem>(CL_INVALID_BUFFER_SIZE, errcode_ret);
  cl_int result = check_flags(flags, host_ptr);
  if (result != CL_SUCCESS) return give<cl_mem>(result, errcode_ret);
  const bool uses = (flags & CL_MEM_USE_HOST_PTR) != 0;
  if (uses && is_shared(host_ptr, 1, in) && !is_shared(host_ptr, size, in))
    return give<cl_mem>(CL_INVALID_BUFFER_SIZE, errcode_ret);
  Memory* memory = create<cl_mem>(in->session, in);
  if (memory == nullptr) return give<cl_mem>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  reset(memory, size, flags, uses ? host_ptr : nullptr);
  memory->shared = memory->host_pointer != nullptr && is_shared(host_ptr, size, in);
  result = make_at_server(memory, host_ptr);
  if (result != CL_SUCCESS) discard(memory);
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
  Memory* memory = create<cl_mem>(parent->session, parent->context);
  if (memory == nullptr) return give<cl_mem>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  void* const host = parent->host_pointer != nullptr
                         ? static_cast<uint8_t*>(parent->host_pointer) + region->origin
                         : nullptr;
  reset(memory, region->size, inherited_flags(flags, *parent), host);
  memory->parent = parent;
  memory->origin = region->origin;
  use(parent);
  wire::opencl::sub_buffer_create_request request;
  wire::opencl::sub_buffer_create_reply reply;
  request.memory = memory->wire_id;
  request.parent = parent->wire_id;
  request.flags = flags;
  request.origin = region->origin;
  request.size = region->size;
  result = parent->session->call(0, request, reply);
  if (result != CL_SUCCESS) discard(memory);
  return give<cl_mem>(result, errcode_ret, memory);
}

bool answer_of_memory(Memory& memory, cl_mem_info parameter, const Wanted& answer, cl_int* result) {
  switch (parameter) {
    case CL_MEM_FLAGS:
      *result = answer.one(memory.flags);
      return true;
    case CL_MEM_SIZE:
      *result = answer.one(size_t{memory.bytes});
      return true;
    case CL_MEM_OFFSET:
      *result = answer.one(size_t{memory.origin});
      return true;
    case CL_MEM_HOST_PTR:
      *result = answer.one(memory.host_pointer);
      return true;
    case CL_MEM_MAP_COUNT: {
      const base::Locked held(memory.lock);
      *result = answer.one(static_cast<cl_uint>(memory.mappings.size()));
      return true;
    }
    case CL_MEM_REFERENCE_COUNT:
      *result = answer.one(cl_uint{memory.references.load()});
      return true;
    case CL_MEM_CONTEXT:
      *result = answer.one(handle_of<cl_context>(memory.context));
      return true;
    case CL_MEM_ASSOCIATED_MEMOBJECT:
      *result = answer.one(handle_of<cl_mem>(memory.parent));
      return true;
    case CL_MEM_USES_SVM_POINTER:
      *result = answer.one(static_cast<cl_bool>(memory.shared));
      return true;
    case CL_MEM_PROPERTIES:
      *result = answer.list(memory.properties);
      return true;
    default:
      return false;
  }
}

cl_int ask(const Memory& memory, cl_mem_info parameter, const Wanted& wanted) {
  return ask_server({memory.session, wire::opencl::Subject::kMemory, memory.wire_id}, parameter,
                    wanted);
}

cl_mem clCreatePipe(cl_context context, cl_mem_flags flags, cl_uint pipe_packet_size,
                    cl_uint pipe_max_packets, const cl_pipe_properties* properties,
                    cl_int* errcode_ret) {
  constexpr cl_mem_flags kKnown = CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS;
  Context* in = find(context);
  if (in == nullptr) return give<cl_mem>(CL_INVALID_CONTEXT, errcode_ret);
  if ((flags & ~kKnown) != 0 || (properties != nullptr && properties[0] != 0))
    return give<cl_mem>(CL_INVALID_VALUE, errcode_ret);
  if (pipe_packet_size == 0 || pipe_max_packets == 0)
    return give<cl_mem>(CL_INVALID_PIPE_SIZE, errcode_ret);
  Memory* memory = create<cl_mem>(in->session, in);
  if (memory == nullptr) return give<cl_mem>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  reset(memory, 0, flags | CL_MEM_HOST_NO_ACCESS, nullptr);
  wire::opencl::pipe_create_request request;
  wire::opencl::pipe_create_reply reply;
  request.memory = memory->wire_id;
  request.context = in->wire_id;
  request.flags = flags;
  request.packet_bytes = pipe_packet_size;
  request.packets = pipe_max_packets;
  const cl_int result = in->session->call(0, request, reply);
  memory->bytes = reply.size;
  if (result != CL_SUCCESS) discard(memory);
  return give<cl_mem>(result, errcode_ret, memory);
}

cl_int clGetPipeInfo(cl_mem pipe, cl_pipe_info param_name, size_t param_value_size,
                     void* param_value, size_t* param_value_size_ret) {
  const Wanted answer = {param_value_size, param_value, param_value_size_ret};
  const Memory* found = find(pipe);
  if (found == nullptr) return CL_INVALID_MEM_OBJECT;
  if (param_name == CL_PIPE_PROPERTIES) return answer.list(std::vector<cl_pipe_properties>());
  return ask_server({found->session, wire::opencl::Subject::kPipe, found->wire_id}, param_name,
                    answer);
}

cl_int clSetMemObjectDestructorCallback(cl_mem memobj, cl_mem_notify pfn_notify, void* user_data) {
  Memory* found = find(memobj);
  if (found == nullptr) return CL_INVALID_MEM_OBJECT;
  if (pfn_notify == nullptr) return CL_INVALID_VALUE;
  auto wish = std::make_unique<Destruction>(Destruction{memobj, pfn_notify, user_data});
  wire::opencl::memory_watch_request request;
  request.memory = found->wire_id;
  request.token = await_callback(found->session, {&destroyed, wish.get()});
  if (request.token == 0) return CL_OUT_OF_HOST_MEMORY;
  static_cast<void>(wish.release());
  return found->session->enqueue(0, request);
}

}  // namespace tendril::client::opencl

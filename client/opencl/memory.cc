// SPDX-License-Identifier: Apache-2.0
// Buffers and parts of them. The host's side of a buffer stays in the program: its content travels
// when the program copies or maps.
#include "client/opencl/memory.h"

#include <sys/mman.h>

#include "client/opencl/callbacks.h"
#include "client/opencl/forward.h"
#include "client/opencl/information.h"

namespace tendril::client::opencl {
namespace {

constexpr cl_mem_flags kAccess = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
constexpr cl_mem_flags kHostAccess =
    CL_MEM_HOST_WRITE_ONLY | CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;
constexpr cl_mem_flags kHostMemory =
    CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR;

bool at_most_one(cl_mem_flags flags) { return (flags & (flags - 1)) == 0; }

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

cl_int make_at_server(Memory* memory, const void* content) {
  Session* session = memory->session;
  wire::opencl::buffer_create_request request;
  wire::opencl::buffer_create_reply reply;
  request.memory = memory->wire_id;
  request.context = memory->context->wire_id;
  request.flags = memory->flags;
  request.size = memory->bytes;
  request.has_content = content != nullptr ? 1 : 0;
  const bool apart = content != nullptr && memory->bytes > wire::kInlineBytesMax;
  if (!apart) {
    if (content != nullptr) request.content = {static_cast<const uint8_t*>(content), memory->bytes};
    return session->call(0, request, reply);
  }
  request.transfer = session->lane->new_transfer_id();
  const uint32_t reply_id = session->lane->new_reply_id();
  if (!session->append(0, request, reply_id)) return Results::kLost;
  if (!session->send_bulk(request.transfer, content, memory->bytes)) return Results::kLost;
  return session->answer(reply_id, reply);
}

// What a new record has whatever it was before.
void reset(Memory* memory, uint64_t bytes, cl_mem_flags flags, void* host_pointer) {
  memory->bytes = bytes;
  memory->origin = 0;
  memory->flags = (flags & kAccess) == 0 ? flags | CL_MEM_READ_WRITE : flags;
  memory->host_pointer = host_pointer;
  memory->properties.clear();
  memory->shadow = nullptr;
  memory->mappings.clear();
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

}  // namespace

uint8_t* shadow_of(Memory* memory) {
  if (memory->parent != nullptr) {
    uint8_t* whole = shadow_of(static_cast<Memory*>(memory->parent));
    return whole != nullptr ? whole + memory->origin : nullptr;
  }
  if (memory->host_pointer != nullptr) return static_cast<uint8_t*>(memory->host_pointer);
  const base::Locked held(memory->lock);
  if (memory->shadow == nullptr) {
    void* made = mmap(nullptr, memory->bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made != MAP_FAILED) memory->shadow = static_cast<uint8_t*>(made);
  }
  return memory->shadow;
}

void free_shadow(Memory* memory) {
  if (memory->shadow != nullptr) munmap(memory->shadow, memory->bytes);
  memory->shadow = nullptr;
}

cl_mem clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void* host_ptr,
                      cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_mem>(CL_INVALID_CONTEXT, errcode_ret);
  if (size == 0) return give<cl_mem>(CL_INVALID_BUFFER_SIZE, errcode_ret);
  cl_int result = check_flags(flags, host_ptr);
  if (result != CL_SUCCESS) return give<cl_mem>(result, errcode_ret);
  Memory* memory = create<cl_mem>(in->session, in);
  if (memory == nullptr) return give<cl_mem>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  reset(memory, size, flags, (flags & CL_MEM_USE_HOST_PTR) != 0 ? host_ptr : nullptr);
  result = make_at_server(memory, host_ptr);
  if (result != CL_SUCCESS) discard(memory);
  return give<cl_mem>(result, errcode_ret, memory);
}

cl_mem clCreateBufferWithProperties(cl_context context, const cl_mem_properties* properties,
                                    cl_mem_flags flags, size_t size, void* host_ptr,
                                    cl_int* errcode_ret) {
  if (properties != nullptr && properties[0] != 0)
    return give<cl_mem>(CL_INVALID_PROPERTY, errcode_ret);
  const cl_mem made = opencl::clCreateBuffer(context, flags, size, host_ptr, errcode_ret);
  if (Memory* memory = find(made); memory != nullptr && properties != nullptr)
    memory->properties.push_back(0);
  return made;
}

cl_mem clCreateSubBuffer(cl_mem buffer, cl_mem_flags flags,
                         cl_buffer_create_type buffer_create_type, const void* buffer_create_info,
                         cl_int* errcode_ret) {
  Memory* parent = find(buffer);
  if (parent == nullptr || parent->parent != nullptr)
    return give<cl_mem>(CL_INVALID_MEM_OBJECT, errcode_ret);
  if (buffer_create_type != CL_BUFFER_CREATE_TYPE_REGION || buffer_create_info == nullptr ||
      (flags & kHostMemory) != 0 || !at_most_one(flags & kAccess) ||
      !at_most_one(flags & kHostAccess))
    return give<cl_mem>(CL_INVALID_VALUE, errcode_ret);
  const auto* region = static_cast<const cl_buffer_region*>(buffer_create_info);
  if (region->size == 0) return give<cl_mem>(CL_INVALID_BUFFER_SIZE, errcode_ret);
  if (region->origin > parent->bytes || region->size > parent->bytes - region->origin)
    return give<cl_mem>(CL_INVALID_VALUE, errcode_ret);
  // What the part does not say it has from the whole.
  cl_mem_flags all = flags | (parent->flags & kHostMemory);
  if ((flags & kAccess) == 0) all |= parent->flags & kAccess;
  if ((flags & kHostAccess) == 0) all |= parent->flags & kHostAccess;
  Memory* memory = create<cl_mem>(parent->session, parent->context);
  if (memory == nullptr) return give<cl_mem>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  void* const host = parent->host_pointer != nullptr
                         ? static_cast<uint8_t*>(parent->host_pointer) + region->origin
                         : nullptr;
  reset(memory, region->size, all, host);
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
  const cl_int result = parent->session->call(0, request, reply);
  if (result != CL_SUCCESS) discard(memory);
  return give<cl_mem>(result, errcode_ret, memory);
}

cl_int clRetainMemObject(cl_mem memobj) { return retain_handle(memobj); }
cl_int clReleaseMemObject(cl_mem memobj) { return release_handle(memobj); }

cl_int clGetMemObjectInfo(cl_mem memobj, cl_mem_info param_name, size_t param_value_size,
                          void* param_value, size_t* param_value_size_ret) {
  const Wanted answer = {param_value_size, param_value, param_value_size_ret};
  Memory* found = find(memobj);
  if (found == nullptr) return CL_INVALID_MEM_OBJECT;
  switch (param_name) {
    case CL_MEM_FLAGS:
      return answer.one(found->flags);
    case CL_MEM_SIZE:
      return answer.one(size_t{found->bytes});
    case CL_MEM_OFFSET:
      return answer.one(size_t{found->origin});
    case CL_MEM_HOST_PTR:
      return answer.one(found->host_pointer);
    case CL_MEM_MAP_COUNT: {
      const base::Locked held(found->lock);
      return answer.one(static_cast<cl_uint>(found->mappings.size()));
    }
    case CL_MEM_REFERENCE_COUNT:
      return answer.one(cl_uint{found->references.load()});
    case CL_MEM_CONTEXT:
      return answer.one(handle_of<cl_context>(found->context));
    case CL_MEM_ASSOCIATED_MEMOBJECT:
      return answer.one(handle_of<cl_mem>(found->parent));
    case CL_MEM_USES_SVM_POINTER:
      return answer.one(cl_bool{CL_FALSE});
    case CL_MEM_PROPERTIES:
      return answer.list(found->properties);
    default:
      return ask_server({found->session, wire::opencl::Subject::kMemory, found->wire_id},
                        param_name, answer);
  }
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

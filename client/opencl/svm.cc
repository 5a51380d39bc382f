// SPDX-License-Identifier: Apache-2.0
// Shared virtual memory of coarse grain. The worker's driver chooses the addresses, and this
// process has memory at the same ones. Kernels may so follow pointers that the program stored.
// Content travels when the program maps and unmaps, as OpenCL allows.
#include "client/opencl/svm.h"

#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <memory>

#include "client/opencl/callbacks.h"
#include "client/opencl/copy.h"

namespace tendril::client::opencl {
namespace {

using wire::opencl::Form;

constexpr uint64_t kPageBytes = 4096, kAlignmentMax = 128;  // as OpenCL's largest type
// An address of the worker's may be in use here. Then it gives another one.
constexpr int kTries = 16;

SharedMemories& shared() { return process()->shared.get(); }

uint64_t pages_of(uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// Memory here at this address. False: something else is there.
bool take_pages(uint64_t address, uint64_t bytes) {
  auto* const wanted = reinterpret_cast<void*>(address);
  void* const got = mmap(wanted, pages_of(bytes), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == wanted) return true;
  if (got != MAP_FAILED) munmap(got, pages_of(bytes));  // an old kernel takes it for a wish
  return false;
}

void free_at_server(Session* session, uint64_t address) {
  wire::opencl::shared_free_request request;
  request.address = address;
  (void)session->enqueue(0, request);
}

// Ends the allocation here. Null: there is none at this address.
Object* forget(const void* address) {
  const auto at = reinterpret_cast<uint64_t>(address);
  SharedMemories& all = shared();
  Shared ended;
  {
    const base::Locked held(all.lock);
    const auto found = all.allocations.find(at);
    if (found == all.allocations.end()) return nullptr;
    ended = found->second;
    all.allocations.erase(found);
  }
  munmap(reinterpret_cast<void*>(at), pages_of(ended.bytes));
  return ended.context;
}

Copy copy_of(Queue* queue, const void* device, const void* host, uint64_t bytes) {
  Copy copy = {};
  copy.queue = queue;
  copy.form = Form::kShared;
  copy.shape = linear_shape(reinterpret_cast<uint64_t>(device), bytes);
  copy.host = linear_place(host, bytes);
  return copy;
}

// What every command begins with.
struct Command {
  Forward forward{true};
  Queue* queue;
  wire::Array<uint64_t> wait;
  Command(cl_command_queue wanted, cl_uint waits, const cl_event* list)
      : queue(forward.record(wanted)), wait(forward.waits(list, waits)) {}
  bool ok() const { return forward.ok(); }
  bool has(const void* address, uint64_t bytes) {
    return is_shared(address, bytes, queue->context);
  }
  cl_int end(cl_int result, cl_event* event) {
    if (result == CL_SUCCESS) forward.adopt_into(event);
    return result;
  }
};

// The program frees the memory itself, in its function.
struct Freeing {
  cl_command_queue queue;
  std::vector<void*> pointers;
  cl_svm_notify notify;
  void* data;
};
void free_now(void* argument, int32_t) {
  const std::unique_ptr<Freeing> mine(static_cast<Freeing*>(argument));
  mine->notify(mine->queue, static_cast<cl_uint>(mine->pointers.size()), mine->pointers.data(),
               mine->data);
  (void)opencl::clReleaseCommandQueue(mine->queue);
}

cl_int free_by_program(Command* command, std::unique_ptr<Freeing> wish, uint64_t event) {
  Session* const session = command->queue->session;
  const cl_int result = wait_only(command->queue, event, command->wait);
  if (result != CL_SUCCESS) return result;
  retain(command->queue);
  wire::opencl::event_watch_request request;
  request.event = event;
  request.status = CL_COMPLETE;
  request.token = await_callback(session, {&free_now, wish.get()});
  if (request.token == 0) return CL_OUT_OF_HOST_MEMORY;
  static_cast<void>(wish.release());
  return session->enqueue(0, request);
}

}  // namespace

bool is_shared(const void* address, uint64_t bytes, const Object* context) {
  const auto at = reinterpret_cast<uint64_t>(address);
  SharedMemories& all = shared();
  const base::Locked held(all.lock);
  auto after = all.allocations.upper_bound(at);
  if (after == all.allocations.begin()) return false;
  --after;
  const uint64_t offset = at - after->first;
  return after->second.context == context && offset < after->second.bytes &&
         bytes <= after->second.bytes - offset;
}

void* clSVMAlloc(cl_context context, cl_svm_mem_flags flags, size_t size, unsigned int alignment) {
  constexpr cl_svm_mem_flags kKnown = CL_MEM_READ_WRITE | CL_MEM_WRITE_ONLY | CL_MEM_READ_ONLY;
  Context* in = find(context);
  // Fine grain needs one memory for two machines.
  if (in == nullptr || size == 0 || (flags & ~kKnown) != 0 || alignment > kAlignmentMax ||
      (alignment & (alignment - 1)) != 0)
    return nullptr;
  wire::opencl::shared_allocate_request request;
  wire::opencl::shared_allocate_reply reply;
  request.context = in->wire_id;
  request.flags = flags;
  request.bytes = size;
  std::vector<uint64_t> unfit;
  void* made = nullptr;
  for (int i = 0; i < kTries && made == nullptr; ++i) {
    if (in->session->call(0, request, reply) != CL_SUCCESS) break;
    const uint64_t address = reply.address;
    if (address == 0 || address % kPageBytes != 0 || !take_pages(address, size)) {
      unfit.push_back(address);
      continue;
    }
    made = reinterpret_cast<void*>(address);
    const base::Locked held(shared().lock);
    shared().allocations[address] = {in, size};
    use(in);
  }
  for (const uint64_t address : unfit) free_at_server(in->session, address);
  return made;
}

void clSVMFree(cl_context context, void* svm_pointer) {
  const Context* in = find(context);
  if (in == nullptr || svm_pointer == nullptr) return;
  Session* const session = in->session;
  Object* const owner = forget(svm_pointer);
  if (owner == nullptr) return;
  free_at_server(session, reinterpret_cast<uint64_t>(svm_pointer));
  unuse(owner);
}

cl_int clEnqueueSVMFree(cl_command_queue command_queue, cl_uint num_svm_pointers,
                        void** svm_pointers, cl_svm_notify pfn_free_func, void* user_data,
                        cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                        cl_event* event) {
  Command command(command_queue, num_events_in_wait_list, event_wait_list);
  if (!command.ok()) return command.forward.error();
  if (num_svm_pointers == 0 || svm_pointers == nullptr) return CL_INVALID_VALUE;
  for (cl_uint i = 0; i < num_svm_pointers; ++i)
    if (pfn_free_func == nullptr && !command.has(svm_pointers[i], 1)) return CL_INVALID_VALUE;
  cl_event mine = nullptr;
  const uint64_t id =
      command.forward.mint_if(pfn_free_func != nullptr ? &mine : event, CL_COMMAND_SVM_FREE);
  if (!command.ok()) return command.forward.error();
  if (pfn_free_func != nullptr) {
    auto wish = std::make_unique<Freeing>();
    wish->queue = command_queue;
    wish->pointers.assign(svm_pointers, svm_pointers + num_svm_pointers);
    wish->notify = pfn_free_func;
    wish->data = user_data;
    const cl_int result = free_by_program(&command, std::move(wish), id);
    command.end(result, &mine);
    if (event != nullptr)
      *event = mine;
    else if (mine != nullptr)
      (void)opencl::clReleaseEvent(mine);
    return result;
  }
  wire::opencl::shared_free_after_request request;
  std::vector<uint64_t> addresses;
  std::vector<Object*> owners;
  for (cl_uint i = 0; i < num_svm_pointers; ++i) {
    addresses.push_back(reinterpret_cast<uint64_t>(svm_pointers[i]));
    owners.push_back(forget(svm_pointers[i]));
  }
  request.queue = command.queue->wire_id;
  request.addresses = {addresses.data(), addresses.size()};
  request.event = id;
  request.wait = command.wait;
  const cl_int result = command.end(command.queue->session->enqueue(0, request), event);
  for (Object* owner : owners)
    if (owner != nullptr) unuse(owner);
  return result;
}

cl_int clEnqueueSVMMap(cl_command_queue command_queue, cl_bool blocking_map, cl_map_flags flags,
                       void* svm_ptr, size_t size, cl_uint num_events_in_wait_list,
                       const cl_event* event_wait_list, cl_event* event) {
  Command command(command_queue, num_events_in_wait_list, event_wait_list);
  if (!command.ok()) return command.forward.error();
  if (svm_ptr == nullptr || size == 0 || !command.has(svm_ptr, size)) return CL_INVALID_VALUE;
  command.forward.check(check_map_flags(flags));
  Copy copy = copy_of(command.queue, svm_ptr, svm_ptr, size);
  copy.event = command.forward.mint_if(event, CL_COMMAND_SVM_MAP);
  copy.wait = command.wait;
  copy.blocking = blocking_map != CL_FALSE;
  if (!command.ok()) return command.forward.error();
  const cl_int result = read_for_map(copy, flags);
  if (result == CL_SUCCESS) {
    const base::Locked held(shared().lock);
    shared().mappings.insert({svm_ptr, {size, flags}});
  }
  return command.end(result, event);
}

cl_int clEnqueueSVMUnmap(cl_command_queue command_queue, void* svm_ptr,
                         cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                         cl_event* event) {
  Command command(command_queue, num_events_in_wait_list, event_wait_list);
  if (!command.ok()) return command.forward.error();
  if (svm_ptr == nullptr || !command.has(svm_ptr, 1)) return CL_INVALID_VALUE;
  SharedMemories::Mapped mapped = {};
  {
    const base::Locked held(shared().lock);
    const auto found = shared().mappings.find(svm_ptr);
    if (found == shared().mappings.end()) return CL_INVALID_VALUE;
    mapped = found->second;
    shared().mappings.erase(found);
  }
  Copy copy = copy_of(command.queue, svm_ptr, svm_ptr, mapped.bytes);
  copy.event = command.forward.mint_if(event, CL_COMMAND_SVM_UNMAP);
  copy.wait = command.wait;
  if (!command.ok()) return command.forward.error();
  const bool writes = (mapped.flags & (CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION)) != 0;
  return command.end(writes ? write(copy) : wait_only(copy.queue, copy.event, copy.wait), event);
}

cl_int clEnqueueSVMMemFill(cl_command_queue command_queue, void* svm_ptr, const void* pattern,
                           size_t pattern_size, size_t size, cl_uint num_events_in_wait_list,
                           const cl_event* event_wait_list, cl_event* event) {
  Command command(command_queue, num_events_in_wait_list, event_wait_list);
  if (!command.ok()) return command.forward.error();
  const bool fits = is_pattern(pattern_size) && size != 0 && size % pattern_size == 0 &&
                    reinterpret_cast<uint64_t>(svm_ptr) % pattern_size == 0;
  if (svm_ptr == nullptr || pattern == nullptr || !fits || !command.has(svm_ptr, size))
    return CL_INVALID_VALUE;
  wire::opencl::shared_fill_request request;
  request.queue = command.queue->wire_id;
  request.address = reinterpret_cast<uint64_t>(svm_ptr);
  request.bytes = size;
  request.pattern = {static_cast<const uint8_t*>(pattern), pattern_size};
  request.event = command.forward.mint_if(event, CL_COMMAND_SVM_MEMFILL);
  request.wait = command.wait;
  if (!command.ok()) return command.forward.error();
  return command.end(command.queue->session->enqueue(0, request), event);
}

cl_int clEnqueueSVMMemcpy(cl_command_queue command_queue, cl_bool blocking_copy, void* dst_ptr,
                          const void* src_ptr, size_t size, cl_uint num_events_in_wait_list,
                          const cl_event* event_wait_list, cl_event* event) {
  Command command(command_queue, num_events_in_wait_list, event_wait_list);
  if (!command.ok()) return command.forward.error();
  if (dst_ptr == nullptr || src_ptr == nullptr || size == 0) return CL_INVALID_VALUE;
  const auto to = reinterpret_cast<uint64_t>(dst_ptr), from = reinterpret_cast<uint64_t>(src_ptr);
  if (to < from + size && from < to + size) return CL_MEM_COPY_OVERLAP;
  const bool into_shared = command.has(dst_ptr, size), from_shared = command.has(src_ptr, size);
  const uint64_t id = command.forward.mint_if(event, CL_COMMAND_SVM_MEMCPY);
  if (!command.ok()) return command.forward.error();
  const bool blocking = blocking_copy != CL_FALSE;
  if (into_shared != from_shared) {
    Copy copy = copy_of(command.queue, into_shared ? dst_ptr : src_ptr,
                        into_shared ? src_ptr : dst_ptr, size);
    copy.event = id;
    copy.wait = command.wait;
    copy.blocking = blocking;
    const cl_int result = into_shared ? write(copy) : read(copy);
    return command.end(result, event);
  }
  cl_int result = CL_SUCCESS;
  if (into_shared) {
    wire::opencl::shared_copy_request request;
    request.queue = command.queue->wire_id;
    request.to = to;
    request.from = from;
    request.bytes = size;
    request.event = id;
    request.wait = command.wait;
    result = command.queue->session->enqueue(0, request);
  } else {  // from the program's memory into the program's memory
    result = wait_only(command.queue, id, command.wait);
    if (result == CL_SUCCESS) result = wait_for_queue(command.queue);
    if (result == CL_SUCCESS) memcpy(dst_ptr, src_ptr, size);
  }
  if (result == CL_SUCCESS && blocking && into_shared) result = wait_for_queue(command.queue);
  return command.end(result, event);
}

// A hint. The memory stays where it is.
cl_int clEnqueueSVMMigrateMem(cl_command_queue command_queue, cl_uint num_svm_pointers,
                              const void** svm_pointers, const size_t* sizes,
                              cl_mem_migration_flags flags, cl_uint num_events_in_wait_list,
                              const cl_event* event_wait_list, cl_event* event) {
  constexpr cl_mem_migration_flags kKnown =
      CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED;
  Command command(command_queue, num_events_in_wait_list, event_wait_list);
  if (!command.ok()) return command.forward.error();
  if (num_svm_pointers == 0 || svm_pointers == nullptr || (flags & ~kKnown) != 0)
    return CL_INVALID_VALUE;
  for (cl_uint i = 0; i < num_svm_pointers; ++i)
    if (!command.has(svm_pointers[i], sizes != nullptr && sizes[i] != 0 ? sizes[i] : 1))
      return CL_INVALID_VALUE;
  const uint64_t id = command.forward.mint_if(event, CL_COMMAND_SVM_MIGRATE_MEM);
  if (!command.ok()) return command.forward.error();
  return command.end(wait_only(command.queue, id, command.wait), event);
}

cl_int clSetKernelExecInfo(cl_kernel kernel, cl_kernel_exec_info param_name,
                           size_t param_value_size, const void* param_value) {
  Kernel* found = find(kernel);
  if (found == nullptr) return CL_INVALID_KERNEL;
  // No addresses are a list, too.
  const bool none = param_value == nullptr && param_value_size == 0;
  if (none ? param_name != CL_KERNEL_EXEC_INFO_SVM_PTRS
           : param_value == nullptr || param_value_size == 0)
    return CL_INVALID_VALUE;
  if (param_name == CL_KERNEL_EXEC_INFO_SVM_FINE_GRAIN_SYSTEM) {
    cl_bool wanted = CL_FALSE;
    if (param_value_size != sizeof wanted) return CL_INVALID_VALUE;
    memcpy(&wanted, param_value, sizeof wanted);
    return wanted == CL_FALSE ? CL_SUCCESS : CL_INVALID_OPERATION;
  }
  if (param_name != CL_KERNEL_EXEC_INFO_SVM_PTRS || param_value_size % sizeof(void*) != 0)
    return CL_INVALID_VALUE;
  std::vector<uint64_t> addresses(param_value_size / sizeof(void*));
  if (!none) memcpy(addresses.data(), param_value, param_value_size);
  for (const uint64_t address : addresses)
    if (!is_shared(reinterpret_cast<const void*>(address), 1, found->context))
      return CL_INVALID_VALUE;
  wire::opencl::kernel_uses_shared_request request;
  wire::opencl::kernel_uses_shared_reply reply;
  request.kernel = found->wire_id;
  request.addresses = {addresses.data(), addresses.size()};
  return found->session->call(0, request, reply);
}

cl_int clSetKernelArgSVMPointer(cl_kernel kernel, cl_uint arg_index, const void* arg_value) {
  Kernel* found = find(kernel);
  if (found == nullptr) return CL_INVALID_KERNEL;
  if (arg_index >= found->argument_count) return CL_INVALID_ARG_INDEX;
  if (arg_value != nullptr && !is_shared(arg_value, 1, found->context)) return CL_INVALID_ARG_VALUE;
  return set_shared_argument(found, arg_index, arg_value);
}

}  // namespace tendril::client::opencl

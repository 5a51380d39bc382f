// SPDX-License-Identifier: Apache-2.0
// Contexts with devices of several servers, the ends of all objects in them, and what they do not
// have.
#include <algorithm>

#include "client/opencl/entry.h"
#include "client/opencl/information.h"
#include "client/opencl/spread/functions.h"
#include "client/opencl/spread/object.h"
#include "client/opencl/spread/spread.h"

namespace tendril::client::opencl::spread {
namespace {

// The servers of these devices, in the order in which they appear.
bool find_members(const std::vector<Device*>& devices, std::vector<Member>* members) {
  for (Device* device : devices) {
    Member* mine = nullptr;
    for (Member& each : *members)
      if (each.session == device->session) mine = &each;
    if (mine == nullptr) {
      if (members->size() == kMembersMax) return false;
      members->emplace_back();
      mine = &members->back();
      mine->session = device->session;
    }
    mine->devices.push_back(handle_of<cl_device_id>(device));
  }
  return true;
}

// What buffers are checked against. Round trips, here and not for each buffer.
cl_int ask_devices(Context* context) {
  constexpr uint64_t kBits = 8;
  context->buffer_bytes_max = 0;
  context->part_align_bytes = UINT64_MAX;
  for (Device* device : context->devices) {
    const auto handle = handle_of<cl_device_id>(device);
    cl_ulong most = 0;
    cl_uint align = 0;
    cl_int result =
        opencl::clGetDeviceInfo(handle, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof most, &most, nullptr);
    if (result == CL_SUCCESS)
      result = opencl::clGetDeviceInfo(handle, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof align, &align,
                                       nullptr);
    if (result != CL_SUCCESS) return result;
    context->buffer_bytes_max = std::max<uint64_t>(context->buffer_bytes_max, most);
    context->part_align_bytes =
        std::min<uint64_t>(context->part_align_bytes, std::max<uint64_t>(1, align / kBits));
  }
  return CL_SUCCESS;
}

}  // namespace

Tables& tables() { return process()->spread.get(); }

bool is_spread(const void* handle) {
  return handle != nullptr && static_cast<const Handle*>(handle)->table == kTable;
}

cl_context make_context(const cl_context_properties* properties,
                        const std::vector<Device*>& devices, cl_int* result) {
  std::vector<Member> members;
  if (!find_members(devices, &members)) {
    *result = CL_OUT_OF_RESOURCES;
    return nullptr;
  }
  Context* context = create<cl_context>(nullptr);
  if (context == nullptr) {
    *result = CL_OUT_OF_HOST_MEMORY;
    return nullptr;
  }
  context->devices = devices;
  for (Device* device : devices) use(device);
  context->destructors.clear();
  context->properties.clear();
  for (size_t i = 0; properties != nullptr && properties[i] != 0; i += 2)
    context->properties.insert(context->properties.end(), {properties[i], properties[i + 1]});
  if (properties != nullptr) context->properties.push_back(0);
  context->members = std::move(members);
  *result = CL_SUCCESS;
  for (Member& each : context->members)
    if (*result == CL_SUCCESS)
      each.context = opencl::clCreateContext(properties, static_cast<cl_uint>(each.devices.size()),
                                             each.devices.data(), nullptr, nullptr, result);
  if (*result == CL_SUCCESS) *result = ask_devices(context);
  if (*result == CL_SUCCESS) return handle_of<cl_context>(context);
  release(context);
  return nullptr;
}

namespace {

void end_context(Context* context) {
  for (const auto& [member, queue] : context->idle) opencl::clReleaseCommandQueue(queue);
  context->idle.clear();
  for (Member& each : context->members) {
    if (each.incoming != nullptr) opencl::clReleaseCommandQueue(each.incoming);
    if (each.context != nullptr) opencl::clReleaseContext(each.context);
  }
  context->members.clear();
}

void end_event(Event* event) {
  if (event->real != nullptr) opencl::clReleaseEvent(event->real);
  for (const auto& [member, its] : event->elsewhere) opencl::clReleaseEvent(its);
  event->elsewhere.clear();
}

// The program's functions are called when the last member has ended.
struct Ending {
  cl_mem memory;
  std::vector<std::pair<cl_mem_notify, void*>> endings;
  std::atomic<size_t> left;
};
void member_ended(cl_mem, void* argument) {
  auto* ending = static_cast<Ending*>(argument);
  if (ending->left.fetch_sub(1) != 1) return;
  for (auto each = ending->endings.rbegin(); each != ending->endings.rend(); ++each)
    each->first(ending->memory, each->second);
  delete ending;
}

void end_memory(Memory* memory) {
  if (!memory->endings.empty()) {
    auto* ending = new Ending{handle_of<cl_mem>(memory), {}, {1}};
    ending->endings.swap(memory->endings);
    for (cl_mem each : memory->at) {
      if (each == nullptr) continue;
      ending->left.fetch_add(1);
      if (opencl::clSetMemObjectDestructorCallback(each, &member_ended, ending) != CL_SUCCESS)
        member_ended(each, ending);
    }
    member_ended(nullptr, ending);
  }
  for (Piece& piece : memory->pieces) forget_writers(&piece);
  memory->pieces.clear();
  memory->kept.reset();
  for (cl_mem each : memory->at)
    if (each != nullptr) opencl::clReleaseMemObject(each);
  memory->at.clear();
}

}  // namespace

void end_members(Object* object) {
  switch (api::id_kind<Kind>(object->handle.load(std::memory_order_acquire))) {
    case Kind::kContext:
      return end_context(static_cast<Context*>(object));
    case Kind::kQueue:
      if (cl_command_queue real = static_cast<Queue*>(object)->real; real != nullptr)
        opencl::clReleaseCommandQueue(real);
      return;
    case Kind::kMemory:
      return end_memory(static_cast<Memory*>(object));
    case Kind::kProgram:
      for (cl_program each : static_cast<Program*>(object)->at)
        if (each != nullptr) opencl::clReleaseProgram(each);
      return;
    case Kind::kKernel:
      for (const Kernel::At& each : static_cast<Kernel*>(object)->at)
        if (each.real != nullptr) opencl::clReleaseKernel(each.real);
      return;
    case Kind::kEvent:
      return end_event(static_cast<Event*>(object));
    case Kind::kSampler:
      for (cl_sampler each : static_cast<Sampler*>(object)->at)
        if (each != nullptr) opencl::clReleaseSampler(each);
      return;
    default:
      return;
  }
}

void destroy(Object* object) { destroy_in(tables(), object); }

bool member_of(const Context& context, cl_device_id device, uint32_t* member) {
  const Device* on = opencl::find(device);
  *member = 0;
  while (*member < context.members.size() &&
         (on == nullptr || context.members[*member].session != on->session))
    ++*member;
  return *member != context.members.size();
}

cl_int ask(const Context& context, cl_context_info parameter, const Wanted& wanted) {
  return opencl::clGetContextInfo(context.members[0].context, parameter, wanted.room, wanted.value,
                                  wanted.length);
}

namespace {
constexpr char kWhy[] = "the context has devices of several servers, which share no addresses";
}  // namespace

void* clSVMAlloc(cl_context, cl_svm_mem_flags, size_t, cl_uint) {
  return refused("clSVMAlloc", kWhy, nullptr);
}
void clSVMFree(cl_context, void*) {}
cl_int clEnqueueSVMFree(cl_command_queue, cl_uint, void**, cl_svm_notify, void*, cl_uint,
                        const cl_event*, cl_event*) {
  return refused("clEnqueueSVMFree", kWhy, nullptr);
}
cl_int clEnqueueSVMMemcpy(cl_command_queue, cl_bool, void*, const void*, size_t, cl_uint,
                          const cl_event*, cl_event*) {
  return refused("clEnqueueSVMMemcpy", kWhy, nullptr);
}
cl_int clEnqueueSVMMemFill(cl_command_queue, void*, const void*, size_t, size_t, cl_uint,
                           const cl_event*, cl_event*) {
  return refused("clEnqueueSVMMemFill", kWhy, nullptr);
}
cl_int clEnqueueSVMMap(cl_command_queue, cl_bool, cl_map_flags, void*, size_t, cl_uint,
                       const cl_event*, cl_event*) {
  return refused("clEnqueueSVMMap", kWhy, nullptr);
}
cl_int clEnqueueSVMUnmap(cl_command_queue, void*, cl_uint, const cl_event*, cl_event*) {
  return refused("clEnqueueSVMUnmap", kWhy, nullptr);
}
cl_int clEnqueueSVMMigrateMem(cl_command_queue, cl_uint, const void**, const size_t*,
                              cl_mem_migration_flags, cl_uint, const cl_event*, cl_event*) {
  return refused("clEnqueueSVMMigrateMem", kWhy, nullptr);
}
cl_int clSetKernelArgSVMPointer(cl_kernel, cl_uint, const void*) {
  return refused("clSetKernelArgSVMPointer", kWhy, nullptr);
}
cl_int clSetKernelExecInfo(cl_kernel, cl_kernel_exec_info, size_t, const void*) {
  return refused("clSetKernelExecInfo", kWhy, nullptr);
}
cl_mem clCreatePipe(cl_context, cl_mem_flags, cl_uint, cl_uint, const cl_pipe_properties*,
                    cl_int* errcode_ret) {
  return refused("clCreatePipe", "the context has devices of several servers", errcode_ret);
}
cl_int clGetPipeInfo(cl_mem, cl_pipe_info, size_t, void*, size_t*) { return CL_INVALID_MEM_OBJECT; }

}  // namespace tendril::client::opencl::spread

// SPDX-License-Identifier: Apache-2.0
// Contexts, and the end of any object.
#include <algorithm>

#include "api/opencl_handlers.gen.h"
#include "worker/opencl/executor.h"
#include "worker/opencl/scope.h"

namespace tendril::worker::opencl {
namespace {

template <typename T, typename Release>
cl_int release_object(void* object, Release* release) {
  return release != nullptr ? release(static_cast<T>(object)) : CL_INVALID_OPERATION;
}

}  // namespace

cl_int handle(Executor& w, const wire::opencl::context_create_request& m,
              wire::opencl::context_create_reply&) {
  Scope scope(w);
  scope.reserve(Kind::kContext, m.context);
  const cl_device_id* devices = scope.handles<cl_device_id>(Kind::kDevice, m.devices);
  if (!scope.ok()) return scope.error();
  if (m.devices.count == 0 || m.properties.count > kPropertiesMax) return CL_INVALID_VALUE;
  // The driver wants each device once; a program may have several slices of one.
  std::vector<cl_device_id> distinct;
  std::vector<uint32_t> slots;
  for (uint64_t i = 0; i < m.devices.count; ++i) {
    if (std::find(distinct.begin(), distinct.end(), devices[i]) != distinct.end()) continue;
    const uint32_t slot = w.slot_of(devices[i]);
    if (slot >= w.devices().size()) return CL_INVALID_DEVICE;
    distinct.push_back(devices[i]);
    if (std::find(slots.begin(), slots.end(), slot) == slots.end()) slots.push_back(slot);
  }
  std::vector<cl_context_properties> properties = {
      CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(w.devices()[slots[0]].platform)};
  for (uint64_t i = 0; i + 1 < m.properties.count && m.properties[i] != 0; i += 2) {
    properties.push_back(static_cast<cl_context_properties>(m.properties[i]));
    properties.push_back(static_cast<cl_context_properties>(m.properties[i + 1]));
  }
  properties.push_back(0);
  cl_int result = CL_SUCCESS;
  cl_context context =
      w.driver().clCreateContext(properties.data(), static_cast<cl_uint>(distinct.size()),
                                 distinct.data(), nullptr, nullptr, &result);
  if (result != CL_SUCCESS) return result;
  w.context_slots()[context] = slots;
  scope.bind(Kind::kContext, m.context, context);
  return result;
}

cl_int handle(Executor& w, const wire::opencl::release_request& m) {
  const Kind kind = api::opencl::id_kind(m.object);
  if (kind == Kind::kNone || kind >= Kind::kCount) return CL_INVALID_VALUE;
  // The session's own devices stay.
  if (kind == Kind::kDevice &&
      !w.part_ends(static_cast<cl_device_id>(w.objects().find(kind, m.object))))
    return CL_INVALID_DEVICE;
  void* object = w.objects().unbind(kind, m.object);
  if (object == nullptr) return api::opencl::error_of(kind);
  const gpu::OpenclDriver& driver = w.driver();
  switch (kind) {
    case Kind::kContext:
      w.context_slots().erase(static_cast<cl_context>(object));
      return release_object<cl_context>(object, driver.clReleaseContext);
    case Kind::kQueue:
      w.gate().queue_ends(static_cast<cl_command_queue>(object));
      if (QueueState* queue = w.queue(m.object)) {
        w.forget_last(queue);
        w.let_go_of_holders(queue);
      }
      w.queues().erase(m.object);
      return release_object<cl_command_queue>(object, driver.clReleaseCommandQueue);
    case Kind::kMemory:
      w.uncharge(m.object);
      return release_object<cl_mem>(object, driver.clReleaseMemObject);
    case Kind::kProgram:
      w.included().erase(m.object);
      return release_object<cl_program>(object, driver.clReleaseProgram);
    case Kind::kKernel:
      return release_object<cl_kernel>(object, driver.clReleaseKernel);
    case Kind::kEvent:
      w.forget_event(m.object);
      return release_object<cl_event>(object, driver.clReleaseEvent);
    case Kind::kSampler:
      return release_object<cl_sampler>(object, driver.clReleaseSampler);
    case Kind::kDevice:
      return release_object<cl_device_id>(object, driver.clReleaseDevice);
    case Kind::kNone:
    case Kind::kCount:
      break;
  }
  return CL_INVALID_VALUE;
}

}  // namespace tendril::worker::opencl

// SPDX-License-Identifier: Apache-2.0
// Contexts.
#include "api/opencl_bodies.gen.h"
#include "client/common/log.h"
#include "client/opencl/information.h"

namespace tendril::client::opencl {
namespace {

// The program's properties without the platform, which must be one of ours.
cl_int properties_for_server(const cl_context_properties* properties, Context* context,
                             const Platform* platform, std::vector<uint64_t>* sent) {
  for (size_t i = 0; properties != nullptr && properties[i] != 0; i += 2) {
    for (size_t j = 0; j < i; j += 2)
      if (properties[j] == properties[i]) return CL_INVALID_PROPERTY;
    context->properties.push_back(properties[i]);
    context->properties.push_back(properties[i + 1]);
    if (properties[i] == CL_CONTEXT_PLATFORM) {
      if (properties[i + 1] != reinterpret_cast<cl_context_properties>(&platform->shown))
        return CL_INVALID_PLATFORM;
      continue;
    }
    sent->push_back(static_cast<uint64_t>(properties[i]));
    sent->push_back(static_cast<uint64_t>(properties[i + 1]));
  }
  if (properties != nullptr) context->properties.push_back(0);
  sent->push_back(0);
  return CL_SUCCESS;
}

void tell_of_servers(const Session& one, const Session& other) {
  if (&one == &other) return;  // two platforms of one machine, as natively
  log_once(LogLevel::kError,
           "a context cannot have devices of two servers, %s and %s: make a context for each, or "
           "lease devices of one server (tendril run -n COUNT with one server named)",
           one.endpoint.c_str(), other.endpoint.c_str());
}

Context* make(const cl_context_properties* properties, const std::vector<Device*>& devices,
              cl_int* result) {
  const Platform* platform = devices.front()->platform;
  Context* context = create<cl_context>(platform->session, nullptr);
  if (context == nullptr) {
    *result = CL_OUT_OF_HOST_MEMORY;
    return nullptr;
  }
  context->devices = devices;
  for (Device* device : devices) use(device);
  context->properties.clear();
  context->destructors.clear();
  std::vector<uint64_t> sent, ids;
  for (Device* device : devices) ids.push_back(device->wire_id);
  *result = properties_for_server(properties, context, platform, &sent);
  if (*result == CL_SUCCESS) {
    wire::opencl::context_create_request request;
    wire::opencl::context_create_reply reply;
    request.context = context->wire_id;
    request.devices = {ids.data(), ids.size()};
    request.properties = {sent.data(), sent.size()};
    *result = platform->session->call(0, request, reply);
  }
  if (*result == CL_SUCCESS) return context;
  discard(context);
  return nullptr;
}

}  // namespace

// The server tells nothing unasked about a context, so `pfn_notify` is never called.
cl_context clCreateContext(const cl_context_properties* properties, cl_uint num_devices,
                           const cl_device_id* devices, cl_context_notify pfn_notify,
                           void* user_data, cl_int* errcode_ret) {
  if (devices == nullptr || num_devices == 0 || (pfn_notify == nullptr && user_data != nullptr))
    return give<cl_context>(CL_INVALID_VALUE, errcode_ret);
  std::vector<Device*> found;
  for (cl_uint i = 0; i < num_devices; ++i) {
    Device* device = find(devices[i]);
    if (device == nullptr) return give<cl_context>(CL_INVALID_DEVICE, errcode_ret);
    found.push_back(device);
    if (device->platform == found[0]->platform) continue;
    tell_of_servers(*found[0]->session, *device->session);
    return give<cl_context>(CL_INVALID_DEVICE, errcode_ret);
  }
  cl_int result = CL_SUCCESS;
  Context* context = make(properties, found, &result);
  return give<cl_context>(result, errcode_ret, context);
}

cl_context clCreateContextFromType(const cl_context_properties* properties,
                                   cl_device_type device_type, cl_context_notify pfn_notify,
                                   void* user_data, cl_int* errcode_ret) {
  cl_platform_id platform = nullptr;
  for (size_t i = 0; properties != nullptr && properties[i] != 0; i += 2)
    if (properties[i] == CL_CONTEXT_PLATFORM)
      platform = reinterpret_cast<cl_platform_id>(properties[i + 1]);
  if (pfn_notify == nullptr && user_data != nullptr)
    return give<cl_context>(CL_INVALID_VALUE, errcode_ret);
  cl_uint count = 0;
  cl_int result = clGetDeviceIDs(platform, device_type, 0, nullptr, &count);
  if (result != CL_SUCCESS) return give<cl_context>(result, errcode_ret);
  std::vector<cl_device_id> devices(count);
  result = clGetDeviceIDs(platform, device_type, count, devices.data(), nullptr);
  if (result != CL_SUCCESS) return give<cl_context>(result, errcode_ret);
  return clCreateContext(properties, count, devices.data(), pfn_notify, user_data, errcode_ret);
}

cl_int clRetainContext(cl_context context) { return retain_handle(context); }
cl_int clReleaseContext(cl_context context) { return release_handle(context); }

cl_int clGetContextInfo(cl_context context, cl_context_info param_name, size_t param_value_size,
                        void* param_value, size_t* param_value_size_ret) {
  const Wanted answer = {param_value_size, param_value, param_value_size_ret};
  const Context* found = find(context);
  if (found == nullptr) return CL_INVALID_CONTEXT;
  switch (param_name) {
    case CL_CONTEXT_REFERENCE_COUNT:
      return answer.one(cl_uint{found->references.load()});
    case CL_CONTEXT_NUM_DEVICES:
      return answer.one(static_cast<cl_uint>(found->devices.size()));
    case CL_CONTEXT_PROPERTIES:
      return answer.list(found->properties);
    case CL_CONTEXT_DEVICES: {
      std::vector<cl_device_id> devices;
      for (Device* device : found->devices) devices.push_back(handle_of<cl_device_id>(device));
      return answer.list(devices);
    }
    default:
      return ask_server({found->session, wire::opencl::Subject::kContext, found->wire_id},
                        param_name, answer);
  }
}

cl_int clSetContextDestructorCallback(cl_context context, cl_context_destructor pfn_notify,
                                      void* user_data) {
  Context* found = find(context);
  if (found == nullptr) return CL_INVALID_CONTEXT;
  if (pfn_notify == nullptr) return CL_INVALID_VALUE;
  found->destructors.emplace_back(pfn_notify, user_data);
  return CL_SUCCESS;
}

}  // namespace tendril::client::opencl

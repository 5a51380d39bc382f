// SPDX-License-Identifier: Apache-2.0
// Contexts.
#include "api/opencl_bodies.gen.h"
#include "client/opencl/information.h"
#include "client/opencl/spread/spread.h"

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

Context* make(const cl_context_properties* properties, const std::vector<Device*>& devices,
              cl_int* result) {
  const Platform* platform = devices.front()->platform;
  Session* session = devices.front()->session;
  Context* context = create<cl_context>(session, nullptr);
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
    *result = session->call(0, request, reply);
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
  bool one_server = true;
  for (cl_uint i = 0; i < num_devices; ++i) {
    Device* device = find(devices[i]);
    if (device == nullptr || (i != 0 && device->platform != found[0]->platform))
      return give<cl_context>(CL_INVALID_DEVICE, errcode_ret);
    found.push_back(device);
    one_server = one_server && device->session == found[0]->session;
  }
  cl_int result = CL_SUCCESS;
  if (!one_server) {
    const cl_context made = spread::make_context(properties, found, &result);
    if (errcode_ret != nullptr) *errcode_ret = result;
    return made;
  }
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

bool answer_of_context(const Context& context, cl_context_info parameter, const Wanted& answer,
                       cl_int* result) {
  switch (parameter) {
    case CL_CONTEXT_REFERENCE_COUNT:
      *result = answer.one(cl_uint{context.references.load()});
      return true;
    case CL_CONTEXT_NUM_DEVICES:
      *result = answer.one(static_cast<cl_uint>(context.devices.size()));
      return true;
    case CL_CONTEXT_PROPERTIES:
      *result = answer.list(context.properties);
      return true;
    case CL_CONTEXT_DEVICES: {
      std::vector<cl_device_id> devices;
      for (Device* device : context.devices) devices.push_back(handle_of<cl_device_id>(device));
      *result = answer.list(devices);
      return true;
    }
    default:
      return false;
  }
}

cl_int ask(const Context& context, cl_context_info parameter, const Wanted& wanted) {
  return ask_server({context.session, wire::opencl::Subject::kContext, context.wire_id}, parameter,
                    wanted);
}

}  // namespace tendril::client::opencl

// SPDX-License-Identifier: Apache-2.0
// Programs of contexts over several servers. Each is a program at every server that has one of its
// devices. Servers build one after the other.
#include <string.h>

#include <algorithm>

#include "client/opencl/information.h"
#include "client/opencl/program.h"
#include "client/opencl/spread/functions.h"
#include "client/opencl/spread/object.h"

namespace tendril::client::opencl::spread {
namespace {

// The members' own parts of a list of devices.
std::vector<std::vector<cl_device_id>> by_member(const Context& context,
                                                 const std::vector<Device*>& devices) {
  std::vector<std::vector<cl_device_id>> all(context.members.size());
  for (Device* device : devices)
    for (size_t i = 0; i < all.size(); ++i)
      if (context.members[i].session == device->session)
        all[i].push_back(handle_of<cl_device_id>(device));
  return all;
}

// `make(member, devices, &error)` makes each ordinary one.
template <typename Make>
cl_program make_all(Context* in, const std::vector<Device*>& devices, cl_int* errcode_ret,
                    Make&& make) {
  Program* program = create<cl_program>(in);
  if (program == nullptr) return give<cl_program>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  program->devices = devices;
  program->source.clear();
  program->from_source = false;
  program->kernels.store(0);
  program->at.assign(in->members.size(), nullptr);
  const auto parts = by_member(*in, devices);
  cl_int result = CL_SUCCESS;
  for (size_t i = 0; i < parts.size() && result == CL_SUCCESS; ++i)
    if (!parts[i].empty()) program->at[i] = make(i, parts[i], &result);
  if (result != CL_SUCCESS) release(program);
  return give<cl_program>(result, errcode_ret, program);
}

// What is built: at each member the devices that the program named there, or all.
struct Build {
  std::vector<std::vector<cl_device_id>> devices;  // by member
  cl_int result = CL_SUCCESS;

  Build(const Context& context, const std::vector<Device*>& all, cl_uint count,
        const cl_device_id* list, cl_program_notify notify, const void* data) {
    std::vector<Device*> named;
    result = notify == nullptr && data != nullptr ? CL_INVALID_VALUE
                                                  : devices_of(all, count, list, &named);
    devices = by_member(context, named);
  }
  // `build(member, count, list)` for each that takes part. The first error is the answer, and the
  // others are built all the same.
  template <typename Each>
  cl_int run(Each&& build) {
    for (size_t i = 0; i < devices.size(); ++i) {
      if (devices[i].empty()) continue;
      const cl_int its = build(i, static_cast<cl_uint>(devices[i].size()), devices[i].data());
      if (result == CL_SUCCESS) result = its;
    }
    return result;
  }
};

// What the program at a member answers, for all members, one after the other.
template <typename T>
cl_int from_all(const Program& program, cl_program_info what, std::vector<T>* all) {
  for (cl_program each : program.at) {
    if (each == nullptr) continue;
    size_t bytes = 0;
    cl_int result = opencl::clGetProgramInfo(each, what, 0, nullptr, &bytes);
    std::vector<T> its(bytes / sizeof(T));
    if (result == CL_SUCCESS)
      result = opencl::clGetProgramInfo(each, what, bytes, its.data(), nullptr);
    if (result != CL_SUCCESS) return result;
    all->insert(all->end(), its.begin(), its.end());
  }
  return CL_SUCCESS;
}

// Whether a server has built or compiled it, or tried to.
bool is_begun(const Program& program) {
  for (Device* device : program.devices) {
    const auto handle = handle_of<cl_device_id>(device);
    uint32_t member = 0;
    cl_build_status status = CL_BUILD_NONE;
    if (member_of(*context_of(&program), handle, &member))
      (void)opencl::clGetProgramBuildInfo(program.at[member], handle, CL_PROGRAM_BUILD_STATUS,
                                          sizeof status, &status, nullptr);
    if (status != CL_BUILD_NONE) return true;
  }
  return false;
}

// The place of each device of the program in the lists of `from_all`.
std::vector<size_t> places_of(const Program& program) {
  const auto parts = by_member(*context_of(&program), program.devices);
  std::vector<size_t> places;
  std::vector<size_t> next(parts.size());
  for (const Device* device : program.devices) {
    size_t before = 0, member = 0;
    while (context_of(&program)->members[member].session != device->session)
      before += parts[member++].size();
    places.push_back(before + next[member]++);
  }
  return places;
}

cl_int binary_sizes(const Program& program, const Wanted& answer) {
  std::vector<size_t> all, ordered;
  const cl_int result = from_all(program, CL_PROGRAM_BINARY_SIZES, &all);
  if (result != CL_SUCCESS) return result;
  for (const size_t place : places_of(program))
    ordered.push_back(place < all.size() ? all[place] : 0);
  return answer.list(ordered);
}

// Each of the program's pointers gets one device's binary.
cl_int binaries(const Program& program, const Wanted& answer) {
  const std::vector<size_t> places = places_of(program);
  const size_t needed = places.size() * sizeof(unsigned char*);
  if (answer.length != nullptr) *answer.length = needed;
  if (answer.value == nullptr) return CL_SUCCESS;
  if (answer.room < needed) return CL_INVALID_VALUE;
  std::vector<unsigned char*> ordered(places.size());
  auto* const given = static_cast<unsigned char**>(answer.value);
  for (size_t i = 0; i < places.size(); ++i) ordered[places[i]] = given[i];
  const auto parts = by_member(*context_of(&program), program.devices);
  size_t at = 0;
  for (size_t i = 0; i < parts.size(); at += parts[i].size(), ++i) {
    if (parts[i].empty()) continue;
    const cl_int result =
        opencl::clGetProgramInfo(program.at[i], CL_PROGRAM_BINARIES,
                                 parts[i].size() * sizeof(unsigned char*), &ordered[at], nullptr);
    if (result != CL_SUCCESS) return result;
  }
  return CL_SUCCESS;
}

}  // namespace

cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char** strings,
                                     const size_t* lengths, cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_program>(CL_INVALID_CONTEXT, errcode_ret);
  const cl_program made = make_all(in, in->devices, errcode_ret,
                                   [&](size_t i, const std::vector<cl_device_id>&, cl_int* error) {
                                     return opencl::clCreateProgramWithSource(
                                         in->members[i].context, count, strings, lengths, error);
                                   });
  if (Program* program = find(made); program != nullptr) {
    program->source = opencl::find(program->at[0])->source;
    program->from_source = true;
  }
  return made;
}

cl_program clCreateProgramWithIL(cl_context context, const void* il, size_t length,
                                 cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_program>(CL_INVALID_CONTEXT, errcode_ret);
  return make_all(in, in->devices, errcode_ret,
                  [&](size_t i, const std::vector<cl_device_id>&, cl_int* error) {
                    return opencl::clCreateProgramWithIL(in->members[i].context, il, length, error);
                  });
}

cl_program clCreateProgramWithBuiltInKernels(cl_context context, cl_uint num_devices,
                                             const cl_device_id* device_list,
                                             const char* kernel_names, cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_program>(CL_INVALID_CONTEXT, errcode_ret);
  if (num_devices == 0) return give<cl_program>(CL_INVALID_VALUE, errcode_ret);
  std::vector<Device*> devices;
  const cl_int result = devices_of(in->devices, num_devices, device_list, &devices);
  if (result != CL_SUCCESS) return give<cl_program>(result, errcode_ret);
  return make_all(
      in, devices, errcode_ret, [&](size_t i, const std::vector<cl_device_id>& its, cl_int* error) {
        return opencl::clCreateProgramWithBuiltInKernels(in->members[i].context,
                                                         static_cast<cl_uint>(its.size()),
                                                         its.data(), kernel_names, error);
      });
}

cl_program clCreateProgramWithBinary(cl_context context, cl_uint num_devices,
                                     const cl_device_id* device_list, const size_t* lengths,
                                     const unsigned char** binaries, cl_int* binary_status,
                                     cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_program>(CL_INVALID_CONTEXT, errcode_ret);
  if (num_devices == 0 || lengths == nullptr || binaries == nullptr)
    return give<cl_program>(CL_INVALID_VALUE, errcode_ret);
  std::vector<Device*> devices;
  const cl_int result = devices_of(in->devices, num_devices, device_list, &devices);
  if (result != CL_SUCCESS) return give<cl_program>(result, errcode_ret);
  return make_all(in, devices, errcode_ret,
                  [&](size_t i, const std::vector<cl_device_id>& its, cl_int* error) {
                    std::vector<size_t> its_lengths, places;
                    std::vector<const unsigned char*> its_binaries;
                    std::vector<cl_int> status(its.size());
                    for (size_t at = 0; at < devices.size(); ++at) {
                      if (devices[at]->session != in->members[i].session) continue;
                      its_lengths.push_back(lengths[at]);
                      its_binaries.push_back(binaries[at]);
                      places.push_back(at);
                    }
                    const cl_program made = opencl::clCreateProgramWithBinary(
                        in->members[i].context, static_cast<cl_uint>(its.size()), its.data(),
                        its_lengths.data(), its_binaries.data(), status.data(), error);
                    for (size_t at = 0; binary_status != nullptr && at < places.size(); ++at)
                      binary_status[places[at]] = status[at];
                    return made;
                  });
}

cl_int clSetProgramSpecializationConstant(cl_program program, cl_uint spec_id, size_t spec_size,
                                          const void* spec_value) {
  const Program* found = find(program);
  if (found == nullptr) return CL_INVALID_PROGRAM;
  cl_int result = CL_SUCCESS;
  for (cl_program each : found->at)
    if (each != nullptr && result == CL_SUCCESS)
      result = opencl::clSetProgramSpecializationConstant(each, spec_id, spec_size, spec_value);
  return result;
}

cl_int clBuildProgram(cl_program program, cl_uint num_devices, const cl_device_id* device_list,
                      const char* options, cl_program_notify pfn_notify, void* user_data) {
  Program* found = find(program);
  if (found == nullptr) return CL_INVALID_PROGRAM;
  Build build(*context_of(found), found->devices, num_devices, device_list, pfn_notify, user_data);
  if (build.result != CL_SUCCESS) return build.result;
  if (found->kernels.load() != 0) return CL_INVALID_OPERATION;
  const cl_int result = build.run([&](size_t i, cl_uint count, const cl_device_id* list) {
    return opencl::clBuildProgram(found->at[i], count, list, options, nullptr, nullptr);
  });
  if (pfn_notify == nullptr) return result;
  pfn_notify(program, user_data);
  return result == CL_BUILD_PROGRAM_FAILURE ? CL_SUCCESS : result;
}

namespace {

// The members' own programs of a list. False: one of them is none of this context.
bool programs_at(cl_uint count, const cl_program* list, const Object* context, size_t member,
                 std::vector<cl_program>* all) {
  for (cl_uint i = 0; i < count; ++i) {
    const Program* each = find(list[i]);
    if (each == nullptr || each->context != context || each->at[member] == nullptr) return false;
    all->push_back(each->at[member]);
  }
  return true;
}

}  // namespace

cl_int clCompileProgram(cl_program program, cl_uint num_devices, const cl_device_id* device_list,
                        const char* options, cl_uint num_input_headers,
                        const cl_program* input_headers, const char** header_include_names,
                        cl_program_notify pfn_notify, void* user_data) {
  Program* found = find(program);
  if (found == nullptr) return CL_INVALID_PROGRAM;
  Build build(*context_of(found), found->devices, num_devices, device_list, pfn_notify, user_data);
  if (build.result != CL_SUCCESS) return build.result;
  if ((num_input_headers != 0) != (input_headers != nullptr)) return CL_INVALID_VALUE;
  if (found->kernels.load() != 0) return CL_INVALID_OPERATION;
  const cl_int result = build.run([&](size_t i, cl_uint count, const cl_device_id* list) {
    std::vector<cl_program> headers;
    if (!programs_at(num_input_headers, input_headers, found->context, i, &headers))
      return CL_INVALID_PROGRAM;
    return opencl::clCompileProgram(found->at[i], count, list, options, num_input_headers,
                                    headers.empty() ? nullptr : headers.data(),
                                    header_include_names, nullptr, nullptr);
  });
  if (pfn_notify == nullptr) return result;
  pfn_notify(program, user_data);
  return result == CL_COMPILE_PROGRAM_FAILURE ? CL_SUCCESS : result;
}

cl_program clLinkProgram(cl_context context, cl_uint num_devices, const cl_device_id* device_list,
                         const char* options, cl_uint num_input_programs,
                         const cl_program* input_programs, cl_program_notify pfn_notify,
                         void* user_data, cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_program>(CL_INVALID_CONTEXT, errcode_ret);
  std::vector<Device*> devices;
  cl_int result = devices_of(in->devices, num_devices, device_list, &devices);
  if (result == CL_SUCCESS && (num_input_programs == 0 || input_programs == nullptr ||
                               (pfn_notify == nullptr && user_data != nullptr)))
    result = CL_INVALID_VALUE;
  if (result != CL_SUCCESS) return give<cl_program>(result, errcode_ret);
  const cl_program made = make_all(
      in, devices, errcode_ret, [&](size_t i, const std::vector<cl_device_id>& its, cl_int* error) {
        std::vector<cl_program> inputs;
        *error = CL_INVALID_PROGRAM;
        if (!programs_at(num_input_programs, input_programs, in, i, &inputs))
          return cl_program{nullptr};
        return opencl::clLinkProgram(in->members[i].context, static_cast<cl_uint>(its.size()),
                                     its.data(), options, num_input_programs, inputs.data(),
                                     nullptr, nullptr, error);
      });
  if (pfn_notify != nullptr) pfn_notify(made, user_data);
  return made;
}

cl_int ask(const Program& program, cl_program_info parameter, const Wanted& wanted) {
  if (parameter == CL_PROGRAM_BINARY_SIZES) return binary_sizes(program, wanted);
  if (parameter == CL_PROGRAM_BINARIES) return binaries(program, wanted);
  // The names of kernels and the like are those of the first server that can say them.
  cl_int result = CL_INVALID_PROGRAM;
  for (cl_program each : program.at) {
    if (each == nullptr) continue;
    result = opencl::clGetProgramInfo(each, parameter, wanted.room, wanted.value, wanted.length);
    if (result != CL_INVALID_PROGRAM_EXECUTABLE) break;
  }
  return result;
}

cl_int clGetProgramBuildInfo(cl_program program, cl_device_id device,
                             cl_program_build_info param_name, size_t param_value_size,
                             void* param_value, size_t* param_value_size_ret) {
  const Program* found = find(program);
  if (found == nullptr) return CL_INVALID_PROGRAM;
  const Device* on = opencl::find(device);
  if (on == nullptr ||
      std::find(found->devices.begin(), found->devices.end(), on) == found->devices.end())
    return CL_INVALID_DEVICE;
  uint32_t member = 0;
  if (!member_of(*context_of(found), device, &member)) return CL_INVALID_DEVICE;
  const cl_int result = opencl::clGetProgramBuildInfo(
      found->at[member], device, param_name, param_value_size, param_value, param_value_size_ret);
  // A driver may have no log of a program that it did not build. Another server has built it.
  if (result == CL_INVALID_PROGRAM && param_name == CL_PROGRAM_BUILD_LOG && is_begun(*found))
    return Wanted{param_value_size, param_value, param_value_size_ret}.text("");
  return result;
}

}  // namespace tendril::client::opencl::spread

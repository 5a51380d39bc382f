// SPDX-License-Identifier: Apache-2.0
// Programs. Building waits for the server; the program's callback is called when it is over.
#include <string.h>

#include <algorithm>

#include "base/content_hash.h"
#include "client/opencl/forward.h"
#include "client/opencl/includes.h"
#include "client/opencl/information.h"
#include "client/opencl/program.h"
#include "client/opencl/spread/functions.h"
#include "client/opencl/spread/spread.h"

namespace tendril::client::opencl {

cl_int devices_of(const std::vector<Device*>& all, cl_uint count, const cl_device_id* list,
                  std::vector<Device*>* devices) {
  if ((count == 0) != (list == nullptr)) return CL_INVALID_VALUE;
  for (cl_uint i = 0; i < count; ++i) {
    Device* device = find(list[i]);
    if (device == nullptr || std::find(all.begin(), all.end(), device) == all.end())
      return CL_INVALID_DEVICE;
    devices->push_back(device);
  }
  if (count == 0) *devices = all;
  return CL_SUCCESS;
}

namespace {

using wire::opencl::ProgramForm;
using wire::opencl::Subject;

constexpr size_t kConstantBytesMax = 64;  // more than any scalar has

Program* make(Context* context, const std::vector<Device*>& devices) {
  Program* program = create<cl_program>(context->session, context);
  if (program == nullptr) return nullptr;
  program->devices = devices;
  program->source.clear();
  program->from_source = false;
  program->kernels.store(0);
  return program;
}

wire::Bytes bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Makes a program of `content`, which goes along if it is short. Otherwise its hash goes, and the
// content only if the server does not have it.
template <typename Request, typename Answer>
cl_int call_with_content(Session* session, Request* request, wire::Bytes Request::*inside,
                         const std::string& content, Answer* reply) {
  request->bytes = content.size();
  if (content.size() <= wire::kInlineBytesMax) {
    request->*inside = bytes_of(content);
    return session->call(0, *request, *reply);
  }
  const std::string hash = base::content_hash(content.data(), content.size());
  request->hash = bytes_of(hash);
  cl_int result = session->call(0, *request, *reply);
  if (result != CL_SUCCESS || reply->missing == 0) return result;
  wire::opencl::program_upload_request upload;
  upload.hash = request->hash;
  upload.transfer = session->lane->new_transfer_id();
  upload.bytes = content.size();
  result = session->enqueue(0, upload);
  if (result != CL_SUCCESS) return result;
  if (!session->send_bulk(upload.transfer, content.data(), content.size())) return Results::kLost;
  result = session->call(0, *request, *reply);
  // The server could not keep it even until now.
  return result == CL_SUCCESS && reply->missing != 0 ? CL_OUT_OF_HOST_MEMORY : result;
}

cl_program create_from(Context* context, ProgramForm form, const std::vector<Device*>& devices,
                       const std::string& text, cl_int* errcode_ret) {
  Program* program = make(context, devices);
  if (program == nullptr) return give<cl_program>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  std::vector<uint64_t> ids;
  for (Device* device : devices) ids.push_back(device->wire_id);
  using Request = wire::opencl::program_create_request;
  Request request;
  wire::opencl::program_create_reply reply;
  request.program = program->wire_id;
  request.context = context->wire_id;
  request.form = form;
  request.devices = {ids.data(), ids.size()};
  const cl_int result = call_with_content(context->session, &request, &Request::text, text, &reply);
  if (result != CL_SUCCESS) discard(program);
  return give<cl_program>(result, errcode_ret, program);
}

std::vector<uint64_t> ids_of(const std::vector<Device*>& devices) {
  std::vector<uint64_t> ids;
  for (const Device* device : devices) ids.push_back(device->wire_id);
  return ids;
}

// What building, compiling and linking have in common.
struct Build {
  std::vector<Device*> devices;
  std::vector<uint64_t> ids;
  const char* options;
  Includes includes;
};
cl_int prepare(const std::vector<Device*>& all, cl_uint count, const cl_device_id* list,
               const char* options, cl_program_notify notify, const void* data, Build* build) {
  if (notify == nullptr && data != nullptr) return CL_INVALID_VALUE;
  const cl_int result = devices_of(all, count, list, &build->devices);
  build->ids = ids_of(build->devices);
  build->options = options != nullptr ? options : "";
  return result;
}

// `named`: the program named devices; otherwise the driver takes all.
template <typename Request>
void fill(Request* request, const Build& build, bool named) {
  if (named) request->devices = {build.ids.data(), build.ids.size()};
  request->options = wire::bytes_of(build.options);
}

// Sends what the sources include, before they are built. Then the build has other options.
cl_int send_includes(Program* program, const std::vector<const std::string*>& sources,
                     Build* build) {
  build->includes = find_includes(sources, build->options);
  const Includes& found = build->includes;
  if (found.empty()) return CL_SUCCESS;
  build->options = found.options.c_str();
  using Request = wire::opencl::program_files_request;
  Request request;
  wire::opencl::program_files_reply reply;
  request.program = program->wire_id;
  request.names = bytes_of(found.paths);
  request.lengths = {found.lengths.data(), found.lengths.size()};
  return call_with_content(program->session, &request, &Request::data, found.content, &reply);
}

cl_int programs_of(cl_uint count, const cl_program* list, const Object* context,
                   std::vector<uint64_t>* ids) {
  for (cl_uint i = 0; i < count; ++i) {
    const Program* each = find(list[i]);
    if (each == nullptr || each->context != context) return CL_INVALID_PROGRAM;
    ids->push_back(each->wire_id);
  }
  return CL_SUCCESS;
}

cl_int sizes_of(const Program& program, std::vector<size_t>* sizes) {
  wire::opencl::program_binaries_request request;
  wire::opencl::program_binaries_reply reply;
  request.program = program.wire_id;
  const cl_int result = program.session->call(0, request, reply);
  if (result == CL_SUCCESS) sizes->assign(reply.lengths.begin(), reply.lengths.end());
  return result;
}

// Each of the program's pointers gets one device's binary. A null pointer wants none.
cl_int binaries(const Program& program, const Wanted& answer) {
  std::vector<size_t> sizes;
  cl_int result = sizes_of(program, &sizes);
  if (result != CL_SUCCESS) return result;
  const size_t needed = sizes.size() * sizeof(unsigned char*);
  if (answer.length != nullptr) *answer.length = needed;
  if (answer.value == nullptr) return CL_SUCCESS;
  if (answer.room < needed) return CL_INVALID_VALUE;
  uint64_t total = 0;
  for (const size_t size : sizes) total += size;
  if (total == 0) return CL_SUCCESS;
  Session* session = program.session;
  wire::opencl::program_binaries_request request;
  wire::opencl::program_binaries_reply reply;
  request.program = program.wire_id;
  request.room = total;
  const bool apart = total > wire::kInlineBytesMax;
  std::vector<uint8_t> all(apart ? total : 0);
  if (apart) {
    request.transfer = session->lane->new_transfer_id();
    session->lane->expect_bulk(request.transfer, all.data(), total);
  }
  result = session->call(0, request, reply);
  if (result != CL_SUCCESS) {
    if (apart) session->lane->cancel_bulk(request.transfer);
    return result;
  }
  if (apart && !session->wait_bulk(request.transfer, total)) return Results::kLost;
  const uint8_t* from = apart ? all.data() : reply.data.data;
  if (!apart && reply.data.count != total) return Results::kGarbled;
  auto* const into = static_cast<unsigned char**>(answer.value);
  for (size_t i = 0; i < sizes.size(); from += sizes[i], ++i)
    if (into[i] != nullptr) memcpy(into[i], from, sizes[i]);
  return CL_SUCCESS;
}

}  // namespace

cl_program clCreateProgramWithSource(cl_context context, cl_uint count, const char** strings,
                                     const size_t* lengths, cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_program>(CL_INVALID_CONTEXT, errcode_ret);
  if (count == 0 || strings == nullptr) return give<cl_program>(CL_INVALID_VALUE, errcode_ret);
  std::string text;
  for (cl_uint i = 0; i < count; ++i) {
    if (strings[i] == nullptr) return give<cl_program>(CL_INVALID_VALUE, errcode_ret);
    const size_t length = lengths != nullptr ? lengths[i] : 0;
    text.append(strings[i], length != 0 ? length : strlen(strings[i]));
  }
  // A program of nothing is one, and travels as a blank.
  const cl_program made = create_from(in, ProgramForm::kSource, in->devices,
                                      text.empty() ? " " : without_roots(text), errcode_ret);
  if (Program* program = find(made); program != nullptr) {
    program->source = std::move(text);
    program->from_source = true;
  }
  return made;
}

cl_program clCreateProgramWithIL(cl_context context, const void* il, size_t length,
                                 cl_int* errcode_ret) {
  // Programs may call it by its address, which is one for all contexts.
  if (spread::is_spread(context))
    return spread::clCreateProgramWithIL(context, il, length, errcode_ret);
  Context* in = find(context);
  if (in == nullptr) return give<cl_program>(CL_INVALID_CONTEXT, errcode_ret);
  if (il == nullptr || length == 0) return give<cl_program>(CL_INVALID_VALUE, errcode_ret);
  return create_from(in, ProgramForm::kLanguage, in->devices,
                     std::string(static_cast<const char*>(il), length), errcode_ret);
}

cl_program clCreateProgramWithBuiltInKernels(cl_context context, cl_uint num_devices,
                                             const cl_device_id* device_list,
                                             const char* kernel_names, cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_program>(CL_INVALID_CONTEXT, errcode_ret);
  if (num_devices == 0 || device_list == nullptr || kernel_names == nullptr || *kernel_names == 0)
    return give<cl_program>(CL_INVALID_VALUE, errcode_ret);
  std::vector<Device*> devices;
  const cl_int result = devices_of(in->devices, num_devices, device_list, &devices);
  if (result != CL_SUCCESS) return give<cl_program>(result, errcode_ret);
  return create_from(in, ProgramForm::kBuiltIn, devices, kernel_names, errcode_ret);
}

cl_program clCreateProgramWithBinary(cl_context context, cl_uint num_devices,
                                     const cl_device_id* device_list, const size_t* lengths,
                                     const unsigned char** binaries, cl_int* binary_status,
                                     cl_int* errcode_ret) {
  Context* in = find(context);
  if (in == nullptr) return give<cl_program>(CL_INVALID_CONTEXT, errcode_ret);
  if (num_devices == 0 || device_list == nullptr || lengths == nullptr || binaries == nullptr)
    return give<cl_program>(CL_INVALID_VALUE, errcode_ret);
  std::vector<Device*> devices;
  cl_int result = devices_of(in->devices, num_devices, device_list, &devices);
  if (result != CL_SUCCESS) return give<cl_program>(result, errcode_ret);
  std::string all;
  std::vector<uint64_t> counts;
  for (cl_uint i = 0; i < num_devices; ++i) {
    const bool empty = lengths[i] == 0 || binaries[i] == nullptr;
    if (binary_status != nullptr) binary_status[i] = empty ? CL_INVALID_VALUE : CL_SUCCESS;
    if (empty) return give<cl_program>(CL_INVALID_VALUE, errcode_ret);
    all.append(reinterpret_cast<const char*>(binaries[i]), lengths[i]);
    counts.push_back(lengths[i]);
  }
  Program* program = make(in, devices);
  if (program == nullptr) return give<cl_program>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  const std::vector<uint64_t> ids = ids_of(devices);
  using Request = wire::opencl::program_from_binaries_request;
  Request request;
  wire::opencl::program_from_binaries_reply reply;
  request.program = program->wire_id;
  request.context = in->wire_id;
  request.devices = {ids.data(), ids.size()};
  request.lengths = {counts.data(), counts.size()};
  result = call_with_content(in->session, &request, &Request::data, all, &reply);
  for (uint64_t i = 0; binary_status != nullptr && i < reply.status.count && i < num_devices; ++i)
    binary_status[i] = reply.status[i];
  if (result != CL_SUCCESS) discard(program);
  return give<cl_program>(result, errcode_ret, program);
}

cl_int clSetProgramSpecializationConstant(cl_program program, cl_uint spec_id, size_t spec_size,
                                          const void* spec_value) {
  const Program* found = find(program);
  if (found == nullptr) return CL_INVALID_PROGRAM;
  if (spec_value == nullptr || spec_size == 0 || spec_size > kConstantBytesMax)
    return CL_INVALID_VALUE;
  wire::opencl::specialization_set_request request;
  wire::opencl::specialization_set_reply reply;
  request.program = found->wire_id;
  request.number = spec_id;
  request.value = {static_cast<const uint8_t*>(spec_value), spec_size};
  return found->session->call(0, request, reply);
}

cl_int clBuildProgram(cl_program program, cl_uint num_devices, const cl_device_id* device_list,
                      const char* options, cl_program_notify pfn_notify, void* user_data) {
  Program* found = find(program);
  if (found == nullptr) return CL_INVALID_PROGRAM;
  Build build = {};
  cl_int result =
      prepare(found->devices, num_devices, device_list, options, pfn_notify, user_data, &build);
  if (result != CL_SUCCESS) return result;
  if (found->kernels.load() != 0) return CL_INVALID_OPERATION;
  result = send_includes(found, {&found->source}, &build);
  if (result != CL_SUCCESS) return result;
  wire::opencl::program_build_request request;
  wire::opencl::program_build_reply reply;
  request.program = found->wire_id;
  fill(&request, build, num_devices != 0);
  result = found->session->call(0, request, reply);
  if (pfn_notify == nullptr) return result;
  pfn_notify(program, user_data);
  // With a callback the program asks for the build's status.
  return result == CL_BUILD_PROGRAM_FAILURE ? CL_SUCCESS : result;
}

cl_int clCompileProgram(cl_program program, cl_uint num_devices, const cl_device_id* device_list,
                        const char* options, cl_uint num_input_headers,
                        const cl_program* input_headers, const char** header_include_names,
                        cl_program_notify pfn_notify, void* user_data) {
  Program* found = find(program);
  if (found == nullptr) return CL_INVALID_PROGRAM;
  Build build = {};
  cl_int result =
      prepare(found->devices, num_devices, device_list, options, pfn_notify, user_data, &build);
  if (result != CL_SUCCESS) return result;
  const bool some = num_input_headers != 0;
  if (some != (input_headers != nullptr) || some != (header_include_names != nullptr))
    return CL_INVALID_VALUE;
  if (found->kernels.load() != 0) return CL_INVALID_OPERATION;
  std::vector<uint64_t> headers;
  result = programs_of(num_input_headers, input_headers, found->context, &headers);
  if (result != CL_SUCCESS) return result;
  std::vector<const std::string*> sources = {&found->source};
  for (cl_uint i = 0; i < num_input_headers; ++i)
    sources.push_back(&find(input_headers[i])->source);
  result = send_includes(found, sources, &build);
  if (result != CL_SUCCESS) return result;
  std::string names;
  for (cl_uint i = 0; i < num_input_headers; ++i) names.append(header_include_names[i]) += '\0';
  wire::opencl::program_compile_request request;
  wire::opencl::program_compile_reply reply;
  request.program = found->wire_id;
  fill(&request, build, num_devices != 0);
  request.headers = {headers.data(), headers.size()};
  request.names = bytes_of(names);
  result = found->session->call(0, request, reply);
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
  Build build = {};
  cl_int result =
      prepare(in->devices, num_devices, device_list, options, pfn_notify, user_data, &build);
  if (result == CL_SUCCESS && (num_input_programs == 0 || input_programs == nullptr))
    result = CL_INVALID_VALUE;
  if (result != CL_SUCCESS) return give<cl_program>(result, errcode_ret);
  std::vector<uint64_t> inputs;
  result = programs_of(num_input_programs, input_programs, in, &inputs);
  if (result != CL_SUCCESS) return give<cl_program>(result, errcode_ret);
  Program* program = make(in, build.devices);
  if (program == nullptr) return give<cl_program>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  wire::opencl::program_link_request request;
  wire::opencl::program_link_reply reply;
  request.program = program->wire_id;
  request.context = in->wire_id;
  fill(&request, build, num_devices != 0);
  request.inputs = {inputs.data(), inputs.size()};
  result = in->session->call(0, request, reply);
  if (result != CL_SUCCESS) discard(program);
  const cl_program made = give<cl_program>(result, errcode_ret, program);
  if (pfn_notify != nullptr) pfn_notify(made, user_data);
  return made;
}

bool answer_of_program(const Program& program, cl_program_info parameter, const Wanted& answer,
                       cl_int* result) {
  switch (parameter) {
    case CL_PROGRAM_REFERENCE_COUNT:
      *result = answer.one(cl_uint{program.references.load()});
      return true;
    case CL_PROGRAM_CONTEXT:
      *result = answer.one(handle_of<cl_context>(program.context));
      return true;
    case CL_PROGRAM_NUM_DEVICES:
      *result = answer.one(static_cast<cl_uint>(program.devices.size()));
      return true;
    case CL_PROGRAM_DEVICES: {
      std::vector<cl_device_id> devices;
      for (Device* device : program.devices) devices.push_back(handle_of<cl_device_id>(device));
      *result = answer.list(devices);
      return true;
    }
    case CL_PROGRAM_SOURCE:
      if (!program.from_source) return false;
      *result = answer.text(program.source);
      return true;
    default:
      return false;
  }
}

cl_int ask(const Program& program, cl_program_info parameter, const Wanted& wanted) {
  if (parameter == CL_PROGRAM_BINARIES) return binaries(program, wanted);
  return ask_server({program.session, wire::opencl::Subject::kProgram, program.wire_id}, parameter,
                    wanted);
}

cl_int clGetProgramBuildInfo(cl_program program, cl_device_id device,
                             cl_program_build_info param_name, size_t param_value_size,
                             void* param_value, size_t* param_value_size_ret) {
  const Wanted answer = {param_value_size, param_value, param_value_size_ret};
  const Program* found = find(program);
  if (found == nullptr) return CL_INVALID_PROGRAM;
  const Device* on = find(device);
  if (on == nullptr ||
      std::find(found->devices.begin(), found->devices.end(), on) == found->devices.end())
    return CL_INVALID_DEVICE;
  return ask_server({found->session, Subject::kBuild, found->wire_id, on->wire_id}, param_name,
                    answer);
}

}  // namespace tendril::client::opencl

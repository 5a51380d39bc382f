// SPDX-License-Identifier: Apache-2.0
// Kernels. The first value of an argument in each form and size is tried at the server, whose
// driver says whether it may be. So is the first work with groups of each shape. Later ones are
// sent and not awaited.
#include <string.h>

#include <algorithm>
#include <iterator>

#include "client/opencl/forward.h"
#include "client/opencl/information.h"
#include "client/opencl/kernel.h"
#include "client/opencl/spread/functions.h"
#include "client/opencl/spread/spread.h"

namespace tendril::client::opencl {
namespace {

using wire::opencl::ArgumentForm;
using wire::opencl::Subject;

cl_int make(Program* program, const char* name, Kernel** made) {
  Kernel* kernel = create<cl_kernel>(program->session, program->context);
  if (kernel == nullptr) return CL_OUT_OF_HOST_MEMORY;
  kernel->program = program;
  kernel->name = name;
  for (std::atomic<uint64_t>& shape : kernel->shapes) shape.store(0, std::memory_order_relaxed);
  use(program);
  program->kernels.fetch_add(1);
  wire::opencl::kernel_create_request request;
  wire::opencl::kernel_create_reply reply;
  request.kernel = kernel->wire_id;
  request.program = program->wire_id;
  request.name = wire::bytes_of(name);
  const cl_int result = program->session->call(0, request, reply);
  if (result != CL_SUCCESS) {
    discard(kernel);
    return result;
  }
  kernel->argument_count = static_cast<uint32_t>(reply.forms.count);
  kernel->arguments = std::make_unique<Argument[]>(reply.forms.count);
  for (uint32_t i = 0; i < kernel->argument_count; ++i) kernel->arguments[i].form = reply.forms[i];
  *made = kernel;
  return result;
}

// The object that an argument's value is, if it is one. False: the value is an object of another
// kind, or none of ours.
template <typename Pointer>
bool object_in(const void* value, uint64_t* id) {
  Pointer pointer = nullptr;
  if (value != nullptr) memcpy(&pointer, value, sizeof pointer);
  *id = 0;
  if (pointer == nullptr) return true;
  const auto* found = find(pointer);
  if (found == nullptr) return false;
  *id = found->wire_id;
  return true;
}

// Not 0, and another one for each form and size.
uint64_t taken_as(ArgumentForm form, size_t size) {
  constexpr int kSizeBits = 56;
  return (static_cast<uint64_t>(form) + 1) << kSizeBits | (size & ((uint64_t{1} << kSizeBits) - 1));
}

struct Setting {
  ArgumentForm form = ArgumentForm::kValue;
  uint64_t object = 0;
  const void* value = nullptr;
};

cl_int read_setting(uint8_t form, size_t size, const void* value, Setting* setting) {
  setting->form = static_cast<ArgumentForm>(form);
  setting->value = value;
  if (form == kUnknownForm) {
    const cl_int result = guess_form(*process(), size, value, &setting->form);
    if (result != CL_SUCCESS) return result;
  }
  switch (setting->form) {
    case ArgumentForm::kLocal:
      if (value != nullptr) return CL_INVALID_ARG_VALUE;
      return size != 0 ? CL_SUCCESS : CL_INVALID_ARG_SIZE;
    case ArgumentForm::kValue:
      return value != nullptr ? CL_SUCCESS : CL_INVALID_ARG_VALUE;
    case ArgumentForm::kMemory:
      if (size != sizeof(cl_mem)) return CL_INVALID_ARG_SIZE;
      return object_in<cl_mem>(value, &setting->object) ? CL_SUCCESS : CL_INVALID_ARG_VALUE;
    case ArgumentForm::kShared:  // clSetKernelArgSVMPointer only
      return CL_INVALID_ARG_VALUE;
    case ArgumentForm::kSampler:
      if (value == nullptr) return CL_INVALID_ARG_VALUE;
      if (size != sizeof(cl_sampler)) return CL_INVALID_ARG_SIZE;
      return object_in<cl_sampler>(value, &setting->object) && setting->object != 0
                 ? CL_SUCCESS
                 : CL_INVALID_SAMPLER;
    case ArgumentForm::kQueue:
      if (size != sizeof(cl_command_queue)) return CL_INVALID_ARG_SIZE;
      return object_in<cl_command_queue>(value, &setting->object) ? CL_SUCCESS
                                                                  : CL_INVALID_DEVICE_QUEUE;
  }
  return CL_INVALID_ARG_VALUE;
}

template <typename Request>
void fill(Request* request, const Kernel& kernel, cl_uint index, size_t size,
          const Setting& setting) {
  request->kernel = kernel.wire_id;
  request->index = index;
  request->form = setting.form;
  request->size = size;
  request->object = setting.object;
  if (setting.form == ArgumentForm::kValue)
    request->value = {static_cast<const uint8_t*>(setting.value), size};
}

// The driver has taken a value of this form and size before, or it is asked.
cl_int set(Kernel* kernel, cl_uint index, size_t size, const Setting& setting) {
  std::atomic<uint64_t>& taken = kernel->arguments[index].taken;
  const uint64_t as = taken_as(setting.form, size);
  if (taken.load(std::memory_order_relaxed) == as) {
    wire::opencl::argument_set_request request;
    fill(&request, *kernel, index, size, setting);
    return kernel->session->enqueue(0, request);
  }
  wire::opencl::argument_try_request request;
  wire::opencl::argument_try_reply reply;
  fill(&request, *kernel, index, size, setting);
  const cl_int result = kernel->session->call(0, request, reply);
  if (result == CL_SUCCESS) taken.store(as, std::memory_order_relaxed);
  return result;
}

cl_int check_range(const Kernel& kernel, cl_uint dimensions) {
  if (dimensions < 1 || dimensions > 3) return CL_INVALID_WORK_DIMENSION;
  for (uint32_t i = 0; i < kernel.argument_count; ++i)
    if (kernel.arguments[i].taken.load(std::memory_order_relaxed) == 0)
      return CL_INVALID_KERNEL_ARGS;
  return CL_SUCCESS;
}

// Work without items: some versions of OpenCL have it.
bool is_none(cl_uint dimensions, const size_t* global) {
  return global == nullptr || std::find(global, global + dimensions, 0) != global + dimensions;
}

// The sizes of a group, and in which dimensions the last group is smaller. 0: too large for a
// number. A driver refuses some shapes, and programs look for that at once.
uint64_t shape_of(cl_uint dimensions, const size_t* global, const size_t* local) {
  constexpr int kSizeBits = 20;
  uint64_t shape = 0;
  for (cl_uint i = 0; i < dimensions; ++i) {
    if (local[i] == 0 || local[i] >> kSizeBits != 0) return 0;
    shape = shape << (kSizeBits + 1) | local[i] << 1 | (global[i] % local[i] != 0 ? 1 : 0);
  }
  return shape;
}

bool has_run(const Kernel& kernel, uint64_t shape) {
  for (const std::atomic<uint64_t>& each : kernel.shapes)
    if (each.load(std::memory_order_relaxed) == shape) return shape != 0;
  return false;
}

// Of shapes that take turns, some may be forgotten, and are tried again.
void remember(Kernel* kernel, uint64_t shape) {
  for (std::atomic<uint64_t>& each : kernel->shapes) {
    uint64_t none = 0;
    if (each.compare_exchange_strong(none, shape, std::memory_order_relaxed)) return;
  }
  kernel->shapes[shape % std::size(kernel->shapes)].store(shape, std::memory_order_relaxed);
}

struct Range {
  cl_uint dimensions;
  const size_t *offset, *global, *local;
  wire::Array<uint64_t> wait;
};
template <typename Request>
void fill(Request* request, const Range& range, const Queue& queue, const Kernel& kernel,
          uint64_t event) {
  request->queue = queue.wire_id;
  request->kernel = kernel.wire_id;
  request->dimensions = range.dimensions;
  if (range.offset != nullptr) request->offset = {range.offset, range.dimensions};
  if (range.global != nullptr) request->global = {range.global, range.dimensions};
  if (range.local != nullptr) request->local = {range.local, range.dimensions};
  request->event = event;
  request->wait = range.wait;
}

cl_int run(const Range& range, Queue* queue, Kernel* kernel, uint64_t event) {
  const bool none = is_none(range.dimensions, range.global);
  const uint64_t shape =
      !none && range.local != nullptr ? shape_of(range.dimensions, range.global, range.local) : 0;
  if (!none && (range.local == nullptr || has_run(*kernel, shape))) {
    wire::opencl::range_run_request request;
    fill(&request, range, *queue, *kernel, event);
    return queue->session->enqueue(0, request);
  }
  wire::opencl::range_try_request request;
  wire::opencl::range_try_reply reply;
  fill(&request, range, *queue, *kernel, event);
  const cl_int result = queue->session->call(0, request, reply);
  if (result == CL_SUCCESS && shape != 0) remember(kernel, shape);
  return result;
}

}  // namespace

cl_kernel clCreateKernel(cl_program program, const char* kernel_name, cl_int* errcode_ret) {
  Program* in = find(program);
  if (in == nullptr) return give<cl_kernel>(CL_INVALID_PROGRAM, errcode_ret);
  if (kernel_name == nullptr) return give<cl_kernel>(CL_INVALID_VALUE, errcode_ret);
  Kernel* kernel = nullptr;
  const cl_int result = make(in, kernel_name, &kernel);
  return give<cl_kernel>(result, errcode_ret, kernel);
}

cl_int clCreateKernelsInProgram(cl_program program, cl_uint num_kernels, cl_kernel* kernels,
                                cl_uint* num_kernels_ret) {
  Program* in = find(program);
  if (in == nullptr) return CL_INVALID_PROGRAM;
  wire::opencl::kernel_names_request request;
  wire::opencl::kernel_names_reply reply;
  request.program = in->wire_id;
  cl_int result = in->session->call(0, request, reply);
  if (result != CL_SUCCESS) return result;
  std::vector<std::string> names(1);
  for (const uint8_t letter : reply.names) {
    if (letter == ';')
      names.emplace_back();
    else if (letter != 0)
      names.back().push_back(static_cast<char>(letter));
  }
  if (names.back().empty()) names.pop_back();
  if (kernels != nullptr && num_kernels < names.size()) return CL_INVALID_VALUE;
  for (size_t i = 0; kernels != nullptr && i < names.size(); ++i) {
    Kernel* kernel = nullptr;
    result = make(in, names[i].c_str(), &kernel);
    if (result != CL_SUCCESS) {
      while (i != 0) release(find(kernels[--i]));
      return result;
    }
    kernels[i] = handle_of<cl_kernel>(kernel);
  }
  if (num_kernels_ret != nullptr) *num_kernels_ret = static_cast<cl_uint>(names.size());
  return CL_SUCCESS;
}

cl_kernel clCloneKernel(cl_kernel source_kernel, cl_int* errcode_ret) {
  Kernel* from = find(source_kernel);
  if (from == nullptr) return give<cl_kernel>(CL_INVALID_KERNEL, errcode_ret);
  Kernel* kernel = create<cl_kernel>(from->session, from->context);
  if (kernel == nullptr) return give<cl_kernel>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  kernel->program = from->program;
  kernel->name = from->name;
  kernel->argument_count = from->argument_count;
  for (std::atomic<uint64_t>& shape : kernel->shapes) shape.store(0, std::memory_order_relaxed);
  kernel->arguments = std::make_unique<Argument[]>(from->argument_count);
  for (uint32_t i = 0; i < from->argument_count; ++i) {
    kernel->arguments[i].form = from->arguments[i].form;
    kernel->arguments[i].taken.store(from->arguments[i].taken.load());
  }
  use(from->program);
  from->program->kernels.fetch_add(1);
  wire::opencl::kernel_clone_request request;
  wire::opencl::kernel_clone_reply reply;
  request.kernel = kernel->wire_id;
  request.from = from->wire_id;
  const cl_int result = from->session->call(0, request, reply);
  if (result != CL_SUCCESS) discard(kernel);
  return give<cl_kernel>(result, errcode_ret, kernel);
}

cl_int clSetKernelArg(cl_kernel kernel, cl_uint arg_index, size_t arg_size, const void* arg_value) {
  Kernel* found = find(kernel);
  if (found == nullptr) return CL_INVALID_KERNEL;
  if (arg_index >= found->argument_count) return CL_INVALID_ARG_INDEX;
  Setting setting;
  cl_int result = read_setting(found->arguments[arg_index].form, arg_size, arg_value, &setting);
  if (result != CL_SUCCESS) return result;
  if (setting.form == ArgumentForm::kValue && arg_size > wire::kInlineBytesMax)
    return CL_INVALID_ARG_SIZE;
  return set(found, arg_index, arg_size, setting);
}

cl_int set_shared_argument(Kernel* kernel, cl_uint index, const void* address) {
  Setting setting;
  setting.form = ArgumentForm::kShared;
  setting.object = reinterpret_cast<uint64_t>(address);
  return set(kernel, index, sizeof address, setting);
}

bool answer_of_kernel(const Kernel& kernel, cl_kernel_info parameter, const Wanted& answer,
                      cl_int* result) {
  switch (parameter) {
    case CL_KERNEL_FUNCTION_NAME:
      *result = answer.text(kernel.name);
      return true;
    case CL_KERNEL_NUM_ARGS:
      *result = answer.one(cl_uint{kernel.argument_count});
      return true;
    case CL_KERNEL_REFERENCE_COUNT:
      *result = answer.one(cl_uint{kernel.references.load()});
      return true;
    case CL_KERNEL_CONTEXT:
      *result = answer.one(handle_of<cl_context>(kernel.context));
      return true;
    case CL_KERNEL_PROGRAM:
      *result = answer.one(handle_of<cl_program>(kernel.program));
      return true;
    default:
      return false;
  }
}

cl_int ask(const Kernel& kernel, cl_kernel_info parameter, const Wanted& wanted) {
  return ask_server({kernel.session, wire::opencl::Subject::kKernel, kernel.wire_id}, parameter,
                    wanted);
}

cl_int clGetKernelArgInfo(cl_kernel kernel, cl_uint arg_indx, cl_kernel_arg_info param_name,
                          size_t param_value_size, void* param_value,
                          size_t* param_value_size_ret) {
  const Wanted answer = {param_value_size, param_value, param_value_size_ret};
  const Kernel* found = find(kernel);
  if (found == nullptr) return CL_INVALID_KERNEL;
  if (arg_indx >= found->argument_count) return CL_INVALID_ARG_INDEX;
  return ask_server({found->session, Subject::kArgument, found->wire_id, arg_indx}, param_name,
                    answer);
}

cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device,
                                cl_kernel_work_group_info param_name, size_t param_value_size,
                                void* param_value, size_t* param_value_size_ret) {
  const Wanted answer = {param_value_size, param_value, param_value_size_ret};
  const Kernel* found = find(kernel);
  if (found == nullptr) return CL_INVALID_KERNEL;
  const Device* on = find(device);
  if (device != nullptr && on == nullptr) return CL_INVALID_DEVICE;
  return ask_server(
      {found->session, Subject::kWorkGroup, found->wire_id, on != nullptr ? on->wire_id : 0},
      param_name, answer);
}

cl_int clGetKernelSubGroupInfo(cl_kernel kernel, cl_device_id device,
                               cl_kernel_sub_group_info param_name, size_t input_value_size,
                               const void* input_value, size_t param_value_size, void* param_value,
                               size_t* param_value_size_ret) {
  const Wanted answer = {param_value_size, param_value, param_value_size_ret};
  const Kernel* found = find(kernel);
  if (found == nullptr) return CL_INVALID_KERNEL;
  const Device* on = find(device);
  if (device != nullptr && on == nullptr) return CL_INVALID_DEVICE;
  Question question = {found->session, Subject::kSubGroup, found->wire_id};
  question.other = on != nullptr ? on->wire_id : 0;
  question.input = input_value;
  question.input_bytes = input_value != nullptr ? input_value_size : 0;
  return ask_server(question, param_name, answer);
}

cl_int clGetKernelSubGroupInfoKHR(cl_kernel in_kernel, cl_device_id in_device,
                                  cl_kernel_sub_group_info param_name, size_t input_value_size,
                                  const void* input_value, size_t param_value_size,
                                  void* param_value, size_t* param_value_size_ret) {
  // Programs call it by its address, which is one for all contexts.
  const auto ask = spread::is_spread(in_kernel) ? &spread::clGetKernelSubGroupInfo
                                                : &opencl::clGetKernelSubGroupInfo;
  return ask(in_kernel, in_device, param_name, input_value_size, input_value, param_value_size,
             param_value, param_value_size_ret);
}

cl_int clEnqueueNDRangeKernel(cl_command_queue command_queue, cl_kernel kernel, cl_uint work_dim,
                              const size_t* global_work_offset, const size_t* global_work_size,
                              const size_t* local_work_size, cl_uint num_events_in_wait_list,
                              const cl_event* event_wait_list, cl_event* event) {
  Forward forward(true);
  Queue* queue = forward.record(command_queue);
  Kernel* found = forward.record(kernel);
  const wire::Array<uint64_t> wait = forward.waits(event_wait_list, num_events_in_wait_list);
  if (!forward.ok()) return forward.error();
  forward.check(check_range(*found, work_dim));
  const uint64_t id = forward.mint_if(event, CL_COMMAND_NDRANGE_KERNEL);
  if (!forward.ok()) return forward.error();
  const Range range = {work_dim, global_work_offset, global_work_size, local_work_size, wait};
  const cl_int result = run(range, queue, found, id);
  if (result == CL_SUCCESS) forward.adopt_into(event);
  return result;
}

cl_int clEnqueueTask(cl_command_queue command_queue, cl_kernel kernel,
                     cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                     cl_event* event) {
  const size_t one = 1;
  const cl_int result =
      opencl::clEnqueueNDRangeKernel(command_queue, kernel, 1, nullptr, &one, &one,
                                     num_events_in_wait_list, event_wait_list, event);
  if (result == CL_SUCCESS && event != nullptr) find(*event)->command = CL_COMMAND_TASK;
  return result;
}

}  // namespace tendril::client::opencl

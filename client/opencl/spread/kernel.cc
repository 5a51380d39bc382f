// SPDX-License-Identifier: Apache-2.0
// Kernels of contexts over several servers. One server checks arguments and answers what is asked:
// the first that has the program built. Another one gets the kernel with its first work there, and
// with each work the arguments that changed.
#include "client/opencl/kernel.h"

#include <string.h>

#include <algorithm>

#include "client/opencl/information.h"
#include "client/opencl/spread/command.h"
#include "client/opencl/spread/functions.h"

namespace tendril::client::opencl::spread {
namespace {

using wire::opencl::ArgumentForm;

enum Usage : uint8_t { kNotAsked, kReads, kMayWrite };

// `real` is the home's.
cl_kernel wrap(Program* program, uint32_t home, cl_kernel real, cl_int* errcode_ret) {
  const opencl::Kernel* its = opencl::find(real);
  Kernel* kernel = create<cl_kernel>(program->context);
  if (kernel == nullptr) {
    opencl::clReleaseKernel(real);
    return give<cl_kernel>(CL_OUT_OF_HOST_MEMORY, errcode_ret);
  }
  kernel->program = program;
  use(program);
  program->kernels.fetch_add(1);
  kernel->name = its->name;
  kernel->argument_count = its->argument_count;
  kernel->at.assign(program->at.size(), Kernel::At());
  kernel->home = home;
  kernel->at[home].real = real;
  kernel->at[home].versions.assign(its->argument_count, 0);
  kernel->given.assign(its->argument_count, Given());
  kernel->use.assign(its->argument_count, kNotAsked);
  kernel->version = 0;
  return give<cl_kernel>(CL_SUCCESS, errcode_ret, kernel);
}

cl_int make_at(Kernel* kernel, uint32_t member) {
  Kernel::At& at = kernel->at[member];
  if (at.real != nullptr) return CL_SUCCESS;
  const cl_program program = static_cast<Program*>(kernel->program)->at[member];
  if (program == nullptr) return CL_INVALID_PROGRAM_EXECUTABLE;
  cl_int result = CL_SUCCESS;
  at.real = opencl::clCreateKernel(program, kernel->name.c_str(), &result);
  at.versions.assign(kernel->argument_count, 0);
  return result;
}

cl_int make_at_device(Kernel* kernel, cl_device_id device, uint32_t* member) {
  Context* const context = context_of(kernel);
  if (!member_of(*context, device, member)) return CL_INVALID_DEVICE;
  const base::Locked held(context->lock);
  return make_at(kernel, *member);
}

template <typename T>
T told(cl_kernel kernel, cl_uint index, cl_kernel_arg_info what) {
  T answer = 0;
  return opencl::clGetKernelArgInfo(kernel, index, what, sizeof answer, &answer, nullptr) ==
                 CL_SUCCESS
             ? answer
             : 0;
}

// What the kernel may do with a memory object. A kernel that writes through a constant pointer, a
// pointer to const that says it is the only one, or an image to read is undefined.
Access access_of(Kernel* kernel, cl_uint index, const Memory& memory) {
  if ((memory.flags & CL_MEM_READ_ONLY) != 0) return Access::kRead;
  if (kernel->use[index] == kNotAsked) {
    const cl_kernel home = kernel->at[kernel->home].real;
    constexpr cl_kernel_arg_type_qualifier kOnlyReads =
        CL_KERNEL_ARG_TYPE_CONST | CL_KERNEL_ARG_TYPE_RESTRICT;
    const bool reads =
        told<cl_kernel_arg_address_qualifier>(home, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER) ==
            CL_KERNEL_ARG_ADDRESS_CONSTANT ||
        told<cl_kernel_arg_access_qualifier>(home, index, CL_KERNEL_ARG_ACCESS_QUALIFIER) ==
            CL_KERNEL_ARG_ACCESS_READ_ONLY ||
        (told<cl_kernel_arg_type_qualifier>(home, index, CL_KERNEL_ARG_TYPE_QUALIFIER) &
         kOnlyReads) == kOnlyReads;
    kernel->use[index] = reads ? kReads : kMayWrite;
  }
  return kernel->use[index] == kReads ? Access::kRead : Access::kChange;
}

// The object of an argument. False: it has ended.
bool object_of(const Given& given, Object** object) {
  *object = given.object;
  return given.object == nullptr ||
         given.object->handle.load(std::memory_order_acquire) == given.id;
}

cl_int apply(Kernel* kernel, cl_uint index, uint32_t member) {
  const Given& given = kernel->given[index];
  uint64_t& version = kernel->at[member].versions[index];
  if (version == given.version) return CL_SUCCESS;
  const void* value = given.value.data();
  cl_mem memory = nullptr;
  cl_sampler sampler = nullptr;
  if (given.is_local) value = nullptr;
  if (given.object != nullptr && given.is_memory) {
    memory = static_cast<Memory*>(given.object)->at[member];
    value = &memory;
  } else if (given.object != nullptr) {
    sampler = static_cast<Sampler*>(given.object)->at[member];
    value = &sampler;
  }
  const cl_int result = opencl::clSetKernelArg(kernel->at[member].real, index, given.bytes, value);
  if (result == CL_SUCCESS) version = given.version;
  return result;
}

// Finds the object whose handle the value is. Null: the value is none.
template <typename Pointer>
Object* object_in(const void* value, const Object* context) {
  Pointer pointer = nullptr;
  memcpy(&pointer, value, sizeof pointer);
  Object* found = find(pointer);
  return found != nullptr && found->context == context ? found : nullptr;
}

// What the value is, and whether it may be. Values that are no objects are checked by the home.
cl_int read_given(Kernel* kernel, cl_uint index, size_t bytes, const void* value, Given* given) {
  const cl_kernel home = kernel->at[kernel->home].real;
  const uint8_t told_form = opencl::find(home)->arguments[index].form;
  auto form = static_cast<ArgumentForm>(told_form);
  if (told_form == kUnknownForm) {
    const cl_int result = guess_form(tables(), bytes, value, &form);
    if (result != CL_SUCCESS) return result;
  }
  given->bytes = bytes;
  given->is_local = value == nullptr;
  given->is_memory = form == ArgumentForm::kMemory;
  if (!given->is_memory && form != ArgumentForm::kSampler) {
    const cl_int result = opencl::clSetKernelArg(home, index, bytes, value);
    if (value != nullptr)
      given->value.assign(static_cast<const uint8_t*>(value),
                          static_cast<const uint8_t*>(value) + bytes);
    return result;
  }
  if (bytes != sizeof(cl_mem)) return CL_INVALID_ARG_SIZE;
  uint64_t bits = 0;
  if (value != nullptr) memcpy(&bits, value, sizeof bits);
  if (bits == 0) {  // an argument without an object
    given->is_local = true;
    return given->is_memory ? CL_SUCCESS : CL_INVALID_SAMPLER;
  }
  given->object = given->is_memory ? object_in<cl_mem>(value, kernel->context)
                                   : object_in<cl_sampler>(value, kernel->context);
  if (given->object == nullptr) return given->is_memory ? CL_INVALID_ARG_VALUE : CL_INVALID_SAMPLER;
  given->id = given->object->handle.load(std::memory_order_acquire);
  return CL_SUCCESS;
}

}  // namespace

cl_kernel clCreateKernel(cl_program program, const char* kernel_name, cl_int* errcode_ret) {
  Program* in = find(program);
  if (in == nullptr) return give<cl_kernel>(CL_INVALID_PROGRAM, errcode_ret);
  cl_int result = CL_INVALID_PROGRAM_EXECUTABLE;
  for (uint32_t i = 0; i < in->at.size(); ++i) {
    if (in->at[i] == nullptr) continue;
    const cl_kernel real = opencl::clCreateKernel(in->at[i], kernel_name, &result);
    if (real != nullptr) return wrap(in, i, real, errcode_ret);
    if (result != CL_INVALID_PROGRAM_EXECUTABLE) break;
  }
  return give<cl_kernel>(result, errcode_ret);
}

cl_int clCreateKernelsInProgram(cl_program program, cl_uint num_kernels, cl_kernel* kernels,
                                cl_uint* num_kernels_ret) {
  Program* in = find(program);
  if (in == nullptr) return CL_INVALID_PROGRAM;
  cl_int result = CL_INVALID_PROGRAM_EXECUTABLE;
  for (uint32_t i = 0; i < in->at.size() && result == CL_INVALID_PROGRAM_EXECUTABLE; ++i) {
    if (in->at[i] == nullptr) continue;
    cl_uint count = 0;
    result = opencl::clCreateKernelsInProgram(in->at[i], num_kernels, kernels, &count);
    if (result != CL_SUCCESS) continue;
    if (num_kernels_ret != nullptr) *num_kernels_ret = count;
    for (cl_uint each = 0; kernels != nullptr && each < count; ++each)
      kernels[each] = wrap(in, i, kernels[each], &result);
  }
  return result;
}

// A new kernel of that name, which gets the arguments with its first work.
cl_kernel clCloneKernel(cl_kernel source_kernel, cl_int* errcode_ret) {
  Kernel* from = find(source_kernel);
  if (from == nullptr) return give<cl_kernel>(CL_INVALID_KERNEL, errcode_ret);
  const cl_kernel made =
      spread::clCreateKernel(handle_of<cl_program>(from->program), from->name.c_str(), errcode_ret);
  Kernel* kernel = find(made);
  if (kernel == nullptr) return nullptr;
  const base::Locked held(context_of(from)->lock);
  kernel->given = from->given;
  kernel->use = from->use;
  kernel->version = from->version;
  return made;
}

cl_int clSetKernelArg(cl_kernel kernel, cl_uint arg_index, size_t arg_size, const void* arg_value) {
  Kernel* found = find(kernel);
  if (found == nullptr) return CL_INVALID_KERNEL;
  if (arg_index >= found->argument_count) return CL_INVALID_ARG_INDEX;
  const base::Locked held(context_of(found)->lock);
  Given given;
  const cl_int result = read_given(found, arg_index, arg_size, arg_value, &given);
  if (result != CL_SUCCESS) return result;
  given.version = ++found->version;
  found->given[arg_index] = std::move(given);
  return CL_SUCCESS;
}

cl_int ask(const Kernel& kernel, cl_kernel_info parameter, const Wanted& wanted) {
  return opencl::clGetKernelInfo(kernel.at[kernel.home].real, parameter, wanted.room, wanted.value,
                                 wanted.length);
}

cl_int clGetKernelArgInfo(cl_kernel kernel, cl_uint arg_indx, cl_kernel_arg_info param_name,
                          size_t param_value_size, void* param_value,
                          size_t* param_value_size_ret) {
  const Kernel* found = find(kernel);
  if (found == nullptr) return CL_INVALID_KERNEL;
  return opencl::clGetKernelArgInfo(found->at[found->home].real, arg_indx, param_name,
                                    param_value_size, param_value, param_value_size_ret);
}

cl_int clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device,
                                cl_kernel_work_group_info param_name, size_t param_value_size,
                                void* param_value, size_t* param_value_size_ret) {
  Kernel* found = find(kernel);
  if (found == nullptr) return CL_INVALID_KERNEL;
  uint32_t member = 0;
  const cl_int result = make_at_device(found, device, &member);
  if (result != CL_SUCCESS) return result;
  return opencl::clGetKernelWorkGroupInfo(found->at[member].real, device, param_name,
                                          param_value_size, param_value, param_value_size_ret);
}

cl_int clGetKernelSubGroupInfo(cl_kernel kernel, cl_device_id device,
                               cl_kernel_sub_group_info param_name, size_t input_value_size,
                               const void* input_value, size_t param_value_size, void* param_value,
                               size_t* param_value_size_ret) {
  Kernel* found = find(kernel);
  if (found == nullptr) return CL_INVALID_KERNEL;
  uint32_t member = 0;
  const cl_int result = make_at_device(found, device, &member);
  if (result != CL_SUCCESS) return result;
  return opencl::clGetKernelSubGroupInfo(found->at[member].real, device, param_name,
                                         input_value_size, input_value, param_value_size,
                                         param_value, param_value_size_ret);
}

namespace {

// The event says CL_COMMAND_TASK for clEnqueueTask.
struct Range {
  cl_uint dimensions;
  const size_t *offset, *global, *local;
};
cl_int run_kernel(cl_command_queue command_queue, cl_kernel kernel, const Range& range,
                  cl_command_type type, cl_uint waits, const cl_event* wait, cl_event* event) {
  Command c(command_queue, waits, wait);
  Kernel* found = c.record(kernel);
  if (c.ok()) c.fail(make_at(found, c.member()));
  for (cl_uint i = 0; c.ok() && i < found->argument_count; ++i) {
    const Given& given = found->given[i];
    Object* object = nullptr;
    if (given.version == 0 || !object_of(given, &object)) {
      c.fail(CL_INVALID_KERNEL_ARGS);
    } else if (object != nullptr && given.is_memory) {
      auto* memory = static_cast<Memory*>(object);
      c.uses(memory, access_of(found, i, *memory));
    }
  }
  return c.run(type, false, event, [&](cl_event* made) {
    for (cl_uint i = 0; i < found->argument_count; ++i)
      if (const cl_int result = apply(found, i, c.member()); result != CL_SUCCESS) return result;
    return opencl::clEnqueueNDRangeKernel(c.queue(), found->at[c.member()].real, range.dimensions,
                                          range.offset, range.global, range.local, c.waits(),
                                          c.wait(), made);
  });
}

}  // namespace

cl_int clEnqueueNDRangeKernel(cl_command_queue command_queue, cl_kernel kernel, cl_uint work_dim,
                              const size_t* global_work_offset, const size_t* global_work_size,
                              const size_t* local_work_size, cl_uint num_events_in_wait_list,
                              const cl_event* event_wait_list, cl_event* event) {
  return run_kernel(command_queue, kernel,
                    {work_dim, global_work_offset, global_work_size, local_work_size},
                    CL_COMMAND_NDRANGE_KERNEL, num_events_in_wait_list, event_wait_list, event);
}

cl_int clEnqueueTask(cl_command_queue command_queue, cl_kernel kernel,
                     cl_uint num_events_in_wait_list, const cl_event* event_wait_list,
                     cl_event* event) {
  const size_t one = 1;
  return run_kernel(command_queue, kernel, {1, nullptr, &one, &one}, CL_COMMAND_TASK,
                    num_events_in_wait_list, event_wait_list, event);
}

}  // namespace tendril::client::opencl::spread

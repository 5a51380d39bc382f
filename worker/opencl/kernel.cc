// SPDX-License-Identifier: Apache-2.0
// Kernels, their arguments, and their work.
#include <cstring>

#include "api/opencl_handlers.gen.h"
#include "worker/opencl/executor.h"
#include "worker/opencl/scope.h"

namespace tendril::worker::opencl {
namespace {

using wire::opencl::ArgumentForm;

constexpr cl_uint kArgumentsMax = 4096;
constexpr uint8_t kUnknownForm = 255;

bool type_begins(const gpu::OpenclDriver& driver, cl_kernel kernel, cl_uint index,
                 const char* with) {
  char name[256] = {};
  return driver.clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_TYPE_NAME, sizeof name - 1, name,
                                   nullptr) == CL_SUCCESS &&
         std::strncmp(name, with, std::strlen(with)) == 0;
}

// What the driver says of an argument.
uint8_t form_of(const gpu::OpenclDriver& driver, cl_kernel kernel, cl_uint index) {
  cl_kernel_arg_address_qualifier place = 0;
  if (driver.clGetKernelArgInfo == nullptr ||
      driver.clGetKernelArgInfo(kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof place,
                                &place, nullptr) != CL_SUCCESS)
    return kUnknownForm;
  switch (place) {
    case CL_KERNEL_ARG_ADDRESS_LOCAL:
      return static_cast<uint8_t>(ArgumentForm::kLocal);
    case CL_KERNEL_ARG_ADDRESS_GLOBAL:
    case CL_KERNEL_ARG_ADDRESS_CONSTANT:
      return static_cast<uint8_t>(ArgumentForm::kMemory);
    default:
      break;
  }
  if (type_begins(driver, kernel, index, "sampler_t"))
    return static_cast<uint8_t>(ArgumentForm::kSampler);
  if (type_begins(driver, kernel, index, "queue_t"))
    return static_cast<uint8_t>(ArgumentForm::kQueue);
  if (type_begins(driver, kernel, index, "image"))
    return static_cast<uint8_t>(ArgumentForm::kMemory);
  return static_cast<uint8_t>(ArgumentForm::kValue);
}

cl_uint argument_count(const gpu::OpenclDriver& driver, cl_kernel kernel) {
  cl_uint count = 0;
  driver.clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof count, &count, nullptr);
  return count < kArgumentsMax ? count : kArgumentsMax;
}

template <typename T>
cl_int set_object(Executor& w, cl_kernel kernel, uint32_t index, uint64_t size, Kind kind,
                  uint64_t id) {
  Scope scope(w);
  T object = id != 0 ? scope.get<T>(kind, id) : nullptr;
  if (!scope.ok()) return CL_INVALID_ARG_VALUE;
  return w.driver().clSetKernelArg(kernel, index, size, &object);
}

// `size` is what the program said. The driver reads that many bytes of the value, so those of a
// value must be there, and an object is a pointer.
template <typename Request>
cl_int set_argument(Executor& w, const Request& m) {
  Scope scope(w);
  auto kernel = scope.get<cl_kernel>(Kind::kKernel, m.kernel);
  if (!scope.ok()) return scope.error();
  if (m.form == ArgumentForm::kLocal)
    return w.driver().clSetKernelArg(kernel, m.index, m.size, nullptr);
  if (m.form == ArgumentForm::kValue) {
    if (m.value.count != m.size) return CL_INVALID_ARG_SIZE;
    return w.driver().clSetKernelArg(kernel, m.index, m.size, m.value.data);
  }
  if (m.size != sizeof(cl_mem)) return CL_INVALID_ARG_SIZE;
  if (m.form == ArgumentForm::kShared) {
    if (w.driver().clSetKernelArgSVMPointer == nullptr) return CL_INVALID_OPERATION;
    if (m.object != 0 && !w.shared().has(m.object, 1)) return CL_INVALID_ARG_VALUE;
    return w.driver().clSetKernelArgSVMPointer(kernel, m.index,
                                               reinterpret_cast<const void*>(m.object));
  }
  if (m.form == ArgumentForm::kSampler)
    return set_object<cl_sampler>(w, kernel, m.index, m.size, Kind::kSampler, m.object);
  if (m.form == ArgumentForm::kQueue)
    return set_object<cl_command_queue>(w, kernel, m.index, m.size, Kind::kQueue, m.object);
  return set_object<cl_mem>(w, kernel, m.index, m.size, Kind::kMemory, m.object);
}

}  // namespace

cl_int handle(Executor& w, const wire::opencl::kernel_create_request& m,
              wire::opencl::kernel_create_reply& r) {
  Scope scope(w);
  scope.reserve(Kind::kKernel, m.kernel);
  auto program = scope.get<cl_program>(Kind::kProgram, m.program);
  const char* name = scope.text(m.name);
  if (!scope.ok()) return scope.error();
  const gpu::OpenclDriver& driver = w.driver();
  cl_int result = CL_SUCCESS;
  cl_kernel kernel = driver.clCreateKernel(program, name, &result);
  if (result != CL_SUCCESS) return result;
  const cl_uint count = argument_count(driver, kernel);
  auto* forms = scope.scratch<uint8_t>(count + 1);
  if (forms == nullptr) {
    driver.clReleaseKernel(kernel);
    return scope.error();
  }
  for (cl_uint i = 0; i < count; ++i) forms[i] = form_of(driver, kernel, i);
  r.forms = {forms, count};
  scope.bind(Kind::kKernel, m.kernel, kernel);
  return result;
}

cl_int handle(Executor& w, const wire::opencl::kernel_names_request& m,
              wire::opencl::kernel_names_reply& r) {
  Scope scope(w);
  auto program = scope.get<cl_program>(Kind::kProgram, m.program);
  if (!scope.ok()) return scope.error();
  const gpu::OpenclDriver& driver = w.driver();
  if (driver.clCreateKernelsInProgram == nullptr) return CL_INVALID_OPERATION;
  // A program that is not built has no names: some drivers refuse to say them, some say none.
  size_t bytes = 0;
  cl_uint count = 0;
  if (driver.clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, 0, nullptr, &bytes) != CL_SUCCESS ||
      driver.clCreateKernelsInProgram(program, 0, nullptr, &count) != CL_SUCCESS)
    return CL_INVALID_PROGRAM_EXECUTABLE;
  auto* names = bytes < wire::kReplyBytesMax / 2 ? scope.scratch<uint8_t>(bytes + 1) : nullptr;
  if (names == nullptr) return CL_OUT_OF_HOST_MEMORY;
  r.names = {names, bytes};
  return driver.clGetProgramInfo(program, CL_PROGRAM_KERNEL_NAMES, bytes, names, nullptr);
}

cl_int handle(Executor& w, const wire::opencl::kernel_clone_request& m,
              wire::opencl::kernel_clone_reply&) {
  Scope scope(w);
  scope.reserve(Kind::kKernel, m.kernel);
  auto from = scope.get<cl_kernel>(Kind::kKernel, m.from);
  if (!scope.ok()) return scope.error();
  if (w.driver().clCloneKernel == nullptr) return CL_INVALID_OPERATION;
  cl_int result = CL_SUCCESS;
  cl_kernel kernel = w.driver().clCloneKernel(from, &result);
  if (result == CL_SUCCESS) scope.bind(Kind::kKernel, m.kernel, kernel);
  return result;
}

cl_int handle(Executor& w, const wire::opencl::argument_try_request& m,
              wire::opencl::argument_try_reply&) {
  return set_argument(w, m);
}

cl_int handle(Executor& w, const wire::opencl::argument_set_request& m) {
  return set_argument(w, m);
}

namespace {

template <typename Request>
cl_int run_range(Executor& w, const Request& m) {
  Scope scope(w);
  if (m.event != 0) scope.reserve(Kind::kEvent, m.event);
  auto queue = scope.get<cl_command_queue>(Kind::kQueue, m.queue);
  auto kernel = scope.get<cl_kernel>(Kind::kKernel, m.kernel);
  const cl_event* wait = scope.handles<cl_event>(Kind::kEvent, m.wait);
  if (m.dimensions < 1 || m.dimensions > 3) scope.fail(CL_INVALID_WORK_DIMENSION);
  scope.length(m.offset.count, m.dimensions, true);
  scope.length(m.global.count, m.dimensions, true);
  scope.length(m.local.count, m.dimensions, true);
  if (!scope.ok()) return scope.error();
  uint64_t items = 1;
  for (const uint64_t extent : m.global) items *= extent;
  QueueState& state = *w.queue(m.queue);
  if (!w.gate().may_work(state.slot, state.context, queue, m.kernel, items))
    return CL_DEVICE_NOT_AVAILABLE;
  static_assert(sizeof(size_t) == sizeof(uint64_t));
  cl_event event = nullptr;
  const cl_int result = w.driver().clEnqueueNDRangeKernel(
      queue, kernel, m.dimensions, scope.resolve_all(m.offset), scope.resolve_all(m.global),
      scope.resolve_all(m.local), static_cast<cl_uint>(m.wait.count), wait,
      m.event != 0 || state.in_order ? &event : nullptr);
  if (result != CL_SUCCESS) return result;
  if (m.event != 0) scope.bind(Kind::kEvent, m.event, event);
  if (!state.in_order) return result;
  if (m.event != 0) w.driver().clRetainEvent(event);
  w.last_is(&state, event);
  return result;
}

}  // namespace

cl_int handle(Executor& w, const wire::opencl::range_try_request& m,
              wire::opencl::range_try_reply&) {
  return run_range(w, m);
}

cl_int handle(Executor& w, const wire::opencl::range_run_request& m) { return run_range(w, m); }

}  // namespace tendril::worker::opencl

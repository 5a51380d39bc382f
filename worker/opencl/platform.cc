// SPDX-License-Identifier: Apache-2.0
// Devices of the session, and what the driver says of objects, as bytes.
#include <algorithm>
#include <cstring>

#include "api/opencl_handlers.gen.h"
#include "worker/opencl/executor.h"
#include "worker/opencl/scope.h"

namespace tendril::worker::opencl {
namespace {

using Request = wire::opencl::information_request;
using wire::opencl::Subject;

// The rest of a reply's body.
constexpr uint64_t kAnswerBytesMax = wire::kReplyBytesMax - 256;

// A question to the driver: who is asked, and where the answer goes.
struct Question {
  const gpu::OpenclDriver& driver;
  const Request& message;
  size_t room;
  void* into;
  size_t* length;
};

template <typename Ask>
cl_int ask(Ask* function, const Question& question, auto... who) {
  if (function == nullptr) return CL_INVALID_OPERATION;
  return function(who..., question.message.parameter, question.room, question.into,
                  question.length);
}

cl_int about_kernel(Scope& scope, const Question& question) {
  const gpu::OpenclDriver& driver = question.driver;
  const Request& m = question.message;
  auto kernel = scope.get<cl_kernel>(Kind::kKernel, m.object);
  if (m.subject == Subject::kKernel)
    return scope.ok() ? ask(driver.clGetKernelInfo, question, kernel) : scope.error();
  if (m.subject == Subject::kArgument)
    return scope.ok()
               ? ask(driver.clGetKernelArgInfo, question, kernel, static_cast<cl_uint>(m.other))
               : scope.error();
  auto device = m.other != 0 ? scope.get<cl_device_id>(Kind::kDevice, m.other) : nullptr;
  if (!scope.ok()) return scope.error();
  if (m.subject == Subject::kWorkGroup)
    return ask(driver.clGetKernelWorkGroupInfo, question, kernel, device);
  if (driver.clGetKernelSubGroupInfo == nullptr) return CL_INVALID_OPERATION;
  return driver.clGetKernelSubGroupInfo(kernel, device, m.parameter, m.input.count, m.input.data,
                                        question.room, question.into, question.length);
}

cl_int about_program(Scope& scope, const Question& question) {
  const gpu::OpenclDriver& driver = question.driver;
  const Request& m = question.message;
  auto program = scope.get<cl_program>(Kind::kProgram, m.object);
  // The driver would write to addresses that the answer's room has; program_binaries has its own.
  if (m.parameter == CL_PROGRAM_BINARIES && m.subject == Subject::kProgram) return CL_INVALID_VALUE;
  if (m.subject == Subject::kProgram)
    return scope.ok() ? ask(driver.clGetProgramInfo, question, program) : scope.error();
  auto device = scope.get<cl_device_id>(Kind::kDevice, m.other);
  return scope.ok() ? ask(driver.clGetProgramBuildInfo, question, program, device) : scope.error();
}

template <typename T, typename Ask>
cl_int about(Scope& scope, Kind kind, Ask* function, const Question& question) {
  auto object = scope.get<T>(kind, question.message.object);
  return scope.ok() ? ask(function, question, object) : scope.error();
}

cl_int about_any(Executor& w, Scope& scope, const Question& question) {
  const gpu::OpenclDriver& driver = question.driver;
  switch (question.message.subject) {
    case Subject::kPlatform:
      if (question.message.object >= w.platforms().size()) return CL_INVALID_PLATFORM;
      return ask(driver.clGetPlatformInfo, question, w.platforms()[question.message.object]);
    case Subject::kDevice:
      return about<cl_device_id>(scope, Kind::kDevice, driver.clGetDeviceInfo, question);
    case Subject::kContext:
      return about<cl_context>(scope, Kind::kContext, driver.clGetContextInfo, question);
    case Subject::kQueue:
      return about<cl_command_queue>(scope, Kind::kQueue, driver.clGetCommandQueueInfo, question);
    case Subject::kMemory:
      return about<cl_mem>(scope, Kind::kMemory, driver.clGetMemObjectInfo, question);
    case Subject::kImage:
      return about<cl_mem>(scope, Kind::kMemory, driver.clGetImageInfo, question);
    case Subject::kPipe:
      return about<cl_mem>(scope, Kind::kMemory, driver.clGetPipeInfo, question);
    case Subject::kSampler:
      return about<cl_sampler>(scope, Kind::kSampler, driver.clGetSamplerInfo, question);
    case Subject::kEvent:
      return about<cl_event>(scope, Kind::kEvent, driver.clGetEventInfo, question);
    case Subject::kProfiling:
      return about<cl_event>(scope, Kind::kEvent, driver.clGetEventProfilingInfo, question);
    case Subject::kProgram:
    case Subject::kBuild:
      return about_program(scope, question);
    case Subject::kKernel:
    case Subject::kArgument:
    case Subject::kWorkGroup:
    case Subject::kSubGroup:
      return about_kernel(scope, question);
  }
  return CL_INVALID_VALUE;
}

// A slice looks like a device of its size. An event whose data are on the way is not over.
void correct(Executor& w, const Request& m, uint8_t* value, uint64_t length) {
  if (m.subject == Subject::kDevice && length == sizeof(cl_ulong) &&
      (m.parameter == CL_DEVICE_GLOBAL_MEM_SIZE || m.parameter == CL_DEVICE_MAX_MEM_ALLOC_SIZE)) {
    auto* const device = static_cast<cl_device_id>(w.objects().find(Kind::kDevice, m.object));
    cl_ulong bytes = 0;
    std::memcpy(&bytes, value, sizeof bytes);
    bytes = std::min<cl_ulong>(bytes, w.charge().quota(w.slot_of(device)));
    std::memcpy(value, &bytes, sizeof bytes);
  }
  if (m.subject == Subject::kEvent && m.parameter == CL_EVENT_COMMAND_EXECUTION_STATUS &&
      length == sizeof(cl_int) && w.held(m.object) != nullptr) {
    cl_int status = CL_COMPLETE;
    std::memcpy(&status, value, sizeof status);
    status = std::max<cl_int>(status, CL_RUNNING);
    std::memcpy(value, &status, sizeof status);
  }
}

}  // namespace

cl_int handle(Executor& w, const wire::opencl::session_devices_request&,
              wire::opencl::session_devices_reply& r) {
  Scope scope(w);
  const size_t count = w.devices().size();
  auto* platforms = scope.scratch<uint32_t>(count);
  auto* ids = scope.scratch<uint64_t>(count);
  auto* kinds = scope.scratch<uint64_t>(count);
  if (!scope.ok()) return scope.error();
  for (size_t slot = 0; slot < count; ++slot) {
    const gpu::OpenclDriver::Device& device = w.devices()[slot];
    if (device.id == nullptr) return CL_DEVICE_NOT_AVAILABLE;
    const auto at = std::find(w.platforms().begin(), w.platforms().end(), device.platform);
    platforms[slot] = static_cast<uint32_t>(at - w.platforms().begin());
    ids[slot] = w.objects().id_of(Kind::kDevice, device.id);
    kinds[slot] = w.driver().number_of(device.id, CL_DEVICE_TYPE);
  }
  r.platform = {platforms, count};
  r.device = {ids, count};
  r.kind = {kinds, count};
  return CL_SUCCESS;
}

cl_int handle(Executor& w, const wire::opencl::sub_devices_create_request& m,
              wire::opencl::sub_devices_create_reply& r) {
  constexpr uint64_t kPropertiesMost = 4096;
  constexpr cl_uint kPartsMost = 1024;
  Scope scope(w);
  auto whole = scope.get<cl_device_id>(Kind::kDevice, m.device);
  auto* parts = scope.scratch<cl_device_id>(kPartsMost);
  auto* ids = scope.scratch<uint64_t>(kPartsMost);
  if (!scope.ok()) return scope.error();
  // The driver reads to the 0 that ends the list, and for counts to two of them.
  const uint64_t count = m.properties.count;
  if (count < 3 || count > kPropertiesMost || m.properties[count - 1] != 0 ||
      (m.properties[0] == CL_DEVICE_PARTITION_BY_COUNTS && m.properties[count - 2] != 0))
    return CL_INVALID_VALUE;
  if (w.driver().clCreateSubDevices == nullptr) return CL_INVALID_OPERATION;
  cl_uint made = 0;
  const cl_uint room = std::min(m.room, kPartsMost);
  const cl_int result = w.driver().clCreateSubDevices(
      whole, reinterpret_cast<const cl_device_partition_property*>(m.properties.data), room,
      room != 0 ? parts : nullptr, &made);
  if (result != CL_SUCCESS) return result;
  r.count = made;
  for (cl_uint i = 0; i < made && i < room; ++i) {
    ids[i] = w.objects().id_of(Kind::kDevice, parts[i]);
    w.part_made(parts[i], whole);
  }
  if (room != 0) r.devices = {ids, std::min(made, room)};
  return result;
}

cl_int handle(Executor& w, const wire::opencl::information_request& m,
              wire::opencl::information_reply& r) {
  Scope scope(w);
  const uint64_t room = m.wanted != 0 ? std::min(m.room, kAnswerBytesMax) : 0;
  auto* value = scope.scratch<uint8_t>(room + 8);
  if (!scope.ok()) return scope.error();
  std::memset(value, 0, room + 8);
  size_t length = 0;
  const Question question = {w.driver(), m, room, m.wanted != 0 ? value : nullptr, &length};
  const cl_int result = about_any(w, scope, question);
  if (result != CL_SUCCESS) return result;
  r.length = length;
  if (m.wanted == 0) return result;
  const uint64_t filled = std::min<uint64_t>(length, room);
  correct(w, m, value, filled);
  r.value = {value, filled};
  return result;
}

}  // namespace tendril::worker::opencl

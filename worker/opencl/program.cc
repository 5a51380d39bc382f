// SPDX-License-Identifier: Apache-2.0
// Programs. Building takes long, so it runs on a thread of its own, and the executor goes on.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "api/opencl_handlers.gen.h"
#include "worker/opencl/executor.h"
#include "worker/opencl/scope.h"

namespace tendril::worker::opencl {
namespace {

constexpr uint64_t kDevicesMax = 64, kInputsMax = 4096, kProgramBytesMax = 512u << 20;
using wire::opencl::ProgramForm;

// What a thread needs of a call once the executor goes on.
struct Building {
  const gpu::OpenclDriver& driver;
  session::Service* service;
  uint32_t reply_id;
  cl_program program;
  std::vector<cl_device_id> devices;
  std::string options;
  std::shared_ptr<const IncludeFolder> included;

  void answer(cl_int result) const {
    if (program != nullptr) driver.clReleaseProgram(program);
    service->reply(reply_id, result, nullptr, 0);
  }
  const cl_device_id* list() const { return devices.empty() ? nullptr : devices.data(); }
  cl_uint count() const { return static_cast<cl_uint>(devices.size()); }
};

// A driver refuses to build a program that has kernels. The program's are released, and drivers
// keep one a little longer than its last command takes.
template <typename Build>
cl_int once_kernels_are_gone(Build build) {
  constexpr int kTries = 100;
  constexpr auto kPause = std::chrono::milliseconds(1);
  cl_int result = build();
  for (int i = 0; i < kTries && result == CL_INVALID_OPERATION; ++i) {
    std::this_thread::sleep_for(kPause);
    result = build();
  }
  return result;
}

std::vector<cl_device_id> devices_of(Scope& scope, const wire::Array<uint64_t>& ids) {
  if (ids.count > kDevicesMax) scope.fail(CL_INVALID_VALUE);
  const cl_device_id* found =
      scope.ok() ? scope.handles<cl_device_id>(Kind::kDevice, ids) : nullptr;
  return found != nullptr ? std::vector<cl_device_id>(found, found + ids.count)
                          : std::vector<cl_device_id>();
}

// What a program is made of: the bytes in the call, or an image in the store.
struct Content {
  CodeStore::Image kept;
  const uint8_t* bytes = nullptr;  // null: they are not as many as the call says
  bool missing = false;            // the store has no such image
};
template <typename Request>
Content content_of(Executor& w, const Request& m, const wire::Bytes& inside) {
  Content content;
  if (m.hash.count != 0) {
    content.kept = w.code().find(hash_text(m.hash), m.bytes);
    content.missing = content.kept == nullptr;
    if (!content.missing) content.bytes = content.kept->data.get();
  } else if (inside.count == m.bytes) {
    content.bytes = inside.data;
  }
  return content;
}

// Before OpenCL 2.1 it is a function of an extension. Null: the driver takes no language.
clCreateProgramWithIL_t* function_for_language(const gpu::OpenclDriver& driver,
                                               const std::vector<cl_device_id>& devices) {
  if (driver.clCreateProgramWithIL != nullptr) return driver.clCreateProgramWithIL;
  cl_platform_id platform = nullptr;
  if (devices.empty() || driver.clGetExtensionFunctionAddressForPlatform == nullptr ||
      driver.clGetDeviceInfo(devices.front(), CL_DEVICE_PLATFORM, sizeof platform, &platform,
                             nullptr) != CL_SUCCESS ||
      driver.text_of(devices.front(), CL_DEVICE_EXTENSIONS).find("cl_khr_il_program") ==
          std::string::npos)
    return nullptr;
  return reinterpret_cast<clCreateProgramWithIL_t*>(
      driver.clGetExtensionFunctionAddressForPlatform(platform, "clCreateProgramWithILKHR"));
}

std::string text_of(const wire::Bytes& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data), bytes.count);
}

template <typename Request>
Building building_of(Executor& w, Scope& scope, const Request& m) {
  auto program = scope.get<cl_program>(Kind::kProgram, m.program);
  Building building = {
      w.driver(),         &w.service(), w.call().reply_id, program, devices_of(scope, m.devices),
      text_of(m.options), nullptr};
  const auto found = w.included().find(m.program);
  if (found == w.included().end()) return building;
  building.included = std::move(found->second);
  w.included().erase(found);
  building.options = building.included->put_into(building.options);
  return building;
}

}  // namespace

// An upload that fails is not there when a program wants it.
cl_int handle(Executor& w, const wire::opencl::program_upload_request& m) {
  const uint64_t limit = std::min(w.host().most(), kProgramBytesMax + 1);
  w.code().add(hash_text(m.hash), receive_image(&w.service(), limit, m.transfer, m.bytes, {}));
  return CL_SUCCESS;
}

cl_int handle(Executor& w, const wire::opencl::program_create_request& m,
              wire::opencl::program_create_reply& r) {
  Scope scope(w);
  scope.reserve(Kind::kProgram, m.program);
  auto context = scope.get<cl_context>(Kind::kContext, m.context);
  const std::vector<cl_device_id> devices = devices_of(scope, m.devices);
  if (!scope.ok()) return scope.error();
  if (m.bytes == 0 || m.bytes > kProgramBytesMax) return CL_INVALID_VALUE;
  const Content content = content_of(w, m, m.text);
  r.missing = content.missing;
  if (content.missing) return CL_SUCCESS;
  const uint8_t* bytes = content.bytes;
  if (bytes == nullptr) return CL_INVALID_VALUE;
  const gpu::OpenclDriver& driver = w.driver();
  cl_int result = CL_INVALID_OPERATION;
  cl_program program = nullptr;
  if (m.form == ProgramForm::kSource) {
    const char* text = reinterpret_cast<const char*>(bytes);
    const size_t length = m.bytes;
    program = driver.clCreateProgramWithSource(context, 1, &text, &length, &result);
  } else if (m.form == ProgramForm::kLanguage) {
    auto* const create = function_for_language(driver, devices);
    if (create == nullptr) return CL_INVALID_OPERATION;
    program = create(context, bytes, m.bytes, &result);
  } else if (m.form == ProgramForm::kBuiltIn) {
    const std::string names(reinterpret_cast<const char*>(bytes), m.bytes);
    program = driver.clCreateProgramWithBuiltInKernels(
        context, static_cast<cl_uint>(devices.size()), devices.data(), names.c_str(), &result);
  }
  if (result == CL_SUCCESS) scope.bind(Kind::kProgram, m.program, program);
  return result;
}

cl_int handle(Executor& w, const wire::opencl::program_from_binaries_request& m,
              wire::opencl::program_from_binaries_reply& r) {
  Scope scope(w);
  scope.reserve(Kind::kProgram, m.program);
  auto context = scope.get<cl_context>(Kind::kContext, m.context);
  const std::vector<cl_device_id> devices = devices_of(scope, m.devices);
  if (!scope.ok()) return scope.error();
  const uint64_t count = devices.size();
  if (count == 0 || m.lengths.count != count || m.bytes == 0 || m.bytes > kProgramBytesMax)
    return CL_INVALID_VALUE;
  const Content content = content_of(w, m, m.data);
  r.missing = content.missing;
  if (content.missing) return CL_SUCCESS;
  const uint8_t* bytes = content.bytes;
  if (bytes == nullptr) return CL_INVALID_VALUE;
  std::vector<size_t> lengths(count);
  std::vector<const unsigned char*> binaries(count);
  uint64_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (m.lengths[i] == 0 || m.lengths[i] > m.bytes - at) return CL_INVALID_VALUE;
    lengths[i] = m.lengths[i];
    binaries[i] = bytes + at;
    at += m.lengths[i];
  }
  auto* status = scope.scratch<int32_t>(count);
  if (!scope.ok()) return scope.error();
  std::fill_n(status, count, CL_SUCCESS);
  cl_int result = CL_SUCCESS;
  cl_program program =
      w.driver().clCreateProgramWithBinary(context, static_cast<cl_uint>(count), devices.data(),
                                           lengths.data(), binaries.data(), status, &result);
  if (result == CL_SUCCESS) scope.bind(Kind::kProgram, m.program, program);
  r.status = {status, count};
  w.replies().reply_with_body_anyway();
  return result;
}

cl_int handle(Executor& w, const wire::opencl::program_files_request& m,
              wire::opencl::program_files_reply& r) {
  Scope scope(w);
  scope.get<cl_program>(Kind::kProgram, m.program);
  if (!scope.ok()) return scope.error();
  const Content content = content_of(w, m, m.data);
  r.missing = content.missing;
  if (content.missing) return CL_SUCCESS;
  if (content.bytes == nullptr && m.bytes != 0) return CL_INVALID_VALUE;
  auto folder = IncludeFolder::make(m.names, m.lengths, content.bytes, m.bytes);
  if (folder == nullptr) return CL_INVALID_VALUE;
  w.included()[m.program] = std::move(folder);
  return CL_SUCCESS;
}

cl_int handle(Executor& w, const wire::opencl::specialization_set_request& m,
              wire::opencl::specialization_set_reply&) {
  Scope scope(w);
  auto program = scope.get<cl_program>(Kind::kProgram, m.program);
  if (!scope.ok()) return scope.error();
  if (m.value.count == 0) return CL_INVALID_VALUE;
  if (w.driver().clSetProgramSpecializationConstant == nullptr) return CL_INVALID_OPERATION;
  return w.driver().clSetProgramSpecializationConstant(program, m.number, m.value.count,
                                                       m.value.data);
}

cl_int handle(Executor& w, const wire::opencl::program_build_request& m,
              wire::opencl::program_build_reply&) {
  Scope scope(w);
  Building building = building_of(w, scope, m);
  if (!scope.ok()) return scope.error();
  w.driver().clRetainProgram(building.program);
  w.in_background([building = std::move(building)] {
    building.answer(once_kernels_are_gone([&] {
      return building.driver.clBuildProgram(building.program, building.count(), building.list(),
                                            building.options.c_str(), nullptr, nullptr);
    }));
  });
  return CL_SUCCESS;
}

cl_int handle(Executor& w, const wire::opencl::program_compile_request& m,
              wire::opencl::program_compile_reply&) {
  Scope scope(w);
  Building building = building_of(w, scope, m);
  if (m.headers.count > kInputsMax) scope.fail(CL_INVALID_VALUE);
  const cl_program* found =
      scope.ok() ? scope.handles<cl_program>(Kind::kProgram, m.headers) : nullptr;
  std::vector<std::string> names(1);
  for (const uint8_t letter : m.names) {
    if (letter != 0)
      names.back().push_back(static_cast<char>(letter));
    else
      names.emplace_back();
  }
  names.pop_back();
  if (names.size() != m.headers.count) scope.fail(CL_INVALID_VALUE);
  if (!scope.ok()) return scope.error();
  if (w.driver().clCompileProgram == nullptr) return CL_INVALID_OPERATION;
  std::vector<cl_program> headers(found, found + m.headers.count);
  for (cl_program each : headers) w.driver().clRetainProgram(each);
  w.driver().clRetainProgram(building.program);
  w.in_background(
      [building = std::move(building), headers = std::move(headers), names = std::move(names)] {
        std::vector<const char*> texts;
        for (const std::string& name : names) texts.push_back(name.c_str());
        const bool some = !headers.empty();
        const cl_int result = once_kernels_are_gone([&] {
          return building.driver.clCompileProgram(
              building.program, building.count(), building.list(), building.options.c_str(),
              static_cast<cl_uint>(headers.size()), some ? headers.data() : nullptr,
              some ? texts.data() : nullptr, nullptr, nullptr);
        });
        for (cl_program each : headers) building.driver.clReleaseProgram(each);
        building.answer(result);
      });
  return CL_SUCCESS;
}

// A new object of the driver, so it runs here: no other thread may bind objects.
cl_int handle(Executor& w, const wire::opencl::program_link_request& m,
              wire::opencl::program_link_reply&) {
  Scope scope(w);
  scope.reserve(Kind::kProgram, m.program);
  auto context = scope.get<cl_context>(Kind::kContext, m.context);
  const std::vector<cl_device_id> devices = devices_of(scope, m.devices);
  if (m.inputs.count == 0 || m.inputs.count > kInputsMax) scope.fail(CL_INVALID_VALUE);
  const cl_program* inputs =
      scope.ok() ? scope.handles<cl_program>(Kind::kProgram, m.inputs) : nullptr;
  const char* options = scope.text(m.options);
  if (!scope.ok()) return scope.error();
  cl_int result = CL_SUCCESS;
  cl_program program = w.driver().clLinkProgram(
      context, static_cast<cl_uint>(devices.size()), devices.empty() ? nullptr : devices.data(),
      options, static_cast<cl_uint>(m.inputs.count), inputs, nullptr, nullptr, &result);
  // A program whose linking failed exists, with its log.
  if (program != nullptr) scope.bind(Kind::kProgram, m.program, program);
  return result;
}

cl_int handle(Executor& w, const wire::opencl::program_binaries_request& m,
              wire::opencl::program_binaries_reply& r) {
  Scope scope(w);
  auto program = scope.get<cl_program>(Kind::kProgram, m.program);
  if (!scope.ok()) return scope.error();
  const gpu::OpenclDriver& driver = w.driver();
  size_t sizes[kDevicesMax] = {}, bytes = 0;
  cl_int result =
      driver.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof sizes, sizes, &bytes);
  if (result != CL_SUCCESS) return result;
  const uint64_t count = std::min<uint64_t>(bytes / sizeof(size_t), kDevicesMax);
  uint64_t total = 0;
  for (uint64_t i = 0; i < count; ++i) total += std::min<uint64_t>(sizes[i], kProgramBytesMax);
  auto* lengths = scope.scratch<uint64_t>(count);
  auto* pointers = scope.scratch<unsigned char*>(count);
  auto* data = scope.scratch<uint8_t>(total + 8);
  if (!scope.ok()) return scope.error();
  uint64_t at = 0;
  for (uint64_t i = 0; i < count; ++i) {
    lengths[i] = sizes[i];
    pointers[i] = sizes[i] != 0 ? data + at : nullptr;
    at += sizes[i];
  }
  r.lengths = {lengths, count};
  if (m.room == 0) return CL_SUCCESS;  // the client only asks how long they are
  if (m.room != total) return CL_INVALID_VALUE;
  result = driver.clGetProgramInfo(program, CL_PROGRAM_BINARIES, count * sizeof(unsigned char*),
                                   pointers, nullptr);
  if (result != CL_SUCCESS || m.transfer == 0) {
    if (total <= wire::kInlineBytesMax) r.data = {data, total};
    return result;
  }
  w.service().send_bulk(m.transfer, 0, data, total);
  w.service().transfer_sent(m.transfer);
  return CL_SUCCESS;
}

}  // namespace tendril::worker::opencl

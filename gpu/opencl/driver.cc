// SPDX-License-Identifier: Apache-2.0
// See driver.h.
#include "gpu/opencl/driver.h"

#include <cstring>
#include <iterator>

#include "gpu/binding.h"

namespace tendril::gpu {
namespace {

constexpr size_t kTextBytesMax = 64 << 10;

// What `ask` (a clGet*Info with its object bound) says as text, without the NUL.
template <typename Ask>
std::string text_from(Ask&& ask) {
  size_t bytes = 0;
  if (ask(0, nullptr, &bytes) != CL_SUCCESS || bytes < 2 || bytes > kTextBytesMax) return "";
  std::string text(bytes, '\0');
  if (ask(bytes, text.data(), nullptr) != CL_SUCCESS) return "";
  text.resize(strnlen(text.data(), bytes));
  return text;
}

}  // namespace

base::Result<std::unique_ptr<OpenclDriver>> OpenclDriver::open(const std::string& path) {
  const std::string name = path.empty() ? "libOpenCL.so.1" : path;
  std::string why;
  void* library = open_library(name, &why);
  if (library == nullptr) {
    return base::Status(base::Code::kNotFound,
                        "cannot open the OpenCL library '" + name + "': " + why +
                            "; install an OpenCL loader (Debian: ocl-icd-libopencl1) and a driver, "
                            "or name a library with --driver");
  }
  std::unique_ptr<OpenclDriver> driver(new OpenclDriver);
  driver->path_ = file_of(library, name);
#define TENDRIL_DRIVER_BIND(symbol, result, arguments, names) \
  {#symbol, offset_of(driver.get(), &driver->symbol)},
  const Binding bindings[] = {TENDRIL_OPENCL_FUNCTIONS(TENDRIL_DRIVER_BIND)};
#undef TENDRIL_DRIVER_BIND
  bind(library, bindings, std::size(bindings), driver.get());
  if (driver->clGetPlatformIDs == nullptr || driver->clGetPlatformInfo == nullptr ||
      driver->clGetDeviceIDs == nullptr || driver->clGetDeviceInfo == nullptr) {
    return base::Status(base::Code::kMismatch,
                        "'" + name + "' is not an OpenCL library (it has no clGetPlatformIDs)");
  }
  return driver;
}

std::vector<OpenclDriver::Device> OpenclDriver::devices() const {
  constexpr cl_uint kPlatformsMax = 64, kDevicesMax = 256;
  cl_platform_id platforms[kPlatformsMax];
  cl_uint count = 0;
  std::vector<Device> all;
  if (clGetPlatformIDs(kPlatformsMax, platforms, &count) != CL_SUCCESS) return all;
  for (cl_uint i = 0; i < count && i < kPlatformsMax; ++i) {
    cl_device_id devices[kDevicesMax];
    cl_uint found = 0;
    if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, kDevicesMax, devices, &found) !=
        CL_SUCCESS)
      continue;
    for (cl_uint j = 0; j < found && j < kDevicesMax; ++j)
      all.push_back({devices[j], platforms[i]});
  }
  return all;
}

std::string OpenclDriver::text_of(cl_device_id device, cl_device_info parameter) const {
  return text_from([&](size_t bytes, void* into, size_t* length) {
    return clGetDeviceInfo(device, parameter, bytes, into, length);
  });
}

std::string OpenclDriver::text_of(cl_platform_id platform, cl_platform_info parameter) const {
  return text_from([&](size_t bytes, void* into, size_t* length) {
    return clGetPlatformInfo(platform, parameter, bytes, into, length);
  });
}

uint64_t OpenclDriver::number_of(cl_device_id device, cl_device_info parameter) const {
  uint64_t value = 0;
  size_t bytes = 0;
  if (clGetDeviceInfo(device, parameter, sizeof value, &value, &bytes) != CL_SUCCESS) return 0;
  if (bytes < sizeof value) value &= (uint64_t{1} << (8 * bytes)) - 1;
  return value;
}

}  // namespace tendril::gpu

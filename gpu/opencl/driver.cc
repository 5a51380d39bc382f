// SPDX-License-Identifier: Apache-2.0
// See driver.h.
#include "gpu/opencl/driver.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "api/opencl/versions.h"
#include "gpu/binding.h"

namespace tendril::gpu {
namespace {

constexpr size_t kTextBytesMax = 64 << 10;
constexpr int kOldestVersion = 10, kNewestVersion = 99;  // 10 times what is written

// 0: it is not written as OpenCL wants it.
int version_in(const std::string& text) {
  int major = 0, minor = 0;
  return sscanf(text.c_str(), "OpenCL %2d.%1d", &major, &minor) == 2 ? 10 * major + minor : 0;
}

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

OpenclDriver OpenclDriver::for_platforms(const std::vector<cl_platform_id>& platforms) const {
  int oldest = kNewestVersion;
  for (cl_platform_id platform : platforms) {
    const int version = version_in(text_of(platform, CL_PLATFORM_VERSION));
    oldest = std::min(oldest, version != 0 ? version : kOldestVersion);
  }
  OpenclDriver driver = *this;
#define TENDRIL_DRIVER_FORGET(symbol) driver.symbol = nullptr;
  if (oldest < 20) {
    TENDRIL_OPENCL_SINCE_20(TENDRIL_DRIVER_FORGET)
  }
  if (oldest < 21) {
    TENDRIL_OPENCL_SINCE_21(TENDRIL_DRIVER_FORGET)
  }
  if (oldest < 22) {
    TENDRIL_OPENCL_SINCE_22(TENDRIL_DRIVER_FORGET)
  }
  if (oldest < 30) {
    TENDRIL_OPENCL_SINCE_30(TENDRIL_DRIVER_FORGET)
  }
#undef TENDRIL_DRIVER_FORGET
  return driver;
}

std::vector<std::string> OpenclDriver::places_of_drivers() {
  const char* named = getenv("OCL_ICD_VENDORS");
  const std::string vendors = named != nullptr ? named : "/etc/OpenCL/vendors";
  std::vector<std::string> places = {vendors}, files;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(vendors.c_str()), closedir);
  if (folder == nullptr) files.push_back(vendors);
  while (const dirent* const entry = folder != nullptr ? readdir(folder.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (name.size() > 4 && name.compare(name.size() - 4, 4, ".icd") == 0)
      files.push_back(vendors + "/" + name);
  }
  for (const std::string& file : files) {
    std::string library = file;
    if (file.size() > 4 && file.compare(file.size() - 4, 4, ".icd") == 0) {
      std::ifstream text(file);
      std::getline(text, library);
    }
    const size_t end = library.rfind('/');
    if (end != std::string::npos && end != 0) places.push_back(library.substr(0, end));
  }
  return places;
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

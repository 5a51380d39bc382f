// SPDX-License-Identifier: Apache-2.0
// Opens the machine's OpenCL, libOpenCL.so.1, and holds every entry point by its name. Nothing else
// opens it. worker/opencl and the inventory use this. Opening creates nothing on a device. An entry
// point that the library lacks is null: check it before you call it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/opencl_abi.gen.h"
#include "base/result.h"

namespace tendril::gpu {

class OpenclDriver {
 public:
  // `path`: a file or soname; empty: "libOpenCL.so.1".
  static base::Result<std::unique_ptr<OpenclDriver>> open(const std::string& path);

  // What a loader reads to find drivers: the place of their .icd files (OCL_ICD_VENDORS, or
  // /etc/OpenCL/vendors), and the folders of libraries that these files name by path.
  static std::vector<std::string> places_of_drivers();

  const std::string& path() const { return path_; }

  // The same for objects of these platforms. What the oldest of them does not have is null: its
  // table of functions ends before, and a loader would call whatever lies behind it.
  OpenclDriver for_platforms(const std::vector<cl_platform_id>& platforms) const;

  // Every device of every platform, in the loader's order. The inventory numbers devices so.
  struct Device {
    cl_device_id id = nullptr;
    cl_platform_id platform = nullptr;
  };
  std::vector<Device> devices() const;
  // A text that the device or platform says of itself; empty: it does not.
  std::string text_of(cl_device_id device, cl_device_info parameter) const;
  std::string text_of(cl_platform_id platform, cl_platform_info parameter) const;
  // A number; 0: the device does not say.
  uint64_t number_of(cl_device_id device, cl_device_info parameter) const;

#define TENDRIL_DRIVER_MEMBER(symbol, result, arguments, names) symbol##_t* symbol = nullptr;
  TENDRIL_OPENCL_FUNCTIONS(TENDRIL_DRIVER_MEMBER)
#undef TENDRIL_DRIVER_MEMBER

 private:
  OpenclDriver() = default;
  std::string path_;
};

}  // namespace tendril::gpu

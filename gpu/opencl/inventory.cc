// SPDX-License-Identifier: Apache-2.0
// Asks OpenCL which devices there are, of whatever kind. Runs only in the probing child. See
// inventory.h.
#include "gpu/inventory.h"
#include "gpu/opencl/driver.h"

namespace tendril::gpu {
namespace {

std::string type_of(uint64_t type) {
  if ((type & CL_DEVICE_TYPE_ACCELERATOR) != 0) return "accelerator";
  if ((type & CL_DEVICE_TYPE_GPU) != 0) return "gpu";
  if ((type & CL_DEVICE_TYPE_CPU) != 0) return "cpu";
  return "custom";
}

// "OpenCL 3.0 PoCL HSTR: ..." is 3.0.
std::string version_of(const std::string& text) {
  constexpr char kHead[] = "OpenCL ";
  if (text.rfind(kHead, 0) != 0) return "";
  const size_t begin = sizeof kHead - 1;
  return text.substr(begin, text.find(' ', begin) - begin);
}

// The same device has the same number after a restart, on this machine only.
std::string uuid_of(const DeviceFacts& facts, const std::string& platform) {
  uint64_t halves[2] = {0xcbf29ce484222325u, 0x84222325cbf29ce4u};  // FNV-1a
  for (const char letter : platform + "\n" + facts.name + "\n" + std::to_string(facts.index)) {
    for (uint64_t& half : halves)
      half = (half ^ static_cast<uint8_t>(letter)) * 0x100000001b3u + (half >> 61);
  }
  return std::string(reinterpret_cast<const char*>(halves), sizeof halves);
}

}  // namespace

base::Result<Inventory> take_opencl_inventory(const std::string& driver_path) {
  base::Result<std::unique_ptr<OpenclDriver>> opened = OpenclDriver::open(driver_path);
  if (!opened.ok()) return opened.status();
  const OpenclDriver& driver = **opened;
  Inventory inventory;
  inventory.driver_path = driver.path();
  for (const OpenclDriver::Device& device : driver.devices()) {
    DeviceFacts facts;
    facts.index = static_cast<uint32_t>(inventory.devices.size());
    facts.name = driver.text_of(device.id, CL_DEVICE_NAME);
    facts.memory_total_bytes = driver.number_of(device.id, CL_DEVICE_GLOBAL_MEM_SIZE);
    facts.processors =
        static_cast<uint32_t>(driver.number_of(device.id, CL_DEVICE_MAX_COMPUTE_UNITS));
    const uint64_t type = driver.number_of(device.id, CL_DEVICE_TYPE);
    // A kernel for this machine's processors is code of the worker's process.
    facts.pageable_access = (type & CL_DEVICE_TYPE_CPU) != 0;
    facts.type = type_of(type);
    facts.vendor = driver.text_of(device.id, CL_DEVICE_VENDOR);
    facts.opencl_version = version_of(driver.text_of(device.id, CL_DEVICE_VERSION));
    facts.extensions = driver.text_of(device.id, CL_DEVICE_EXTENSIONS);
    facts.uuid = uuid_of(facts, driver.text_of(device.platform, CL_PLATFORM_NAME));
    inventory.devices.push_back(std::move(facts));
  }
  // The library stays open while the process lives.
  static_cast<void>(opened->release());
  return inventory;
}

}  // namespace tendril::gpu

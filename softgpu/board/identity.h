// SPDX-License-Identifier: Apache-2.0
// The name and ids of a test device, the same through the driver and through NVML.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "softgpu/board/settings.h"

namespace tendril::softgpu {

inline constexpr char kDeviceName[] = "Tendril Test Device (software)";

// The standard name, followed by what a knob adds.
inline std::string device_name(const Settings& settings, unsigned index) {
  const char* more = settings.device[index].name;
  return std::string(kDeviceName) + (*more != '\0' ? " " : "") + more;
}

inline void device_uuid(unsigned index, char bytes[16]) {
  memcpy(bytes, "TENDRIL-TEST-\0\0", 16);
  bytes[14] = static_cast<char>(index >> 8);
  bytes[15] = static_cast<char>(index);
}

inline unsigned device_bus(unsigned index) { return index + 1; }

}  // namespace tendril::softgpu

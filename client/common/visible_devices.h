// SPDX-License-Identifier: Apache-2.0
// What CUDA_VISIBLE_DEVICES means for libcuda, and how a GPU's UUID is written. NVML ignores the
// variable and shows every device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tendril::client {

// Writes 16 raw bytes as "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx". Other lengths are padded with
// zeros or cut.
std::string uuid_text(const std::string& uuid);

// Which devices the program sees, in its order. `uuids`: 16 raw bytes for each device. `value`
// null: the variable is unset, and the program sees all. Entries are ordinals or unique prefixes of
// "GPU-..." UUIDs. As with CUDA, the first entry that names no device ends the list, so "" and "-1"
// mean none. If a device is named twice, the program sees none.
std::vector<uint32_t> visible_devices(const char* value, const std::vector<std::string>& uuids);

}  // namespace tendril::client

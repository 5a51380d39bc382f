// SPDX-License-Identifier: Apache-2.0
// What CUDA_VISIBLE_DEVICES means for libcuda, and how a GPU's UUID is written. NVML ignores the
// variable and shows every device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tendril::client {

// 16 raw bytes as "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"; anything else is padded with zeros or
// cut.
std::string uuid_text(const std::string& uuid);

// Which of `count` devices the program sees, in its order. `value` null: the variable is unset, all
// of them. Entries are ordinals or unique prefixes of "GPU-..." UUIDs (`uuids`: 16 raw bytes per
// device). As with CUDA, the first entry that names no device ends the list, so "" and "-1" mean
// none; a device named twice leaves none at all.
std::vector<uint32_t> visible_devices(const char* value, const std::vector<std::string>& uuids);

}  // namespace tendril::client

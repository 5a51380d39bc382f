// SPDX-License-Identifier: Apache-2.0
// From a pool's GPUs to what Kubernetes' scheduler knows of them: ResourceSlices with one device
// for each GPU, of which pods take parts. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tendril::kubernetes {

using Json = nlohmann::json;

inline constexpr char kDriver[] = "gpu.tendril.io";
inline constexpr char kApi[] = "/apis/resource.k8s.io/v1";
inline constexpr size_t kDevicesMax = 128;  // of one ResourceSlice

// The name of a GPU's device: a DNS label that no other GPU of the pool has.
std::string device_name(const std::string& server, int64_t index);

// The devices of the servers that are up and do not drain. `status`: the answer of
// `tendril pool status --json`. `binds`: pods wait for a lease of it before they are bound
// (binding.h). Throws std::runtime_error if it is no such answer.
Json devices_of(const Json& status, bool binds = false);

// The ResourceSlices of the devices, as they shall be. There is at least one, so that a pool
// without GPUs is known to have none. `pool`: their name in Kubernetes.
std::vector<Json> slices_of(const std::string& pool, const Json& devices, int64_t generation);

}  // namespace tendril::kubernetes

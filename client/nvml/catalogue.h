// SPDX-License-Identifier: Apache-2.0
// The devices that NVML shows: the slices that this program holds or would get, as its servers list
// them. The list is read at nvmlInit, and again when somebody asks for a live value, at most every
// kRefreshMs. Reading attaches to nothing and uses no GPU. Any thread. A forked child keeps the
// list and makes new connections.
//
// Order and identity follow the CUDA side (client/cuda/attach.cc): leases in their order, and the
// slices of each in order. Without a lease: the slices that this process holds by itself, once it
// has attached. Before that: the GPUs that the servers would choose now.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "api/nvml_abi.gen.h"
#include "client/nvml/model.h"
#include "config/configuration.h"
#include "wire/assignment.h"
#include "wire/control.h"

namespace tendril::client::nvml {

using config::Configuration;
using config::Server;
using wire::kSlicesMax;

inline constexpr uint64_t kRefreshMs = 100;

struct PciAddress {
  uint32_t domain = 0, bus = 0, device = 0, function = 0;
  bool valid = false;
  bool operator==(const PciAddress&) const = default;
};
// "0000:3b:00.0", "00000000:3B:00.0", "3b:00.0"; the function may be missing.
PciAddress parse_pci(const std::string& text);

struct Process {
  uint32_t pid = 0;
  uint64_t memory_bytes = 0;  // of the slice
};

struct Device {
  uint32_t index = 0;
  uint32_t server = 0;  // position in the configuration: devices of one server are on one host
  std::string name;
  std::string uuid;  // as the servers give it: 16 raw bytes
  std::string uuid_text;
  PciAddress pci;
  Model model;
  uint64_t memory_total_bytes = 0, memory_used_bytes = 0;  // of the slice
  int32_t utilization_percent = -1, temperature_c = -1, power_mw = -1;
  std::vector<Process> processes;  // of this program
  bool lost = false;               // the server does not answer any more, or the lease has ended
};

// The last answer of one server.
struct ServerView {
  bool reachable = false;
  wire::ListReply list;
};

// Who asks. Tells the program's own leases from others.
struct Self {
  std::string host;
  uint32_t pid = 0;
  // libcuda is loaded here, so this process is the one that uses a lease in use.
  bool uses_cuda = false;
};

// The mapping, apart from any connection. `views` goes with configuration.servers, one each.
// kNotFound: no such lease or no GPU.
base::Result<std::vector<Device>> map_devices(const Configuration& configuration,
                                              const std::vector<ServerView>& views,
                                              const Self& self);

// For nvmlInit and nvmlShutdown, which are counted.
nvmlReturn_t start();
nvmlReturn_t stop();
bool is_started();

// kLive: at most kRefreshMs old. kNow: includes what this program has just done.
enum class Values { kKnown, kLive, kNow };
nvmlReturn_t device_at(nvmlDevice_t handle, Values values, Device* device);
// All devices, as last seen. UNINITIALIZED before start.
nvmlReturn_t all_devices(std::vector<Device>* devices);
nvmlDevice_t handle_of(uint32_t index);

// Of the oldest driver among the servers: its CUDA version (13000 for CUDA 13.0), and its library's
// path, which has the driver's version. 0: no server says.
struct DriverFacts {
  uint32_t cuda_version = 0;
  std::string library;
};
DriverFacts driver_facts();

}  // namespace tendril::client::nvml

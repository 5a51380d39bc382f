// SPDX-License-Identifier: Apache-2.0
// Which GPUs this machine has, according to its driver library. The daemon never loads a driver. So
// a short-lived child (`tendril-worker --probe`) takes the inventory and prints it as text.
// `take_inventory` loads the driver and creates one context after another, to measure what an empty
// context costs. The daemon uses the text half (inventory_text.cc), which opens nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::gpu {

struct DeviceFacts {
  uint32_t index = 0;
  std::string name;
  std::string uuid;  // 16 raw bytes; empty: the driver does not say
  std::string pci_bus_id;
  uint64_t memory_total_bytes = 0;
  // Total minus free memory with one empty context. If nothing else runs, this is the cost of a
  // context (500-600 MB on an H200, 0 on the software GPU).
  uint64_t memory_taken_bytes = 0;
  uint32_t processors = 0;          // streaming multiprocessors; 0: the driver does not say
  uint32_t compute_capability = 0;  // 90 for 9.0; 0: the driver does not say
  // Kernels can read and write all memory of their process (HMM, ATS).
  bool pageable_access = false;
  // What OpenCL devices say of themselves: "cpu", "gpu", "accelerator" or "custom"; "3.0"; words.
  std::string type, vendor, opencl_version, extensions;
};

// An API that the worker executable serves, and the digest of its messages.
struct ApiRecord {
  std::string name;
  uint64_t digest = 0;
};

// What an API says of one GPU, in its own words (AttachReply::facts).
struct ApiFacts {
  std::string api;
  uint32_t gpu = 0;
  std::string facts;
};
inline constexpr size_t kApiFactsBytesMax = 8u << 10;

// An NCCL library that the operator lends.
struct NcclFile {
  uint32_t version = 0;  // 22809 for 2.28.9
  std::string path;
};
inline constexpr size_t kNcclFilesMax = 64;

struct Inventory {
  std::string driver_path;
  uint32_t driver_version = 0;  // 13000 = 13.0
  std::vector<DeviceFacts> devices;
  // The worker process fills these in.
  std::vector<ApiRecord> apis;
  std::vector<ApiFacts> facts;
  std::vector<NcclFile> nccl;  // the highest version first, each version once
};

// Loads the driver into this process. An empty path means the system's.
base::Result<Inventory> take_inventory(const std::string& driver_path);
// The same of every device of every OpenCL platform. Creates nothing on a device.
base::Result<Inventory> take_opencl_inventory(const std::string& driver_path);

// One record for each line, tab-separated. The first word is its kind. Names are cleaned of control
// characters.
std::string inventory_to_text(const Inventory& inventory);
// Checks all bounds, because the text comes from a child that ran a vendor's code. Skips lines of
// unknown kind, because drivers print to stdout.
base::Result<Inventory> inventory_from_text(const std::string& text);

}  // namespace tendril::gpu

// SPDX-License-Identifier: Apache-2.0
// What filters look at: the facts of one GPU on its server, and of one user. Plain data. An unknown
// number is 0, an unknown version has no parts, an unknown text is empty.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tendril::pool {

// "550.90.07" is {550, 90, 7}. Missing parts count as 0 when versions are compared.
using Version = std::vector<uint32_t>;

struct GpuFacts {
  std::string model;          // "NVIDIA H200"
  uint64_t memory_bytes = 0;  // as its driver reports it
  Version compute_capability, driver, cuda, opencl;
  std::string type = "gpu", vendor;     // of an OpenCL device also "cpu", "accelerator", "custom"
  std::vector<std::string> extensions;  // of an OpenCL device
  std::string server;                   // its proven name
  std::map<std::string, std::string> labels;
  std::vector<std::string> transports;  // "tcp", "shm", "rdma"
  uint32_t index = 0;                   // on its server
  uint32_t tenants = 0;                 // leases on it, if they are known
  bool tenants_known = false;
};

struct UserFacts {
  std::string user;  // as proven
  std::vector<std::string> groups;
  std::string role;  // "user", "operator", "admin"
  std::string host;
};

// The numbers between the dots; what follows the first other character is left out. At most 4
// parts.
Version version_of(const std::string& text);
// Below 0, 0, above 0.
int compare_versions(const Version& a, const Version& b);

}  // namespace tendril::pool

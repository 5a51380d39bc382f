// SPDX-License-Identifier: Apache-2.0
// What GPUs this machine has, seen through its driver library: taken in a short-lived child
// (`tendril-worker --probe`) so that the daemon itself never loads a driver, and handed over as
// text. `take_inventory` loads the driver and creates one context after another to see what an
// empty context costs; the text half (inventory_text.cc) opens nothing and is what the daemon uses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace tendril::gpu {

struct DeviceFacts {
  uint32_t index = 0;
  std::string name;
  std::string uuid;  // 16 raw bytes; empty when the driver does not say
  std::string pci_bus_id;
  uint64_t memory_total_bytes = 0;
  // Total less free with one empty context: its cost where nothing else runs (500-600 MB on an
  // H200, 0 on the software GPU).
  uint64_t memory_taken_bytes = 0;
  uint32_t processors = 0;  // streaming multiprocessors; 0: the driver does not say
};

// An API that the worker executable serves, and the digest of its messages.
struct ApiRecord {
  std::string name;
  uint64_t digest = 0;
};

struct Inventory {
  std::string driver_path;
  uint32_t driver_version = 0;  // 13000 = 13.0
  std::vector<DeviceFacts> devices;
  std::vector<ApiRecord> apis;  // filled in by the worker process, which knows them
};

// Loads the driver into this process. An empty path means the system's.
base::Result<Inventory> take_inventory(const std::string& driver_path);

// One record a line, tab-separated, first word its kind; names are cleaned of control characters.
std::string inventory_to_text(const Inventory& inventory);
// Bounded; the text comes from a child that ran a vendor's code. Lines of unknown kind are passed
// over (drivers print to stdout).
base::Result<Inventory> inventory_from_text(const std::string& text);

}  // namespace tendril::gpu

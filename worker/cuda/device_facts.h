// SPDX-License-Identifier: Apache-2.0
// What the driver says of a device without a context: names and attributes, as programs may see
// them. The snapshot of a session has it, and what tendrild knows of each GPU before any session
// (Worker::facts). Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "gpu/cuda/driver.h"

namespace tendril::worker::cuda {

// More than any driver knows today. The driver answers an error for an unknown attribute.
inline constexpr uint32_t kAttributes = 160;

// Of several devices, one after another.
struct DeviceTexts {
  std::string names, pci, uuids;
  bool keeps_ptx() const;  // the driver executes PTX itself
};

// Appends to the texts. `attributes` gets an answer and a value for each of kAttributes.
// `shares_pages`: the program's pages are the worker's.
CUresult describe_device(const gpu::Driver& driver, CUdevice device, bool shares_pages,
                         DeviceTexts* texts, int32_t* attributes);

// A snapshot of the one device, without what needs a context, a slice or a client: the body of a
// snapshot_reply. Empty: the driver refuses.
std::string device_facts(const gpu::Driver& driver, uint32_t gpu_index);

}  // namespace tendril::worker::cuda

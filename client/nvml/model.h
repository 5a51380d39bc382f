// SPDX-License-Identifier: Apache-2.0
// What is the same for every GPU of a model and therefore need not travel: looked up by the name
// that the driver gives it. A catalogue entry (wire::GpuRecord) knows names, sizes and live values
// only. Any thread.
#pragma once

#include <cstdint>
#include <string>

namespace tendril::client::nvml {

// 0: not known here.
struct Model {
  const char* word = "";         // part of the driver's name
  uint8_t major = 0, minor = 0;  // compute capability
  uint8_t pcie_generation = 0;
  uint8_t pcie_width = 0;
  uint16_t memory_bus_bits = 0;
  uint16_t clock_max_mhz = 0;
  uint16_t memory_clock_max_mhz = 0;
};

// The first model whose word is in `name`, or one that knows nothing.
const Model& model_of(const std::string& name);

}  // namespace tendril::client::nvml

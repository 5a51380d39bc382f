// SPDX-License-Identifier: Apache-2.0
// Facts that all GPUs of a model share. They need not travel. They are looked up by the driver's
// name of the GPU. A server's record (wire::GpuRecord) has only names, sizes and live values. Any
// thread.
#pragma once

#include <cstdint>
#include <string>

namespace tendril::client::nvml {

// 0: unknown.
struct Model {
  const char* word = "";         // part of the driver's name
  uint8_t major = 0, minor = 0;  // compute capability
  uint8_t pcie_generation = 0;
  uint8_t pcie_width = 0;
  uint16_t memory_bus_bits = 0;
  uint16_t clock_max_mhz = 0;
  uint16_t memory_clock_max_mhz = 0;
};

// The first model whose word is in `name`, or a model without facts.
const Model& model_of(const std::string& name);

}  // namespace tendril::client::nvml

// SPDX-License-Identifier: Apache-2.0
// Places of devices on the PCI bus, for a program with GPUs of several machines. Two machines may
// say the same of theirs, and one GPU may be there twice. Programs take these ids as keys, so each
// device gets one of its own. libcuda and libnvidia-ml ask the same function in the same order of
// devices, so they answer alike. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace tendril::client {

struct PciPlace {
  uint32_t domain = 0, bus = 0, device = 0;
  bool operator==(const PciPlace&) const = default;
};

// A place that an earlier one has gets the next domain in which no other place is equal to it. The
// first of equal places stays as it is.
void make_distinct(std::vector<PciPlace>* places);

}  // namespace tendril::client

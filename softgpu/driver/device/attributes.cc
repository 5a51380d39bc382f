// SPDX-License-Identifier: Apache-2.0
// The device attributes. The base is what an H200 answers (api/cuda/h200_attributes.txt). Features
// that the software lacks are off. Knobs set processors, compute capability and bus number.

#include "softgpu/driver/config.h"
#include "softgpu/driver/device/device.h"

namespace tendril::softgpu {
namespace {

// Attribute n is kValues[n - 1]; ten to a row. Off here, unlike the base: clusters, tensor maps,
// multicast, fabric handles, host pools, sparse arrays, compression, ECC, concurrent managed
// access.
constexpr int kValues[] = {
    1024,       1024,      1024,    64,    2147483647, 65535,   65535,
    49152,      65536,     32,  // 1
    2147483647, 65536,     1000000, 512,   1,          132,     0,
    0,          1,         0,  // 11
    131072,     131072,    65536,   16384, 16384,      16384,   32768,
    32768,      2048,      512,  // 21
    1,          0,         0,       0,     0,          1000000, 512,
    4194304,    2048,      2,  // 31
    1,          32768,     2048,    1,     32768,      32768,   8192,
    8192,       32768,     0,  // 41
    32,         32768,     32768,   2046,  32768,      131072,  65536,
    16384,      16384,     16384,  // 51
    32768,      2048,      32768,   32768, 2048,       32768,   32768,
    2046,       268435456, 131072,  // 61
    65000,      2097120,   32768,   32768, 9,          0,       32768,
    1,          1,         1,  // 71
    233472,     65536,     1,       0,     0,          0,       2,
    0,          0,         0,  // 81
    1,          0,         0,       0,     1,          0,       232448,
    0,          1,         0,  // 91
    0,          1,         1,       0,     0,          32,      0,
    0,          0,         1,  // 101
    1024,       0,         1,       0,     1,          1,       1,
    100,        1,         0,  // 111
    0,          1,         1,       1,     1,          1,       0,
    0,          0,         0,  // 121
    -1,         0,         0,       0,     0,          0,       0,
    0,          0,         0,                                       // 131
    0,          0,         0,       0,     0,          0,       0,  // 141
};

}  // namespace

bool device_attribute(const Device& device, int attribute, int* value) {
  if (attribute < 1 || attribute > static_cast<int>(sizeof kValues / sizeof kValues[0]))
    return false;
  for (const auto& [number, claimed] : faults().attributes) {
    if (number != attribute) continue;
    *value = claimed;
    return true;
  }
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = static_cast<int>(config().sm_count);
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = config().major;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = config().minor;
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = static_cast<int>(device.bus);
      break;
    default:
      *value = kValues[attribute - 1];
  }
  return true;
}

}  // namespace tendril::softgpu

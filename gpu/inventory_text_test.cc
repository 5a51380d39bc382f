// SPDX-License-Identifier: Apache-2.0
// The inventory stays the same through text, and malformed text is refused.
#include <gtest/gtest.h>

#include "gpu/inventory.h"

namespace tendril::gpu {
namespace {

Inventory two_apis() {
  Inventory inventory;
  inventory.driver_path = "/lib/libcuda.so.1";
  inventory.driver_version = 13000;
  DeviceFacts device;
  device.name = "Test\tDevice";
  device.uuid = std::string("0123456789abcdef");
  device.pci_bus_id = "0000:01:00.0";
  device.memory_total_bytes = uint64_t{8} << 30;
  device.processors = 132;
  device.pageable_access = true;
  device.compute_capability = 90;
  inventory.devices.push_back(device);
  inventory.apis = {{"cuda", 0x0123456789abcdefu}, {"tiny", 1}};
  inventory.facts = {{"cuda", 0, std::string("\0\n\xff", 3) + std::string(2000, 'x')}};
  inventory.nccl = {{22809, "/opt/nccl/libnccl.so.2.28.9"}, {22705, "/opt/nccl/libnccl.so.2.27.5"}};
  return inventory;
}

TEST(InventoryText, ThereAndBack) {
  auto read = inventory_from_text("a driver's own line\n" + inventory_to_text(two_apis()));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->driver_version, 13000u);
  ASSERT_EQ(read->devices.size(), 1u);
  EXPECT_EQ(read->devices[0].name, "Test Device");
  EXPECT_EQ(read->devices[0].uuid, "0123456789abcdef");
  EXPECT_EQ(read->devices[0].processors, 132u);
  EXPECT_TRUE(read->devices[0].pageable_access);
  EXPECT_EQ(read->devices[0].compute_capability, 90u);
  ASSERT_EQ(read->apis.size(), 2u);
  ASSERT_EQ(read->nccl.size(), 2u);
  EXPECT_EQ(read->nccl[0].version, 22809u);
  EXPECT_EQ(read->nccl[1].path, "/opt/nccl/libnccl.so.2.27.5");
  EXPECT_EQ(read->apis[0].name, "cuda");
  EXPECT_EQ(read->apis[0].digest, 0x0123456789abcdefu);
  EXPECT_EQ(read->apis[1].digest, 1u);
  ASSERT_EQ(read->facts.size(), 1u);
  EXPECT_EQ(read->facts[0].api, "cuda");
  EXPECT_EQ(read->facts[0].facts, two_apis().facts[0].facts);
}

TEST(InventoryText, MalformedLinesOfApis) {
  const std::string text = inventory_to_text(two_apis());
  for (const char* line :
       {"tendril-api\n", "tendril-api\tcuda\n", "tendril-api\tcuda\t12\n",
        "tendril-api\t\t0123456789abcdef\n", "tendril-api\tcuda\t0123456789abcdeg\n",
        "tendril-api\ta name that is longer than 32 bytes\t0123456789abcdef\n",
        "tendril-facts\tcuda\t0\n", "tendril-facts\tcuda\tx\t00\n", "tendril-facts\tcuda\t0\t0\n",
        "tendril-facts\t\t0\t00\n"})
    EXPECT_FALSE(inventory_from_text(text + line).ok()) << line;
}

TEST(InventoryText, ADriverLineIsNeeded) { EXPECT_FALSE(inventory_from_text("").ok()); }

}  // namespace
}  // namespace tendril::gpu

// SPDX-License-Identifier: Apache-2.0
// Who may be lent a GPU that reaches all memory of its process.
#include "daemon/containment/pageable.h"

#include <gtest/gtest.h>

namespace tendril::daemon {
namespace {

TEST(Pageable, IsNotLentToStrangersUnlessToldSo) {
  gpu::Inventory inventory;
  inventory.devices.resize(3);
  for (uint32_t i = 0; i < 3; ++i) inventory.devices[i].index = i;
  EXPECT_TRUE(check_pageable_access(inventory, true, false).ok());
  inventory.devices[1].pageable_access = inventory.devices[2].pageable_access = true;
  EXPECT_TRUE(check_pageable_access(inventory, false, false).ok());
  EXPECT_TRUE(check_pageable_access(inventory, true, true).ok());
  const base::Status refused = check_pageable_access(inventory, true, false);
  EXPECT_FALSE(refused.ok());
  EXPECT_NE(refused.message().find("GPU 1, 2"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("--allow-pageable-access"), std::string::npos);
}

}  // namespace
}  // namespace tendril::daemon

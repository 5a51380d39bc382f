// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES: ordinals, UUID prefixes, and where a list ends.
#include "client/common/visible_devices.h"

#include <gtest/gtest.h>

namespace tendril::client {
namespace {

using List = std::vector<uint32_t>;

std::vector<std::string> four() {
  std::vector<std::string> uuids;
  for (char i = 0; i < 4; ++i) uuids.push_back(std::string(15, '\x1a') + static_cast<char>(i));
  uuids[3][0] = '\x77';
  return uuids;
}

TEST(UuidText, Form) {
  EXPECT_EQ(uuid_text(std::string(
                "\x01\x23\x45\x67\x89\xab\xcd\xef\x00\x11\x22\x33\x44\x55\x66\xff", 16)),
            "GPU-01234567-89ab-cdef-0011-2233445566ff");
  EXPECT_EQ(uuid_text(""), "GPU-00000000-0000-0000-0000-000000000000");
}

TEST(VisibleDevices, Ordinals) {
  EXPECT_EQ(visible_devices(nullptr, four()), (List{0, 1, 2, 3}));
  EXPECT_EQ(visible_devices("2,0", four()), (List{2, 0}));
  EXPECT_EQ(visible_devices(" 1 , 3 ", four()), (List{1, 3}));
  EXPECT_EQ(visible_devices("1x,+2", four()), (List{1, 2}));
}

TEST(VisibleDevices, FirstInvalidEntryEndsTheList) {
  EXPECT_EQ(visible_devices("", four()), List{});
  EXPECT_EQ(visible_devices("-1", four()), List{});
  EXPECT_EQ(visible_devices("NoDevFiles", four()), List{});
  EXPECT_EQ(visible_devices("0,4,1", four()), (List{0}));
  EXPECT_EQ(visible_devices("1,-1,2", four()), (List{1}));
  EXPECT_EQ(visible_devices("0,,1", four()), (List{0}));
  EXPECT_EQ(visible_devices("99999999999999999999", four()), List{});
}

TEST(VisibleDevices, RepeatsLeaveNone) {
  EXPECT_EQ(visible_devices("1,1", four()), List{});
  EXPECT_EQ(visible_devices("3,GPU-77", four()), List{});
}

TEST(VisibleDevices, UuidPrefixes) {
  EXPECT_EQ(visible_devices("GPU-77", four()), (List{3}));
  EXPECT_EQ(visible_devices((uuid_text(four()[2]) + ",gpu-771A").c_str(), four()), (List{2, 3}));
  EXPECT_EQ(visible_devices("GPU-1a", four()), List{}) << "ambiguous";
  EXPECT_EQ(visible_devices("GPU-99", four()), List{});
  EXPECT_EQ(visible_devices("MIG-77", four()), List{});
}

}  // namespace
}  // namespace tendril::client

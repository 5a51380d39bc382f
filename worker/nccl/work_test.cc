// SPDX-License-Identifier: Apache-2.0
// What clients may not make NCCL believe.
#include <gtest/gtest.h>

#include <cstring>

#include "worker/nccl/work.h"

namespace tendril::worker::nccl {
namespace {

using api::nccl::Element;
using api::nccl::What;

bool reads(const Element& element, uint64_t extra_bytes) {
  std::vector<Element> work;
  return read_work(reinterpret_cast<const uint8_t*>(&element), sizeof element, extra_bytes, &work);
}

Element init() {
  Element element;
  element.what = What::kInit;
  element.count = 2;
  element.ids = 1;
  return element;
}

TEST(NcclWork, IdsAndConfigurationLieInside) {
  EXPECT_TRUE(reads(init(), 128));
  EXPECT_FALSE(reads(init(), 127));
  Element element = init();
  element.ids_at = UINT32_MAX;
  EXPECT_FALSE(reads(element, 128));
  element = init();
  element.ids = UINT32_MAX;
  EXPECT_FALSE(reads(element, 128));
  element = init();
  element.config_at = 128;
  element.config_bytes = sizeof(ncclConfig_t);
  EXPECT_TRUE(reads(element, 128 + sizeof(ncclConfig_t)));
  EXPECT_FALSE(reads(element, 127 + sizeof(ncclConfig_t)));
  element.config_bytes = api::nccl::kConfigBytesMax + 1;
  EXPECT_FALSE(reads(element, 4096));
}

TEST(NcclWork, NumbersThatNcclDoesNotKnow) {
  Element element;
  EXPECT_FALSE(reads(element, 0));
  element.what = What::kAllReduce;
  EXPECT_TRUE(reads(element, 0));
  element.operation = api::nccl::kPreMulSum;
  EXPECT_TRUE(reads(element, 0));
  element.operation = ncclNumOps;  // would be an address in NCCL's tables
  EXPECT_FALSE(reads(element, 0));
  element = init();
  element.count = 0;
  EXPECT_FALSE(reads(element, 128));
  std::vector<Element> work;
  EXPECT_FALSE(read_work(nullptr, 0, 0, &work));
  EXPECT_FALSE(read_work(reinterpret_cast<const uint8_t*>(&element), sizeof element - 1, 0, &work));
}

TEST(NcclWork, PointersOfTheProgramMeanNothingHere) {
  std::string extra(api::nccl::kConfigBytesMax, '\x7f');
  Element element;
  element.config_bytes = api::nccl::kConfigBytesMax;
  Configuration read;
  read_configuration(element, extra, &read);
  ASSERT_NE(read.given, nullptr);
  EXPECT_EQ(read.given->size, api::nccl::kConfigBytesMax);
  EXPECT_EQ(read.given->netName, nullptr);
  uint64_t second = 1;
  std::memcpy(&second, read.bytes + api::nccl::kConfigPointers[1], sizeof second);
  EXPECT_EQ(second, 0u);
  Configuration none;
  read_configuration(Element(), extra, &none);
  EXPECT_EQ(none.given, nullptr);
}

}  // namespace
}  // namespace tendril::worker::nccl

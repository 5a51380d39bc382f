// SPDX-License-Identifier: Apache-2.0
// Values of the ABI as text: by type and by name, and always bounded.
#include "api/cuda_print.gen.h"

#include <gtest/gtest.h>

#include <string>

namespace tendril::api {
namespace {

template <typename T>
std::string printed(const T& value) {
  Text t;
  print(t, value);
  t.end("");
  return {t.data(), t.bytes()};
}

TEST(Print, ValuesByTheirTypes) {
  EXPECT_EQ(printed(-3), "-3");
  EXPECT_EQ(printed(4000000000u), "4000000000");
  EXPECT_EQ(printed(size_t{4096}), "4096");
  EXPECT_EQ(printed(CUdeviceptr{0x7f0000001000}), "0x7f0000001000");
  EXPECT_EQ(printed(reinterpret_cast<CUstream>(uint64_t{2})), "0x2");
  EXPECT_EQ(printed(1.5f), "1.5");
}

TEST(Print, EnumeratorsByName) {
  EXPECT_EQ(printed(CUDA_ERROR_OUT_OF_MEMORY), "CUDA_ERROR_OUT_OF_MEMORY");
  EXPECT_EQ(printed(CU_MEMORYTYPE_ARRAY), "CU_MEMORYTYPE_ARRAY");
  CUmemorytype none;
  const int32_t number = 77;
  std::memcpy(&none, &number, sizeof none);
  EXPECT_EQ(printed(none), "77");
}

TEST(Print, RecordsFieldByFieldWithoutWhatIsZero) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = reinterpret_cast<void*>(uint64_t{0x1000});
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = 0x2000;
  copy.WidthInBytes = 64;
  EXPECT_EQ(printed(copy),
            "{srcMemoryType=CU_MEMORYTYPE_HOST, srcHost=0x1000, "
            "dstMemoryType=CU_MEMORYTYPE_DEVICE, dstDevice=0x2000, "
            "WidthInBytes=64}");
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1};
  EXPECT_EQ(
      printed(prop),
      "{type=CU_MEM_ALLOCATION_TYPE_PINNED, location={type=CU_MEM_LOCATION_TYPE_DEVICE, id=1}}");
  prop.allocFlags.compressionType = 1;
  EXPECT_NE(printed(prop).find(", allocFlags={...}}"), std::string::npos);
}

TEST(Print, ArraysAndBytesAreBounded) {
  CUuuid uuid{};
  uuid.bytes[0] = 0x5a;
  EXPECT_EQ(printed(uuid), "{bytes=5a000000000000000000000000000000}");
  const uint64_t many[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  Text t;
  print_array(t, many, 10);
  EXPECT_EQ(std::string(t.data(), t.bytes()), "[1, 2, 3, 4, 5, 6, 7, 8, ... 2 more]");
}

TEST(Print, TextIsQuotedAndBounded) {
  Text t;
  t.quoted("a\"\n", 3);
  EXPECT_EQ(std::string(t.data(), t.bytes()), "\"a\\\"\\x0a\"");
  Text longer;
  const std::string name(1000, 'x');
  longer.quoted(name.data(), name.size());
  EXPECT_EQ(std::string(longer.data(), longer.bytes()),
            '"' + std::string(kPrintedTextBytes, 'x') + "\"...");
}

TEST(Print, ALineIsCutButItsEndIsThere) {
  Text t;
  for (int i = 0; i < 1000; ++i) t.raw("argument");
  t.end(" -> CUDA_SUCCESS\n");
  const std::string line(t.data(), t.bytes());
  EXPECT_EQ(line.substr(line.size() - 20), "... -> CUDA_SUCCESS\n");
  EXPECT_EQ(line.size(), kPrintedLineBytes + 20);
}

}  // namespace
}  // namespace tendril::api

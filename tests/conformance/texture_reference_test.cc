// SPDX-License-Identifier: Apache-2.0
// Texture references: state that programs older than CUDA 12 set and query.
#include "tests/conformance/harness.h"

namespace tendril::conformance {
namespace {

class TextureReferenceTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    ASSERT_EQ(cuTexRefCreate(&reference_), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (reference_) cuTexRefDestroy(reference_);
    CudaTest::TearDown();
  }
  CUtexref reference_ = nullptr;
};

TEST_F(TextureReferenceTest, StateIsKept) {
  CUarray_format format = CU_AD_FORMAT_FLOAT;
  CUaddress_mode mode = CU_TR_ADDRESS_MODE_CLAMP;
  CUfilter_mode filter = CU_TR_FILTER_MODE_POINT;
  int channels = 0;
  unsigned flags = 0;
  OK(cuTexRefSetFormat(reference_, CU_AD_FORMAT_UNSIGNED_INT8, 4));
  OK(cuTexRefGetFormat(&format, &channels, reference_));
  EXPECT_EQ(format, CU_AD_FORMAT_UNSIGNED_INT8);
  EXPECT_EQ(channels, 4);
  OK(cuTexRefSetAddressMode(reference_, 1, CU_TR_ADDRESS_MODE_WRAP));
  OK(cuTexRefGetAddressMode(&mode, reference_, 1));
  EXPECT_EQ(mode, CU_TR_ADDRESS_MODE_WRAP);
  OK(cuTexRefSetFilterMode(reference_, CU_TR_FILTER_MODE_LINEAR));
  OK(cuTexRefGetFilterMode(&filter, reference_));
  EXPECT_EQ(filter, CU_TR_FILTER_MODE_LINEAR);
  OK(cuTexRefSetFlags(reference_, CU_TRSF_NORMALIZED_COORDINATES));
  OK(cuTexRefGetFlags(&flags, reference_));
  EXPECT_EQ(flags, static_cast<unsigned>(CU_TRSF_NORMALIZED_COORDINATES));
}

TEST_F(TextureReferenceTest, Address) {
  Buffer data(4096);
  size_t offset = 99;
  CUdeviceptr got = 0;
  OK(cuTexRefSetFormat(reference_, CU_AD_FORMAT_FLOAT, 1));
  OK(cuTexRefSetAddress_v2(&offset, reference_, data, 4096));
  EXPECT_EQ(offset, 0u);
  OK(cuTexRefGetAddress_v2(&got, reference_));
  EXPECT_EQ(got, data);
}

TEST_F(TextureReferenceTest, Array) {
  CUDA_ARRAY_DESCRIPTOR descriptor = {64, 16, CU_AD_FORMAT_FLOAT, 1};
  CUarray array = nullptr, got = nullptr;
  MUST(cuArrayCreate_v2(&array, &descriptor));
  OK(cuTexRefSetArray(reference_, array, CU_TRSA_OVERRIDE_FORMAT));
  OK(cuTexRefGetArray(&got, reference_));
  EXPECT_EQ(got, array);
  OK(cuArrayDestroy(array));
}

TEST_F(TextureReferenceTest, NamesOfModules) {
  Module module(basic_ptx());
  CUtexref found = nullptr;
  EXPECT_CU(cuModuleGetTexRef(&found, module, "no_such_texture"), CUDA_ERROR_NOT_FOUND);
  INVALID(cuTexRefCreate(nullptr));
}

}  // namespace
}  // namespace tendril::conformance
